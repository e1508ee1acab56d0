#!/usr/bin/env python3
"""Law 2 over backends, and law 1 in each: the same layouts with ranks as threads and as MPI processes give the same hex
losses and norms, the same validation loss and the same exported bytes, whatever the bucket size; and every rank's ledger
(with the memory that messages are staged in) and traffic are what the plan predicted. Replicas that are summed by another
algorithm have the bits of ordered where they are two, and lie near its losses where they are more.

    mpi_curves.py PROGRAM MPIRUN
"""

import hashlib
import json
import os
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
    (2, "--layout.dp 2 --train.precision bf16"),
    (2, "--layout.dp 2 --layout.zero 3 --layout.reduce step --train.precision bf16"),
    (4, "--layout.tp 2 --layout.pp 2 --train.precision bf16 --train.fp32_gradients true"),
    (3, "--layout.dp 3 --train.precision fp16"),
]
# Cases that law 2 puts in one class: buckets, schedules and stages, or ZeRO stages alone differ.
SAME_BITS = {1: 0, 2: 0, 9: 8, 10: 8, 11: 0, 12: 0, 13: 0, 15: 14, 19: 18}
ALGORITHMS = [  # replicas, layout.all_reduce
    (2, "ring"),
    (2, "library"),
    (3, "ring"),
    (3, "recursive-doubling"),
    (3, "hierarchical"),
    (3, "library"),
    (4, "ring"),
    (4, "recursive-doubling"),
    (4, "hierarchical"),
]


def run(command: list[str], out: pathlib.Path, launcher: str = "", hosts: list[str] = []) -> tuple[list[str], str]:
    command = command + ["--out", str(out), "--overwrite", "--json"]
    if hosts:
        command = mpirun.on_hosts(launcher, command, hosts)
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240, env=mpirun.environment())
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    outcome = json.loads(done.stdout)
    if "--layout.pp" not in command:  # stages have boundaries
        staged = "library" not in command and (out.name == "mpi" or "--layout.all_reduce" in command)
        assert (outcome["counted"]["communication_buffers_bytes"] > 0) == staged, outcome["counted"]
    for rank in outcome["ranks"]:
        assert rank["ledger_fault"] == "" and rank["traffic_fault"] == "", rank
        assert rank["predicted_sent_bytes"] == rank["counted_sent_bytes"] > 0, rank
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == STEPS
    curve = [line["loss_hex"] + " " + line["grad_norm_hex"] + " " + line.get("validation_loss_hex", "") for line in lines]
    return curve, hashlib.sha256((out / "model" / "model.safetensors").read_bytes()).hexdigest()


def near(curve: list[str], other: list[str]) -> bool:
    losses = [[float.fromhex(line.split()[0]) for line in lines] for lines in (curve, other)]
    return all(abs(a - b) <= 2e-6 * abs(b) for a, b in zip(*losses))


def compare_algorithms(launcher: str, folder: pathlib.Path, train: list[str]) -> int:
    failures = 0
    ordered = {}
    for replicas, algorithm in ALGORITHMS:
        on_mpi = mpirun.command(launcher, replicas)
        layout = train + ["--layout.dp", str(replicas)]
        if replicas not in ordered:
            ordered[replicas] = run(layout, folder / "threads")
        layout += ["--layout.all_reduce", algorithm]
        result = run(on_mpi + layout, folder / "mpi")
        again = run(on_mpi + layout, folder / "mpi") if algorithm == "library" else run(layout, folder / "threads")
        well = result == again and near(result[0], ordered[replicas][0])
        well = well and (replicas > 2 or result == ordered[replicas])
        failures += not well
        print(f"{replicas} replicas, {algorithm}: {'well' if well else 'WRONG'}, last {result[0][-1]}", flush=True)
    layout = train + ["--layout.dp", "4", "--layout.all_reduce", "hierarchical"]
    for hosts in (["a", "a", "b", "b"], ["a", "b", "a", "b"]):
        result = run(layout, folder / "mpi", launcher, hosts)
        well = near(result[0], ordered[4][0])
        failures += not well
        print(f"hierarchical on {hosts}: {'well' if well else 'WRONG'}, last {result[0][-1]}", flush=True)
    return failures


def check_dry_run(train: list[str]) -> None:
    """Under a launcher the ledger that --dry-run prints has the staging memory."""
    buffers = []
    for variables in ({}, {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}):
        done = subprocess.run(train + ["--layout.dp", "2", "--dry-run", "--json"], check=True, capture_output=True,
                              text=True, env=dict(os.environ, **variables))
        buffers.append(json.loads(done.stdout)["predicted"]["communication_buffers_bytes"])
    assert buffers[0] == 0 < buffers[1], buffers


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
            train = [program, "train", str(folder / "run.toml"), "--model.config", str(folder / family)]
            check_dry_run(train)
            failures += compare_algorithms(launcher, folder, train)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
