"""A Slurm of one node on 127.0.0.1: munged, slurmctld and slurmd, started without systemd.

The daemons are children of this process and die with it, even if it is killed. Jobs are not: a watcher, which lives a
little longer, ends what is left of them."""
import contextlib
import ctypes
import os
import pathlib
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "srun", "sinfo", "scontrol", "scancel")
PACKAGES = "slurm-wlm and munge"
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"

CONFIGURATION = """
ClusterName=millrace
SlurmctldHost={host}(127.0.0.1)
FirstJobId={first_job}
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldTimeout=300
SlurmdTimeout=300
MessageTimeout=60
BatchStartTimeout=60
InactiveLimit=0
KillWait=10
MinJobAge=300
Waittime=0
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldDebug=info
SlurmdDebug=info
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=tests Nodes=localhost Default=YES MaxTime=60 State=UP OverSubscribe=NO
"""


def missing():
    """Says why no Slurm can be started here; empty if one can."""
    absent = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    if absent:
        return f"{', '.join(absent)} not installed (Debian: {PACKAGES})"
    return ""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def first_job():
    """A number for the first job such that the ports of it and its neighbours are free: millrace train meets at port
    12000 + job mod 20000."""
    for job in (random.randrange(1, 19000) for _ in range(100)):
        with contextlib.suppress(OSError):
            for port in range(12000 + job, 12000 + job + 8):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", port))
            return job
    raise RuntimeError("no free ports between 12000 and 31000")


def die_with(parent):
    """Runs in a child before it becomes another program."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def marked(folder):
    """Processes of a Slurm below that folder: its daemons, the daemons of steps, and jobs."""
    mark = f"SLURM_CONF={folder}/slurm.conf".encode()
    for process in pathlib.Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    yield int(process.name)


def kill_marked(folder):
    """Kills all of them. One may start another while this looks, so it looks until there is none."""
    for _ in range(200):
        found = list(marked(folder))
        if not found:
            return
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)


class Slurm:
    """Use it as a context. `environment` is that of commands which talk to it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.daemons = []
        self.watcher = None
        self.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}
        for name in [name for name in self.environment if name.startswith(("SLURM_", "SBATCH_", "SQUEUE_"))]:
            if name != "SLURM_CONF":
                del self.environment[name]

    def __enter__(self):
        try:
            for folder in ("state", "spool", "munge"):
                (self.folder / folder).mkdir(parents=True, mode=0o700)
            self.watcher = subprocess.Popen([sys.executable, "-B", __file__, str(self.folder)], stdin=subprocess.PIPE,
                                            start_new_session=True)
            self.start_munge()
            for _ in range(5):  # another program may take a port before its daemon does
                if self.start_daemons():
                    return self
                self.stop(self.daemons[1:])
                del self.daemons[1:]
            raise RuntimeError(f"Slurm does not start:\n{self.logs()}")
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        # Steps of jobs are children of slurmd's and would outlive it.
        with contextlib.suppress(Exception):
            self.command("scancel", "--me", "--signal=KILL", "--full", check=False, timeout=20)
        self.stop(self.daemons)
        self.daemons = []
        kill_marked(self.folder)
        if self.watcher:
            self.watcher.stdin.close()
            self.watcher.wait()

    def start(self, *words, **more):
        parent = os.getpid()
        log = open(self.folder / f"{pathlib.Path(words[0]).name}.out", "ab")
        with log:
            self.daemons.append(subprocess.Popen(
                [shutil.which(words[0], path=PATH), *words[1:]], env=self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, preexec_fn=lambda: die_with(parent), **more))
        return self.daemons[-1]

    def start_munge(self):
        folder = self.folder / "munge"
        key = folder / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        socket_file = self.folder / "munge.socket"
        self.folder.chmod(0o755)
        daemon = self.start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket_file}",
                            f"--pid-file={folder}/pid", f"--log-file={folder}/log", f"--seed-file={folder}/seed",
                            "--num-threads=1")
        self.wait_for(lambda: socket_file.exists() or daemon.poll() is not None)
        if daemon.poll() is not None:
            raise RuntimeError(f"munged does not start:\n{self.logs()}")

    def start_daemons(self):
        """Starts both daemons. Returns whether the node is ready; false if one of them has ended."""
        host = socket.gethostname().split(".")[0]
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            host=host, first_job=first_job(), controller=free_port(), node=free_port(), folder=self.folder,
            user=pwd.getpwuid(os.geteuid()).pw_name))
        daemons = [self.start("slurmctld", "-D", "-c"), self.start("slurmd", "-D")]
        ready = []

        def settled():
            if any(daemon.poll() is not None for daemon in daemons):
                return True
            done = self.command("sinfo", "--noheader", "--format=%T", check=False)
            if done.returncode == 0 and done.stdout.strip() == "idle":
                ready.append(True)
            return bool(ready)

        self.wait_for(settled)
        return bool(ready)

    def command(self, *words, check=True, timeout=120, **more):
        """Runs a command of Slurm, or another one with its environment."""
        return subprocess.run([str(word) for word in words], env=self.environment, capture_output=True, text=True,
                              check=check, timeout=timeout, stdin=subprocess.DEVNULL, **more)

    def jobs(self):
        """The tasks that Slurm still has: name and state."""
        out = self.command("squeue", "--noheader", "--array", "--format=%i %T").stdout
        return dict(line.split() for line in out.splitlines())

    def wait_for(self, condition, seconds=120):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"waited {seconds} s for Slurm:\n{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        text = ""
        for file in sorted([*self.folder.glob("*.out"), *self.folder.glob("*.log"), *self.folder.glob("munge/log")]):
            text += f"--- {file.name}\n" + "\n".join(file.read_text(errors="replace").splitlines()[-30:]) + "\n"
        return text

    def stop(self, daemons):
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def watch(folder):
    """Waits until the process that started this one has ended, in whatever way, and ends what it has left."""
    sys.stdin.read()
    kill_marked(folder)


if __name__ == "__main__":
    watch(sys.argv[1])
