"""Sweeps and ranks under a real Slurm: slurm_test.py MILLRACE. Exits with 77 where Slurm is not installed, except
under continuous integration: with 1."""
import contextlib
import csv
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import slurm

PROGRAM = ""
SWEEP = ["mnist-lenet-plain", "train.threads=1", "loader.batch=20", "train.epochs=1", "train.steps=8",
         "loader.workers=0,1", "--repeats", "4"]
SECONDS = 240  # for anything that waits: far more than it takes


def listening():
    """The ports of this machine at which somebody listens for TCP connections."""
    tables = [pathlib.Path("/proc/net", name).read_text().splitlines() for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}


class SlurmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="millrace-slurm-", dir="/tmp"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.slurm = cls.enterClassContext(slurm.Slurm(cls.folder / "slurm"))
        # Gloo listens at the address of the host's name otherwise.
        cls.slurm.environment |= {"GLOO_SOCKET_IFNAME": "lo", "NO_COLOR": "1"}
        cls.millrace("data", "make", "digits", cls.folder / "digits", "--train", "200", "--test", "40")

    @classmethod
    def millrace(cls, *words, code=0):
        done = cls.slurm.command(PROGRAM, *words, check=False, cwd=cls.folder, timeout=SECONDS)
        if done.returncode != code:
            raise AssertionError(f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def status(self, run):
        """The blocks' states, by number."""
        blocks = json.loads(self.millrace("sweep", "--status", run, "--json").stdout)["blocks"]
        return {block["block"]: block for block in blocks}

    def states(self, run):
        return [block["state"] for block in self.status(run).values()]

    def resume_node(self):
        self.slurm.command("scontrol", "update", "NodeName=localhost", "State=RESUME")

    def drain_node(self):
        self.slurm.command("scontrol", "update", "NodeName=localhost", "State=DRAIN", "Reason=test")

    @staticmethod
    def outcome(run):
        """What does not depend on time: rows, the order of runs, seeds, losses and hashes."""
        result = json.loads((run / "sweep.json").read_text())
        rows = []
        for cell in result["cells"]:
            for one in cell["runs"]:
                folder = run / "runs" / one["run"]
                summary = json.loads((folder / "summary.json").read_text())
                with open(folder / "steps.csv", newline="") as file:
                    losses = [(step["step"], step["images"], step["loss"]) for step in csv.DictReader(file)]
                rows.append([cell["overrides"], one["run"], one["seed"], one["top1"], losses] +
                            [summary[key] for key in ("train_loss", "test_loss", "parameters_hash", "images")])
        return {"repeats": result["repeats"], "rows": rows}

    def kill_a_task(self, run):
        """Kills the process of a block soon after it has claimed it. Returns the block."""
        for block in (2, 3, 4):  # one that ends before it is found leaves the next
            log = run / "blocks" / f"{block:04}"
            self.slurm.wait_for((log / "1.json").exists, SECONDS)
            with contextlib.suppress(ProcessLookupError):
                os.kill(json.loads((log / "1.json").read_text())["owner"]["pid"], signal.SIGKILL)
            self.slurm.wait_for(lambda: f"{block}" not in self.running_tasks(), SECONDS)
            if not (log / "2.json").exists():
                return block
        self.fail("every block had ended before it could be killed")

    def jobs_named(self, name):
        """The numbers of the jobs of that name that Slurm has."""
        out = self.slurm.command("squeue", "--noheader", f"--name={name}", "--format=%i").stdout
        return [int(job) for job in out.split()]

    def running_tasks(self):
        return {name.partition("_")[2] for name, state in self.slurm.jobs().items()
                if state in ("RUNNING", "COMPLETING", "CONFIGURING")}

    def test_blocks_equal_a_local_sweep_and_a_killed_one_is_repeated_alone(self):
        local, run = self.folder / "local", self.folder / "cluster"
        data = f"data.path={self.folder / 'digits'}"
        self.millrace("sweep", *SWEEP, data, "--run", local)
        self.drain_node()
        said = self.millrace("sweep", *SWEEP, data, "--run", run, "--on", "slurm", "--partition", "tests",
                             "--time", "30")
        self.assertEqual(said.stdout, f"{run}\n")
        self.assertEqual(self.states(run), ["queued"] * 4, "nothing runs on a drained node")
        again = self.millrace("sweep", run, "--on", "slurm")
        self.assertIn("nothing to submit", again.stderr, "what is queued is not submitted twice")
        self.resume_node()

        killed = self.kill_a_task(run)
        others = [block for block in (1, 2, 3, 4) if block != killed]
        self.slurm.wait_for(lambda: all(self.states(run)[block - 1] == "done" for block in others), SECONDS)
        self.assertEqual(self.status(run)[killed]["state"], "failed")
        self.millrace("sweep", run, "--collect")
        self.assertEqual(len(json.loads((run / "sweep.json").read_text())["blocks"]["collected"]), 3)
        logs = {file: file.stat().st_mtime_ns for block in others
                for file in (run / "blocks" / f"{block:04}").glob("*.json")}

        self.millrace("sweep", run, "--on", "slurm", "--partition", "tests")
        self.slurm.wait_for(lambda: self.states(run) == ["done"] * 4, SECONDS)
        attempts = {block: state["attempts"] for block, state in self.status(run).items()}
        self.assertEqual(attempts, {block: 2 if block == killed else 1 for block in (1, 2, 3, 4)})
        self.assertEqual(logs, {file: file.stat().st_mtime_ns for file in logs}, "another block was run again")
        self.millrace("sweep", run, "--collect")
        self.assertEqual(self.outcome(run), self.outcome(local))

    def test_sbatch_says_why_it_refuses(self):
        run = self.folder / "refused"
        said = self.millrace("sweep", *SWEEP, f"data.path={self.folder / 'digits'}", "--run", run, "--on", "slurm",
                             "--partition", "nowhere", code=2)
        self.assertIn("sbatch refuses the job: ", said.stderr)
        self.assertIn("invalid partition", said.stderr.lower())
        self.assertEqual(self.states(run), ["open"] * 4, "the plan stays")

    def test_two_tasks_of_srun_are_two_ranks(self):
        train = ["train", "mnist-lenet-plain", f"data.path={self.folder / 'digits'}", "train.strategy=ddp",
                 "train.threads=1", "loader.batch=20", "train.epochs=1", "train.steps=8", "--json", "--run"]
        # A job of its own, and not a step with variables of another launcher.
        environment = {name: value for name, value in self.slurm.environment.items()
                       if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
        with open(self.folder / "srun.log", "w+") as log, subprocess.Popen(
                ["srun", "--ntasks=2", "--job-name=ranks", PROGRAM, *train, self.folder / "srun", "debug.log_ms=100"],
                env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as job:
            try:
                number = []
                self.slurm.wait_for(lambda: number.extend(self.jobs_named("ranks")) or number or job.poll() is not None)
                # Rank 0 serves the store at the port that is made of the job's number.
                self.slurm.wait_for(lambda: 12000 + number[0] % 20000 in listening() or job.poll() is not None)
                said = (self.folder / "srun.log").read_text
                self.assertIsNone(job.poll(), f"nobody has listened at port {12000 + number[0] % 20000}: {said()}")
                self.assertEqual(job.wait(SECONDS), 0, said())
            finally:
                job.kill()
        self.millrace("launch", "-n", "2", "--", *train, self.folder / "launch")
        mine, other = (json.loads((self.folder / name / "summary.json").read_text()) for name in ("srun", "launch"))
        self.assertEqual(mine["world_size"], 2)
        self.assertEqual([rank["rank"] for rank in mine["ranks"]], [0, 1])
        self.assertEqual(len({rank["pid"] for rank in mine["ranks"]}), 2)
        for key in ("parameters_hash", "train_loss", "images", "steps"):
            self.assertEqual(mine[key], other[key], key)

    def test_nothing_is_left_of_a_test_that_is_killed(self):
        folder = self.folder / "killed"
        script = ("import sys, time, slurm\n"
                  "with slurm.Slurm(sys.argv[1]) as one:\n"
                  "    one.command('sbatch', '--output=/dev/null', '--wrap=sleep 3600')\n"
                  "    one.wait_for(lambda: 'RUNNING' in one.jobs().values())\n"
                  "    print('ready', flush=True)\n"
                  "    time.sleep(3600)\n")
        with subprocess.Popen([sys.executable, "-B", "-c", script, str(folder)], stdout=subprocess.PIPE, text=True,
                              cwd=pathlib.Path(__file__).parent) as test:
            try:
                self.assertEqual(test.stdout.readline(), "ready\n")
                # Daemons, the daemon of a step, and its script.
                self.slurm.wait_for(lambda: len(list(slurm.marked(folder))) >= 5, SECONDS)
            finally:
                test.kill()
        self.slurm.wait_for(lambda: not list(slurm.marked(folder)), SECONDS)


def main():
    global PROGRAM
    why = slurm.missing()
    if why:
        print(f"SLURM IS NOT TESTED: {why}")
        return 1 if os.environ.get("MILLRACE_CI") else 77
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)


if __name__ == "__main__":
    sys.exit(main())
