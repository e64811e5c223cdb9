"""Runs real A/A studies: sweeps whose two rows are the same combination.

    python3 bench/aa_sweeps.py --data data/digits [--studies 20] [--repeats 5] [--program build/millrace]

Prints one line per study, and how many studies called their rows different. A verdict "faster" or "slower" is a
false alarm; expect one or two in twenty.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import tempfile


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--repeats", default="5")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--program", default="build/millrace")
    arguments = parser.parse_args()
    verdicts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for study in range(arguments.studies):
            out = subprocess.run(
                [arguments.program, "sweep", "mnist-lenet", f"data.path={arguments.data}",
                 "train.device=simulated", "simulated.update_ms=0", "loader.workers=1,1",
                 f"train.steps={arguments.steps}", f"seed={1000 * study}", "--repeats",
                 arguments.repeats, "--quiet", "--json", "--run",
                 str(pathlib.Path(folder) / str(study))],
                check=True, capture_output=True, text=True).stdout
            comparison = json.loads(out)["cells"][1]["comparison"]
            verdicts[comparison["verdict"]] += 1
            print(f"{study + 1:3}  ratio {comparison['ratio']:.3f} "
                  f"[{comparison['low']:.3f} .. {comparison['high']:.3f}]  "
                  f"{comparison['verdict']}", flush=True)
    false = verdicts["faster"] + verdicts["slower"]
    print(f"{false} false alarms in {arguments.studies} studies; {dict(verdicts)}")


if __name__ == "__main__":
    main()
