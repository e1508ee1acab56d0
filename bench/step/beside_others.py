#!/usr/bin/env python3
"""One thread and two, each beside another program that keeps every core busy: the same steps of a small GPT-2.

    bench/step/beside_others.py TRIREME [TRIREME ...] [--precision fp32] [--steps 6] [--rounds 5] [--model byte]

Rounds of one and two threads in turns, of each program given; prints the seconds of a step and the ratios. Ends with 1 if
two threads of the first program take more than 1.5 times as long as its one (median of the rounds).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import small_runs  # noqa: E402

BOUND = 1.5
BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile os.getppid() == int(sys.argv[2]): pass"


def step_s(program: str, run: str, threads: int, options: argparse.Namespace) -> float:
    return json.loads(small_runs.run([program, "bench", "step", run, "--train.precision", options.precision,
                                      "--train.threads", str(threads), "--steps", str(options.steps), "--json"]))["step_s"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--model", default="byte", choices=sorted(small_runs.MODELS))
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    times: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        run = str(small_runs.make(options.programs[0], pathlib.Path(name), options.model))
        others = [subprocess.Popen([sys.executable, "-c", BUSY, str(core), str(os.getpid())])
                  for core in sorted(os.sched_getaffinity(0))]
        try:
            for _ in range(options.rounds):
                for program in options.programs:
                    for threads in (1, 2):
                        times.setdefault((program, threads), []).append(step_s(program, run, threads, options))
        finally:
            for other in others:
                other.kill()
                other.wait()
    worst = []
    for program in options.programs:
        one, two = times[program, 1], times[program, 2]
        ratios = [b / a for a, b in zip(one, two)]
        worst.append(statistics.median(ratios))
        print(f"{program}: one thread {statistics.median(one):.3f} s, two {statistics.median(two):.3f} s a step; "
              f"ratio {worst[-1]:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), bound {BOUND}")
    return 1 if worst[0] > BOUND else 0


if __name__ == "__main__":
    sys.exit(main())
