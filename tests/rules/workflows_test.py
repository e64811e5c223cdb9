"""Checks the workflows of .github: what they run lies in the repository, with bounded time and few rights.

    workflows_test.py

Needs PyYAML and zizmor, which tools/test --all installs under .deps/lint; exits with 77 without them, and with 1 in
continuous integration.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github/workflows"
LINT = ROOT / ".deps/lint"
ZIZMOR = LINT / "bin/zizmor"
sys.path.append(str(LINT))


def problems(text):
    """Yields what is wrong with a workflow."""
    workflow = yaml.safe_load(text)
    triggers = workflow[True]  # YAML 1.1 reads the key `on` so
    if "pull_request_target" in triggers:
        yield "pull_request_target gives rights to code of strangers"
    if workflow.get("permissions") != {"contents": "read"}:
        yield "the workflow's permissions are not contents: read"
    if "concurrency" not in workflow:
        yield "there is no concurrency"
    for name, job in workflow["jobs"].items():
        if not isinstance(job.get("timeout-minutes"), int):
            yield f"{name} has no timeout-minutes"
        if job.get("permissions", {}) not in ({}, {"id-token": "write"}):
            yield f"{name} has more permissions than id-token: write"
        if "permissions" in job and not str(job.get("if")).startswith("startsWith(github.ref, 'refs/tags/"):
            yield f"{name} may publish without a tag"
        for step in job["steps"]:
            yield from (f"{name}: {one}" for one in problems_of_step(step))


def problems_of_step(step):
    uses = step.get("uses")
    if uses is not None and not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", uses):
        yield f"{uses} is not pinned by a commit"
    if str(uses).startswith("actions/checkout@") and step.get("with", {}).get("persist-credentials") is not False:
        yield "the checkout keeps its credentials"
    if "run" not in step:
        return
    if "${{" in step["run"]:
        yield f"an expression is part of a shell's script: {step['run']}"
    words = shlex.split(step["run"])
    for script in [words[0], *(word for word in words[1:] if word.startswith((".ci/", "tools/", "tests/")))]:
        if "/" not in script or not os.access(ROOT / script, os.X_OK):
            yield f"{script} is no script of the repository"
    if set(";&|\n") & set(step["run"].strip()):
        yield f"more than one command: {step['run']}"


class Workflows(unittest.TestCase):
    def test_call_scripts_with_bounded_time_and_few_rights(self):
        files = sorted(FOLDER.glob("*.yml"))
        self.assertTrue(files)
        for file in files:
            self.assertEqual(list(problems(file.read_text())), [], file.name)

    def test_have_no_findings_of_zizmor(self):
        done = audit(FOLDER)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_planted_faults_are_found(self):
        text = (FOLDER / "wheels.yml").read_text()
        for fault, plant, said in (
                ("  pull_request:\n", "  pull_request_target:\n", "pull_request_target"),
                ("contents: read", "contents: write", "not contents: read"),
                ("concurrency:\n", "defaults:\n", "no concurrency"),
                ("    timeout-minutes: 60\n", "", "build has no timeout-minutes"),
                ("id-token: write", "contents: write", "publish has more permissions"),
                ("startsWith(github.ref, 'refs/tags/v')", "always()", "publish may publish without a tag"),
                ("@3d3c42e5aac5ba805825da76410c181273ba90b1", "@v7", "actions/checkout@v7 is not pinned"),
                ("          persist-credentials: false\n", "          fetch-depth: 1\n", "keeps its credentials"),
                (".ci/in_container .ci/wheel", ".ci/in_container .ci/wheels", ".ci/wheels is no script"),
                (".ci/in_container .ci/wheel", "make", "make is no script"),
                (".ci/in_container .ci/wheel", ".ci/wheel && make", "more than one command"),
                (".ci/in_container .ci/wheel", ".ci/wheel ${{ github.event.head_commit.message }}", "an expression")):
            self.assertIn(fault, text)
            found = list(problems(text.replace(fault, plant)))
            self.assertTrue(any(said in one for one in found), (said, found))

    def test_zizmor_finds_an_injection(self):
        text = (FOLDER / "wheels.yml").read_text().replace(".ci/wheel\n", ".ci/wheel ${{ github.event.issue.title }}\n")
        done = audit("-", text)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("template-injection", done.stdout)


def audit(where, text=""):
    """Runs zizmor on a folder, or with "-" on a text."""
    command = [ZIZMOR, "--offline", "--strict-collection", "--no-progress", where]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    try:
        import yaml
    except ImportError:
        yaml = None
    if yaml is None or not os.access(ZIZMOR, os.X_OK):
        print("THE WORKFLOWS ARE NOT TESTED: PyYAML and zizmor are missing (tools/lint-requirements.txt)")
        sys.exit(1 if os.environ.get("MILLRACE_CI") else 77)
    unittest.main()
