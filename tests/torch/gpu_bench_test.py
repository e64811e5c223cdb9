"""bench/gpu/pack and bench/gpu/run without a GPU: a pack that is small enough and complete, a dry run in it, results
that outlive failures, and refusals."""
import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

parser = argparse.ArgumentParser()
for option in ("source", "build", "torch"):
    parser.add_argument("--" + option, type=pathlib.Path, required=True)
args, rest = parser.parse_known_args()
sys.path.insert(0, str(args.source / "bench/gpu"))
import machine  # noqa: E402
import plan  # noqa: E402
import render  # noqa: E402

runner = {"__name__": "runner", "__file__": str(args.source / "bench/gpu/run")}
exec(compile((args.source / "bench/gpu/run").read_text(), "bench/gpu/run", "exec"), runner)  # has no suffix to import
packer = {"__name__": "packer", "__file__": str(args.source / "bench/gpu/pack")}
exec(compile((args.source / "bench/gpu/pack").read_text(), "bench/gpu/pack", "exec"), packer)


def script(path, *words):
    return subprocess.run([sys.executable, "-B", str(path), *map(str, words)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=1500, check=False)


class Folder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="millrace-gpu-bench-")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)


# Libraries of the pack that Python or the shell may need as well.
EVERYBODYS = re.compile(r"lib(z|stdc\+\+|gcc_s|crypto|ssl|lzma|zstd|selinux|pcre2-8|acl|attr)\.so")


def hide(hidden, empty):
    """Returns a shell's commands that hide folders and files from itself and its children."""
    mounts = [f"mount -t tmpfs none {shlex.quote(str(path))}" if path.is_dir() else
              f"mount --bind {shlex.quote(str(empty))} {shlex.quote(str(path))}" for path in hidden]
    return " && ".join(["mount --make-rprivate /", *mounts])


def can_hide():
    """Returns whether this process may hide anything: in most containers it may not."""
    with tempfile.TemporaryDirectory() as folder:
        command = hide([pathlib.Path(folder)], "")
        return shutil.which("unshare") is not None and subprocess.run(
            ["unshare", "--mount", "sh", "-c", command], capture_output=True, check=False).returncode == 0


