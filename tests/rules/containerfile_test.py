"""Checks that Containerfile runs README.md's commands on the system that tools/setup.sh supports."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def commands_of(readme):
    """Returns the commands of the first block for a shell."""
    block = re.search(r"^```sh.*?\n(.*?)^```", readme, re.M | re.S)[1]
    return [line.partition("#")[0].strip() for line in block.splitlines()]


def problems(containerfile, readme):
    """Yields in what a Containerfile differs from README.md, and what is wrong with its image."""
    stages = containerfile.split("\nFROM ")[1:]
    for command in commands_of(readme):
        if f"\nRUN {command}\n" not in containerfile:
            yield f"{command} is not run"
    for stage in stages:
        if not stage.startswith(("debian:bookworm-slim", "built ")):
            yield f"{stage.split()[0]} is not Debian 12"
    if re.findall(r"^USER (.*)$", stages[-1], re.M)[-1:] in ([], ["root"], ["0"]):
        yield "the image runs as root"


class Containerfile(unittest.TestCase):
    def setUp(self):
        self.readme = (ROOT / "README.md").read_text()
        self.text = (ROOT / "Containerfile").read_text()

    def test_runs_the_commands_of_readme(self):
        self.assertEqual(commands_of(self.readme), ["bash tools/quickstart", "bash tools/test"])
        self.assertEqual(list(problems(self.text, self.readme)), [])

    def test_planted_faults_are_found(self):
        self.assertEqual(list(problems(self.text, self.readme.replace("bash tools/test ", "bash tools/check "))),
                         ["bash tools/check is not run"])
        for fault, plant, said in (
                ("RUN bash tools/quickstart", "RUN bash tools/setup", "bash tools/quickstart is not run"),
                ("debian:bookworm-slim AS", "debian:trixie-slim AS", "debian:trixie-slim is not Debian 12"),
                ("USER millrace", "USER root", "the image runs as root"),
                ("USER millrace\n", "", "the image runs as root")):
            self.assertIn(fault, self.text)
            self.assertEqual(list(problems(self.text.replace(fault, plant), self.readme)), [said])


if __name__ == "__main__":
    unittest.main()
