#!/usr/bin/env python3
"""Real runs, half of them with a rank that is slowed down from some step on: it is named, and nobody else ever is.

    straggler_runs.py PROGRAM MPIRUN [PAIRS]
"""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import runs  # noqa: E402

# Layout, who is slow, how much; ranks of one stage but for the last, where a rank has its own first steps alone.
CASES = [("--layout.dp 2 --supervise.launcher mpirun", 1, 1.5), ("--layout.tp 2 --supervise.launcher mpirun", 0, 1.5),
         ("--layout.dp 2", 0, 1.5), ("--layout.tp 2", 1, 2), ("--layout.pp 2 --supervise.launcher mpirun", 1, 2)]
SLOW_FROM = 50
WITHIN = 20


def named(program: str, folder: pathlib.Path, name: str, options: str) -> list[dict]:
    run = runs.Run(program, folder, name, f"{options} --train.steps 90 --checkpoint.interval 1000")
    if run.finish() != 0:
        raise runs.Broken(run.printed())
    return run.incidents()


def main() -> int:
    program, _ = sys.argv[1:3]
    pairs = int(sys.argv[3]) if len(sys.argv) > 3 else len(CASES)
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        runs.make_data(program, folder, 90, 48)
        for number, (layout, rank, factor) in enumerate(CASES[:pairs]):
            clean = named(program, folder, f"clean{number}", layout)
            slow = named(program, folder, f"slow{number}", f"{layout} --inject slow:rank={rank},step={SLOW_FROM},factor={factor}")
            well = not clean and [line["ranks"] for line in slow] == [[rank]] and slow[0]["kind"] == "slow"
            well = well and SLOW_FROM < slow[0]["step"] <= SLOW_FROM + WITHIN + 1
            failed += not well
            print(f"{layout}, rank {rank} x {factor}: {'well' if well else 'WRONG'}; clean: {[l['message'] for l in clean]}; "
                  f"slow: {[l['message'] for l in slow]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
