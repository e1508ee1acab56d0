#!/usr/bin/env python3
"""Real runs, half of them with a rank that is slowed down from some step on: it is named, and nobody else ever is.

    straggler_runs.py PROGRAM MPIRUN [PAIRS]
"""

import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import runs  # noqa: E402

# Layout, who is slow, how much; ranks of one stage but for the last, where a rank has its own first steps alone. Batches
# for steps of about half a second, so that each is judged by itself.
CASES = [("--layout.dp 2 --supervise.launcher mpirun --train.global_batch 1600", 1, 1.5),
         ("--layout.tp 2 --supervise.launcher mpirun --train.global_batch 800", 0, 1.5),
         ("--layout.dp 2 --train.global_batch 1600", 0, 1.5),
         ("--layout.tp 2 --train.global_batch 800", 1, 2),
         ("--layout.pp 2 --supervise.launcher mpirun --train.global_batch 1600", 1, 2)]
STEPS, SLOW_FROM, WITHIN = 65, 40, 20


def named(program: str, folder: pathlib.Path, name: str, options: str) -> tuple[list[dict], float]:
    """Who is, and the middle step's seconds."""
    run = runs.Run(program, folder, name, f"{options} --train.steps {STEPS} --checkpoint.interval 1000")
    if run.finish() != 0:
        raise runs.Broken(run.printed())
    return run.incidents(), statistics.median(line["step_s"] for line in run.metrics()[:SLOW_FROM])


def main() -> int:
    program, _ = sys.argv[1:3]
    pairs = int(sys.argv[3]) if len(sys.argv) > 3 else len(CASES)
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        runs.make_data(program, folder, STEPS)
        for number, (layout, rank, factor) in enumerate(CASES[:pairs]):
            clean, step_s = named(program, folder, f"clean{number}", layout)
            slow, _ = named(program, folder, f"slow{number}",
                            f"{layout} --inject slow:rank={rank},step={SLOW_FROM},factor={factor}")
            well = not clean and [line["ranks"] for line in slow] == [[rank]] and slow[0]["kind"] == "slow"
            well = well and SLOW_FROM < slow[0]["step"] <= SLOW_FROM + WITHIN + 1
            failed += not well
            print(f"{layout}, rank {rank} x {factor}, steps of {step_s:.2f} s: {'well' if well else 'WRONG'}; "
                  f"clean: {[l['message'] for l in clean]}; "
                  f"slow: {[l['message'] for l in slow]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