class Pack(Folder):
    def run_closed(self, out, words):
        """Runs a command where the build folder, the tests and the libraries of this system that the pack brings are
        hidden."""
        if not can_hide():
            print("THE PACK IS NOT TESTED IN A CLOSED ROOT: unshare --mount is not permitted", file=sys.stderr)
            return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
        found = packer["shared_libraries"]([out / "millrace", *(out / "lib").glob("*.so")])
        hidden = {path.resolve() for name, path in found.items() if not EVERYBODYS.match(name)}
        hidden = {path for path in hidden if not path.is_relative_to(out)}
        self.assertGreater(len(hidden), 5)
        (self.folder / "nothing").write_text("")
        command = hide([args.build, args.source / "tests", *hidden], self.folder / "nothing") + " && exec " + shlex.join(map(str, words))
        return subprocess.run(["unshare", "--mount", "sh", "-c", command], capture_output=True, text=True, check=False)

    def test_runs_dry_by_itself(self):
        out = self.folder / "pack"
        mnist = self.folder / "mnist"
        made = subprocess.run([args.build / "millrace", "data", "make", "digits", mnist, "--train", "600", "--test", "100",
                               "--quiet"], check=False)
        self.assertEqual(made.returncode, 0)
        command = [args.source / "bench/gpu/pack", out, "--build", args.build, "--torch", args.torch, "--mnist"]
        (self.folder / "empty").mkdir()
        partial = script(*command, self.folder / "empty")
        self.assertEqual(partial.returncode, 2)
        self.assertIn("MNIST's four files are not all there", partial.stderr)
        packed = script(*command, mnist)
        self.assertEqual(packed.returncode, 0, packed.stderr)
        self.assertEqual(sorted(path.name for path in (out / "data/mnist").iterdir()),
                         sorted(path.name for path in mnist.rglob("*ubyte*")))
        with mock.patch.object(machine, "HERE", out / "bench/gpu"):
            words = machine.Machine(args.torch, self.folder / "scratch").words(plan.train("one", plan.LENET).command)
        self.assertIn(f"data.path={out}/data/mnist", words)
        self.assertEqual(packer["complaints"](out), [])
        (out / "system/libz.so.1").rename(self.folder / "libz.so.1")
        self.assertIn("needs libz.so.1", " ".join(packer["complaints"](out)))
        (self.folder / "libz.so.1").rename(out / "system/libz.so.1")
        with mock.patch.dict(packer, NEWEST_GLIBC=(2, 2)):
            self.assertIn("needs glibc 2.", " ".join(packer["complaints"](out)))
        self.assertFalse(packer["ELSEWHERE"].match("libcurl.so.4"))
        self.assertTrue(packer["ELSEWHERE"].match("libcurand.so.10"))
        self.assertLess(sum(path.stat().st_size for path in out.rglob("*") if path.is_file()), 55 << 20)
        dry = self.run_closed(out, [sys.executable, "-B", out / "bench/gpu/run", self.folder / "results", "--dry",
                                    "--torch", args.torch])
        self.assertEqual(dry.returncode, 0, dry.stdout + dry.stderr)
        document = (self.folder / "results/dry-gpu.md").read_text()
        for title in ("First 20 losses", "Resumption", "Steps", "Goals", "What keys cost", "Known limits", "pymillrace watch",
                      "Predictions", "Runs"):
            self.assertIn("## " + title, document)
        self.assertIn("**", document, "says that its figures are samples")
        self.assertLessEqual(len(list((self.folder / "results").iterdir())), 8)
        again = script(args.source / "bench/gpu/pack", out, "--build", args.build, "--torch", args.torch)
        self.assertEqual(again.returncode, 2)
        facts = out / "pack.json"
        facts.write_text(json.dumps({"torch": "2.99.0", "git": ""}))
        refused = script(out / "bench/gpu/run", self.folder / "other", "--dry", "--torch", args.torch)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("millrace was built with 2.99.0", refused.stderr)


class Module(Folder):
    """The module past the libraries that this machine lacks: stubs stand for them, and every symbol is resolved."""

    def test_reaches_the_missing_device(self):
        stubs = subprocess.run([sys.executable, "-B", args.source / "tests/python/cuda_stubs.py", args.torch, self.folder],
                               capture_output=True, text=True, check=False)
        self.assertEqual(stubs.returncode, 0, stubs.stderr)
        environment = dict(os.environ, LD_LIBRARY_PATH=str(self.folder), LD_BIND_NOW="1", CUDA_VISIBLE_DEVICES="",
                           MILLRACE_DEVICE_TESTS="required")
        data = self.folder / "digits"
        subprocess.run([args.build / "millrace", "data", "make", "digits", data, "--train", "200", "--test", "100",
                        "--quiet"], check=True)
        for words, code in ((["millrace", "train", "mnist-lenet", f"data.path={data}", "train.device=cuda",
                              "--run", self.folder / "run"], 4),
                            (["millrace", "doctor"], 0),
                            (["torch_test", "--gtest_filter=CudaTraining.FollowsTheCpusByEitherClock"], 1)):
            done = subprocess.run([args.build / words[0], *words[1:]], capture_output=True, text=True, check=False,
                                  env=environment)
            said = done.stdout + done.stderr
            self.assertEqual(done.returncode, code, said)
            self.assertIn("no CUDA device: ", said)
            self.assertNotIn("missing", said)


    def test_has_code_for_turing_ampere_hopper_and_what_follows(self):
        tool = shutil.which("cuobjdump", path=os.pathsep.join(
            [os.environ.get("PATH", ""), str(args.source / ".deps/lint/nvidia/cu13/bin")]))
        if tool is None:
            if os.environ.get("MILLRACE_CI"):
                self.fail("cuobjdump was not installed (tools/lint-requirements.txt)")
            self.skipTest("THE ARCHITECTURES OF THE CUDA MODULE ARE NOT TESTED: there is no cuobjdump")
        done = subprocess.run([tool, "--list-elf", "--list-ptx", args.build / "lib/libmillrace_cuda.so"],
                              capture_output=True, text=True, check=True)
        self.assertEqual(re.findall(r"sm_\d+\.(?:cubin|ptx)", done.stdout),
                         ["sm_75.cubin", "sm_80.cubin", "sm_90.cubin", "sm_90.ptx"])


