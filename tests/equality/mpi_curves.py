#!/usr/bin/env python3
"""Law 2 over backends, and law 1 in each: the same layouts with ranks as threads and as MPI processes give the same hex
losses and norms, the same validation loss and the same exported bytes, whatever the bucket size; and every rank's ledger
and traffic are what the plan predicted.

    mpi_curves.py PROGRAM MPIRUN
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import mpirun  # noqa: E402
import tiny_data  # noqa: E402

STEPS = 6
CASES = [  # ranks, layout
    (2, "--layout.dp 2"),
    (2, "--layout.dp 2 --layout.bucket 40000"),
    (2, "--layout.dp 2 --layout.bucket 100000000 --layout.overlap false"),
    (3, "--layout.dp 3 --layout.bucket 40000"),
    (2, "--layout.tp 2 --layout.sequence_parallel true"),
    (4, "--layout.tp 4"),
    (4, "--layout.dp 2 --layout.tp 2"),
    (4, "--layout.dp 2 --layout.pp 2 --layout.schedule zb-h1"),
    (2, "--layout.pp 2 --layout.schedule interleaved --layout.interleave 2"),
    (4, "--layout.pp 4 --layout.schedule 1f1b"),
    (4, "--layout.pp 4 --layout.schedule gpipe"),
    (2, "--layout.dp 2 --layout.zero 1"),
    (2, "--layout.dp 2 --layout.zero 2 --layout.reduce step"),
    (2, "--layout.dp 2 --layout.zero 3 --layout.reduce step"),
    (3, "--layout.dp 3 --layout.zero 2"),
    (3, "--layout.dp 3 --layout.zero 3"),
    (4, "--layout.dp 2 --layout.tp 2 --layout.zero 3"),
    (4, "--layout.dp 2 --layout.pp 2 --layout.zero 3"),
]
# Cases that law 2 puts in one class: buckets, schedules and stages, or ZeRO stages alone differ.
SAME_BITS = {1: 0, 2: 0, 9: 8, 10: 8, 11: 0, 12: 0, 13: 0, 15: 14}


def run(command: list[str], out: pathlib.Path) -> tuple[list[str], str]:
    done = subprocess.run(command + ["--out", str(out), "--overwrite", "--json"], check=False, capture_output=True,
                          text=True, timeout=240, env=mpirun.environment())
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    for rank in json.loads(done.stdout)["ranks"]:
        assert rank["ledger_fault"] == "" and rank["traffic_fault"] == "", rank
        assert rank["predicted_sent_bytes"] == rank["counted_sent_bytes"] > 0, rank
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == STEPS
    curve = [line["loss_hex"] + " " + line["grad_norm_hex"] + " " + line.get("validation_loss_hex", "") for line in lines]
    return curve, hashlib.sha256((out / "model" / "model.safetensors").read_bytes()).hexdigest()


def main() -> int:
    program, launcher = sys.argv[1:]
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tiny_data.make(program, folder, STEPS, 12, 1)
        for family in tiny_data.MODELS:
            threads = []
            for number, (ranks, layout) in enumerate(CASES):
                train = [program, "train", str(folder / "run.toml"), "--model.config", str(folder / family)]
                train += layout.split()
                threads.append(run(train, folder / "threads"))
                same = run(mpirun.command(launcher, ranks) + train, folder / "mpi") == threads[number]
                same = same and threads[number] == threads[SAME_BITS.get(number, number)]
                failures += not same
                print(f"{family} {layout}: {'same' if same else 'DIFFERENT'}, last {threads[number][0][-1]}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
