"""Tests that check.py finds paths that do not exist, and words that a page does not explain."""
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


class Words(unittest.TestCase):
    def test_takes_the_names_of_one_definition(self):
        self.assertEqual(check.names_in('int a = "no"; kNames{"one", f{"two words"}, "-"}; "no"', "kNames{"),
                         ["one", "two words"])
        for source in ('kOthers{"one"}', 'kNames{} "one"'):
            with self.assertRaises(ValueError):
                check.names_in(source, "kNames{")

    def test_explains_what_stands_before_colons_and_in_first_columns_by_section(self):
        page = ["## A", "- **one**, `two`: not `three`", "  or `four` ([more](x.md)).", "## B", "- **five**: no link", "",
                "| other | `six` | with `seven` |"]
        words, unlinked = check.explained(enumerate(page, 1))
        self.assertEqual(words, {"A": {"one", "two"}, "B": {"five", "six"}})
        self.assertEqual(unlinked, [5])

    def test_a_printed_name_without_an_explanation_is_a_problem(self):
        text = check.WORDS.read_text()
        self.assertEqual(self.problems(text), [])
        for name in ("peer_wait", "epoch_boundary", "other programs", "equivalent", "transfer"):
            found = self.problems(text.replace(f"`{name}`", ""))
            self.assertEqual(len(found), 1, found)
            self.assertIn(repr(name), found[0][1])

    def problems(self, text):
        return list(check.word_problems(enumerate(text.splitlines(), 1)))


if __name__ == "__main__":
    unittest.main()