class FakeMachine:
    """Runs shell commands instead of the plan's."""

    def __init__(self, scratch):
        self.scratch = scratch
        self.torch, self.root = scratch / "torch", scratch
        self.packed = True
        self.words = lambda command: command
        self.call = lambda *a, **more: machine.Machine.call(self, *a, **more)
        self.environment = lambda words, hide_devices: dict(os.environ)


def shell(name, text, **more):
    return plan.Run(name, ["sh", "-c", text], more.pop("limit_s", 60), "text", **more)


class Stages(Folder):
    def run_stage(self, *runs):
        results = runner["Results"](self.folder)
        done = runner["run_stage"](FakeMachine(self.folder), plan.Stage("one", "", list(runs)), results, lambda _: None)
        return done, json.loads((self.folder / "results.json").read_text())["runs"]

    def test_a_failure_leaves_the_other_results(self):
        done, runs = self.run_stage(shell("good", "echo one"), shell("bad", "exit 3"),
                                    shell("behind", "echo no", after="bad"), shell("last", "echo two"),
                                    shell("tool", "echo no", tool="no-such-program"),
                                    shell("module", "echo no", module="no_such_module"),
                                    shell("known", "echo yes", module="json"))
        self.assertTrue(done)
        self.assertEqual([runs["good"]["exit"], runs["bad"]["exit"], runs["last"]["exit"]], [0, 3, 0])
        self.assertEqual(runs["last"]["text"], "two\n")
        self.assertIn("bad has failed", runs["behind"]["skipped"])
        self.assertIn("no-such-program", runs["tool"]["skipped"])
        self.assertIn("no_such_module", runs["module"]["skipped"])
        self.assertEqual(runs["known"]["text"], "yes\n")

    def test_a_second_call_repeats_only_what_failed(self):
        count = f"echo x >>{self.folder}/NAME; exit CODE"
        good, bad = (shell(name, count.replace("NAME", name).replace("CODE", code))
                     for name, code in (("good", "0"), ("bad", "1")))
        self.run_stage(good, bad)
        self.run_stage(good, bad)
        self.assertEqual((self.folder / "good").read_text(), "x\n")
        self.assertEqual((self.folder / "bad").read_text(), "x\nx\n")

    def test_a_limit_ends_a_run_with_its_children(self):
        _, runs = self.run_stage(shell("endless", "sleep 1000 & wait", limit_s=1), shell("next", "echo on"))
        self.assertEqual(runs["endless"]["ended"], "over its limit")
        self.assertEqual(runs["next"]["exit"], 0)

    def test_a_stage_begins_no_run_that_would_outlast_it(self):
        with mock.patch.object(plan, "STAGE_LIMIT_S", 30):
            done, _ = self.run_stage(shell("short", "true", limit_s=10), shell("long", "true", limit_s=60))
        self.assertFalse(done)
        self.assertEqual(list(json.loads((self.folder / "results.json").read_text())["runs"]), ["short"])


    def test_a_missing_prerequisite_is_run(self):
        count = f"echo x >>{self.folder}/count"
        first, second = shell("first", count), shell("second", "echo two", after="first")
        with mock.patch.object(plan, "all_runs", lambda: [first, second]):
            _, runs = self.run_stage(second)
            self.assertEqual([runs["first"]["exit"], runs["second"]["text"]], [0, "two\n"])
            self.run_stage(first, second)
        self.assertEqual((self.folder / "count").read_text(), "x\n")

    def test_what_failed_or_was_left_out_counts_and_a_missing_tool_does_not(self):
        good, bad = shell("good", "true"), shell("bad", "exit 3")
        behind, tool = shell("behind", "true", after="bad"), shell("tool", "true", tool="no-such-program")
        with mock.patch.object(plan, "all_runs", lambda: [good, bad, behind, tool]):
            _, runs = self.run_stage(good, bad, behind, tool)
        for names, wanted in (((good, tool), True), ((good, bad), False), ((good, behind), False),
                              ((good, shell("not-run", "true")), False)):
            self.assertEqual(runner["passed"](plan.Stage("one", "", list(names)), runs), wanted)

    def test_earlier_results_are_continued_in_another_folder(self):
        one = shell("one", f"echo x >>{self.folder}/count")
        self.run_stage(one)
        other = self.folder / "other"
        other.mkdir()
        results = runner["Results"](other, self.folder / "results.json")
        self.assertTrue(runner["run_stage"](FakeMachine(self.folder), plan.Stage("one", "", [one]), results, print))
        self.assertEqual((self.folder / "count").read_text(), "x\n")
        for text in ("[]", "{", '{"runs": 1}'):
            (self.folder / "wrong.json").write_text(text)
            with self.assertRaises(runner["Refused"]):
                runner["Results"](other, self.folder / "wrong.json")
        with self.assertRaises(runner["Refused"]):
            runner["Results"](other, self.folder / "missing.json")

    def test_what_a_driver_calls_otherwise_is_asked_for_by_both_names(self):
        tools = self.folder / "tools"
        tools.mkdir()
        smi = tools / "nvidia-smi"
        smi.write_text('#!/bin/sh\ncase $1 in\n*=clocks_throttle*) echo 0x4 ;;\n*=name) echo H100 ;;\n*) exit 6 ;;\nesac\n')
        smi.chmod(0o755)
        with mock.patch.dict(os.environ, {"PATH": f"{tools}:{os.environ['PATH']}"}):
            said = runner["state"](FakeMachine(self.folder))
        self.assertEqual(said["text"], "H100, -, -, -, -, -, 0x4")
        self.assertEqual(said["exit"], 0)

    def test_libraries_of_the_pack_come_first_for_our_programs_only(self):
        one = machine.Machine.__new__(machine.Machine)
        one.root, one.torch, one.packed = self.folder, self.folder / "site/torch", True
        system = str(self.folder / "system")
        for words, wanted in (([f"{self.folder}/millrace", "doctor"], True), ([sys.executable, "torch_lenet.py"], False),
                              (["compute-sanitizer", f"{self.folder}/torch_test"], True)):
            self.assertEqual(system in one.environment(words)["LD_LIBRARY_PATH"].split(":"), wanted)
        self.assertEqual(one.environment([])["MILLRACE_DEVICE_TESTS"], "required")
        self.assertNotIn("MILLRACE_DEVICE_TESTS", one.environment([], hide_devices=True))


