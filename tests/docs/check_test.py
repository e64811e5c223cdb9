"""Tests that check.py finds paths that do not exist, with and without a suffix."""
import unittest

import check


class NamedPaths(unittest.TestCase):
    def missing(self, line, own=()):
        tops = ["augment", "tests"]
        return [name for name, exists in check.named_paths(line, tops, {"plan.cpp"}, own) if not exists]

    def test_finds_moved_files_with_and_without_suffix_and_backticks(self):
        self.assertEqual(self.missing("| folding | augment/fold | `augment/fold.cpp` |"),
                         ["augment/fold", "augment/fold.cpp"])
        self.assertEqual(self.missing("see `sampler.cpp` and `plan.cpp`"), ["sampler.cpp"])

    def test_accepts_files_folders_stems_patterns_and_links(self):
        self.assertEqual(self.missing("`augment/plan`, augment/plan/fold, augment/plan/fold.h, `tests/torch/native_*`, "
                                      "[gone](augment/gone.h), other-augment/gone, http://x/augment/gone."), [])

    def test_accepts_files_that_the_page_writes_and_those_of_a_design(self):
        self.assertEqual(self.missing("`mine.cpp`", {"mine.cpp"}), [])
        self.assertEqual(self.missing("`mine.cpp`", None), [])


if __name__ == "__main__":
    unittest.main()