class Plan(unittest.TestCase):
    def test_names_are_unique_and_conditions_come_before(self):
        names = [run.name for run in plan.all_runs()]
        self.assertEqual(len(names), len(set(names)))
        for run in plan.all_runs():
            if run.after:
                self.assertLess(names.index(run.after), names.index(run.name))
            self.assertLessEqual(run.limit_s, plan.STAGE_LIMIT_S)

    def test_what_is_worth_most_comes_first(self):
        self.assertEqual([stage.name for stage in plan.stages()], ["first", "goals", "modes", "tables"])
        names = [run.name for run in plan.all_runs()]
        self.assertLess(names.index("test-native"), names.index("goal-0"))
        self.assertLess(names.index("goal-0"), names.index("parts-true-1"))
        self.assertGreaterEqual(plan.warm_up().limit_s, 180)
        self.assertFalse(any(run.after == "steps20" for run in plan.all_runs()), "a first run that fails ends nothing")

    def test_launches_hide_no_cost_and_the_peer_has_our_switches(self):
        for run in plan.costs():
            self.assertIn("train.cuda_graphs=step", run.command)
        peer = (args.source / "bench/gpu/torch_resnet50.py").read_text()
        self.assertIn("torch.backends.cudnn.benchmark = True", peer)
        for run in plan.resnet_goals():
            if "cifar10-resnet50" in run.command:
                self.assertIn("train.cudnn_benchmark=true", run.command)

    def test_peers_take_turns(self):
        names = [run.name for run in plan.all_runs()]
        for ours in ("goal", "resnet"):
            turns = [name for name in names if name.startswith((ours + "-", f"torch-{ours}-"))]
            self.assertEqual(turns, [name for seed in range(plan.GOAL_RUNS)
                                     for name in (f"{ours}-{seed}", f"torch-{ours}-{seed}")])

    def test_a_sample_without_a_run_has_a_hole(self):
        sample = json.loads((args.source / "bench/gpu/sample.json").read_text())
        self.assertEqual(render.holes(sample, plan.stages()), [])
        del sample["runs"]["whole"]
        self.assertTrue(any("whole" in hole for hole in render.holes(sample, plan.stages())))

    def test_a_sample_without_a_figure_has_a_hole(self):
        def hole(change):
            sample = json.loads((args.source / "bench/gpu/sample.json").read_text())
            change(sample["runs"])
            return "; ".join(render.holes(sample, plan.stages()))

        self.assertIn("s4-async-2: update_s_per_step", hole(lambda runs: runs["s4-async-2"]["summary"].pop(
            "update_s_per_step")))
        self.assertIn("limit-launches: verdict",
                      hole(lambda runs: runs["limit-launches"]["summary"].update(verdict=None)))
        self.assertIn("watch: watch", hole(lambda runs: runs["watch"]["json"].pop("watch")))
        self.assertIn("mode-cpu: losses", hole(lambda runs: runs["mode-cpu"].pop("losses")))
        self.assertIn("torch-goal-3: its second epoch", hole(lambda runs: runs["torch-goal-3"].update(text="")))
        self.assertIn("whole: parameters_hash", hole(lambda runs: runs["whole"].pop("summary")))
        self.assertIn("profile: what_if", hole(lambda runs: runs["profile"]["json"].pop("what_if")))
        self.assertIn(" measured", hole(lambda runs: runs["profile"]["json"]["what_if"][0].update(measured=None)))
        self.assertIn("doctor: cpu", hole(lambda runs: runs["doctor"]["json"].pop("cpu")))

    def test_a_key_that_the_program_does_not_write_is_named(self):
        sample = json.loads((args.source / "bench/gpu/sample.json").read_text())
        shapes = {"summary": set(sample["runs"]["goal-0"]["summary"]), "json": {"what_if"},
                  "change": set(sample["runs"]["profile"]["json"]["what_if"][0])}
        self.assertEqual(render.renamed(sample, shapes), [])
        shapes["summary"].remove("update_s_per_step_median")
        shapes["change"].remove("measured")
        self.assertEqual(render.renamed(sample, shapes),
                         ["the program writes no measured into its change",
                          "the program writes no update_s_per_step_median into its summary"])

    def test_a_missing_library_is_expected_only_with_its_package(self):
        text = "libraries are missing: libcufile.so.0 (nvidia-cufile), libmillrace_torch.so and libtorch_cuda.so; bash"
        self.assertEqual([one.split()[0] for one in runner["unexpected"](text)],
                         ["libmillrace_torch.so", "libtorch_cuda.so"])
        self.assertEqual(runner["unexpected"]("a library is missing: libcufile.so.0 (nvidia-cufile); bash"), [])
        self.assertEqual(runner["unexpected"]("train.device=cuda: no CUDA device: no CUDA-capable device"), [])
        other = "train.device=cuda: libmillrace_cuda.so is of another version: it lacks millrace_cuda_use"
        self.assertEqual(runner["unexpected"](other), ["the device is missing for another reason: " + other])

    def test_predictions_have_their_figures(self):
        change = {"change": ["loader.workers=0", "loader.batch=32"], "predicted": 1000.0, "measured": 900.0, "error": 0.1}
        text = render.profile_table(render.Source({"runs": {"profile": {"json": {"what_if": [change]}}}}))
        self.assertIn("| loader.workers=0 loader.batch=32 | 1,000 | 900 | 10.0 |", text)

    def test_goals_are_medians_of_their_runs(self):
        runs = {}
        for seed in range(plan.GOAL_RUNS):
            runs[f"goal-{seed}"] = {"exit": 0, "summary": {"load_s": 0.5, "update_s": 1.0 + seed, "wall_s": 9.0,
                                                           "load_s_per_step": 1e-5, "top1": 0.9 + 0.01 * seed}}
            runs[f"torch-goal-{seed}"] = {
                "exit": 0, "text": '{"epoch": 1, "s": 9.0}\n{"epoch": 2, "s": 4.5}\n{"top1": 0.9}\n'}
            runs[f"resnet-{seed}"] = {"exit": 0, "summary": {"update_s_per_step_median": 0.02, "load_s_per_step": 1e-4,
                                                             "update_s_per_step": 0.0199}}
            runs[f"torch-resnet-{seed}"] = {"exit": 0, "json": {"step_s": 0.016}}
            runs[f"goal512-{seed}"] = {"exit": 0, "summary": {"wall_s": 1.0 + 0.1 * seed}}
        runs["eager-resnet"] = {"exit": 0, "summary": {"update_s_per_step": 0.03}}
        runs["torch-eager-resnet"] = {"exit": 0, "json": {"step_s": 0.02}}
        text = render.goals_table(render.Source({"runs": runs}))
        self.assertIn("batches of 512, with start-up and one evaluation, s | 2 | 1.200 | 1.000 to 1.400 |", text)
        self.assertIn("training loop, s |  | 3.500 | 1.500 to 5.500 |", text)
        self.assertIn("its second epoch, s |  | 4.500 |", text)
        self.assertIn("by pairs |  | 0.078 | 0.033 to 0.122 |", text)
        self.assertIn("8 workers, µs | 15 | 10.000 |", text)
        self.assertIn("seeds 0, 1 and 2, % | 98.9 | 91.000 | 90.000 to 92.000 |", text)
        self.assertIn("load over the median update, % | 1 | 0.500 |", text)
        self.assertIn("nothing loaded) | 1 | 1.250 |", text)
        self.assertIn("no graph: step over PyTorch's | 1 | 1.500 |", text)

    def test_costs_are_of_pairs(self):
        runs = {f"parts-{value}-{pair}": {"exit": 0, "summary": {"update_s_per_step_median": seconds}}
                for pair in (1, 2, 3) for value, seconds in (("true", 1.02 + 0.01 * pair), ("false", 1.0))}
        self.assertIn("| mnist-lenet: train.device_parts=true | false | 3 | 4.00 |",
                      render.costs_table(render.Source({"runs": runs})))

    def test_a_limit_that_is_not_named_is_shouted(self):
        runs = {f"limit-{name}": {"exit": 0, "summary": {"bound": sorted(expected)[0], "verdict": "it says why"}}
                for name, _, _, _, expected in plan.LIMITS}
        self.assertNotIn("NO", render.limits_table(render.Source({"runs": runs})))
        runs["limit-one-worker"]["summary"]["bound"] = "device"
        self.assertIn("| decode | device | NO |", render.limits_table(render.Source({"runs": runs})))

    def test_tests_that_skipped_themselves_have_not_passed(self):
        said = "[==========] 5 tests ran.\n[  PASSED  ] 3 tests.\n[  SKIPPED ] 2 tests, listed below:\n"
        self.assertEqual(render.ended({"exit": 0, "text": said}), "SKIPPED by itself: 2 tests")
        self.assertEqual(render.ended({"exit": 0, "text": said[:said.rindex("[")]}), "passed")

    def test_the_device_waits_per_step(self):
        runs = {"one": {"exit": 0, "summary": {"device_gap_load_s": 0.5, "device_submissions": 100}}}
        self.assertEqual(render.gap_per_step(render.Source({"runs": runs}), "one"), 0.005)
        self.assertIsNone(render.gap_per_step(render.Source({"runs": {}}), "one"))

    def test_losses_that_differ_are_shouted(self):
        runs = {"mode-cpu": {"exit": 0, "losses": [2.0, 1.0]}, "mode-sync-loader": {"exit": 0, "losses": [2.0, 1.001]}}
        self.assertIn("NO", render.losses_table(render.Source({"runs": runs})))
        runs["mode-sync-loader"]["losses"][1] = 1.00001
        self.assertNotIn("NO", render.losses_table(render.Source({"runs": runs})))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest])
