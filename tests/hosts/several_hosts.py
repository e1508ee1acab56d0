#!/usr/bin/env python3
"""Two hosts of two ranks (network namespaces of this machine) with 1 Gbit/s between them: tensor parallelism inside a host
and data or pipeline parallelism across beats tensor parallelism across, and the planner, given such a cluster, ranks the
layouts in the same order. Exit code 77: this machine cannot make namespaces (which test runners take for skipped).

    several_hosts.py PROGRAM MPIRUN [--rounds N]
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import mpirun  # noqa: E402
import namespaces  # noqa: E402
import tiny_data  # noqa: E402

SKIPPED = 77
STEPS = 6
SEQUENCE, MICRO_BATCH, GLOBAL_BATCH = 128, 1, 16
MODEL = {"model_type": "llama", "vocab_size": 259, "max_position_embeddings": SEQUENCE, "hidden_size": 256,
         "intermediate_size": 768, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu"}
LAYOUTS = {
    "pp 2 across, tp 2 inside": {"tp": 2, "pp": 2},
    "dp 2 across, tp 2 inside": {"tp": 2, "dp": 2},
    "tp 4 across": {"tp": 4},
}
SLOWEST = "tp 4 across"


# Four ranks share two cores here; the links are as made (inside: shared memory, by MPI).
CLUSTER = """name = "two-hosts"
[hosts]
count = 2
devices = 2
cards = 1
[device]
name = "half a core"
memory = "8GB"
bf16 = "100 GFLOP/s"
fp32 = "100 GFLOP/s"
memory_bandwidth = "10 GB/s"
mtbf = "10000h"
[links.inside]
bandwidth = "2 GB/s"
latency = "20us"
[links.between]
bandwidth = "1Gb/s"
latency = "50us"
"""


def train(hosts: namespaces.Hosts, program: str, launcher: str, folder: pathlib.Path,
          degrees: dict[str, int]) -> tuple[list[float], int]:
    """Step times without the first, and the bytes that left the first host a step."""
    out = folder / "run"
    command = hosts.mpirun(launcher, 2)
    command += [program, "train", str(folder / "run.toml"), "--model.config", str(folder / "model"), "--out", str(out),
                "--overwrite", "--json", "--train.deadline", "60"]
    for name, degree in degrees.items():
        command += [f"--layout.{name}", str(degree)]
    if degrees["tp"] > 2:
        command.append("--allow-slow-tp")
    before = hosts.sent_bytes(0)
    done = subprocess.run(command, env=mpirun.environment(), capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    sent = (hosts.sent_bytes(0) - before) // STEPS
    outcome = json.loads(done.stdout)
    assert all(rank["ledger_fault"] == rank["traffic_fault"] == "" for rank in outcome["ranks"]), outcome["ranks"]
    assert len({rank["host"] for rank in outcome["ranks"]}) == 2, outcome["ranks"]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["step_s"] for line in lines[1:]], sent


def planned(program: str, folder: pathlib.Path, cluster: str, degrees: dict[str, int]) -> float:
    command = [program, "plan", str(folder / "model"), "--cluster", cluster, "--precision", "fp32", "--batch",
               str(GLOBAL_BATCH), "--sequence", str(SEQUENCE), "--micro-batch", str(MICRO_BATCH), "--recompute", "none",
               "--zero", "0", "--schedule", "1f1b", "--sequence-parallel", "off", "--top", "1", "--json"]
    for name in ["tp", "pp", "dp"]:
        command += [f"--{name}", str(degrees.get(name, 1))]
    if degrees["tp"] > 2:
        command.append("--allow-slow-tp")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)["best"][0]["step_s"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("mpirun")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            hosts = namespaces.Hosts(2, "1gbit", folder)
        except namespaces.Unavailable as lacking:
            print(f"skipped: no network namespaces here: {lacking}")
            return SKIPPED
        try:
            return compare(arguments, hosts, folder)
        finally:
            hosts.close()


def compare(arguments: argparse.Namespace, hosts: namespaces.Hosts, folder: pathlib.Path) -> int:
    tiny_data.make(arguments.program, folder, STEPS, GLOBAL_BATCH, MICRO_BATCH, sequence=SEQUENCE)
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(MODEL))
    times: dict[str, list[float]] = {name: [] for name in LAYOUTS}
    sent: dict[str, int] = {}
    (folder / "cluster.toml").write_text(CLUSTER)
    plan = {name: planned(arguments.program, folder, str(folder / "cluster.toml"), degrees)
            for name, degrees in LAYOUTS.items()}
    by_plan = sorted(plan, key=plan.get)
    # The shortest: others may be at work on this machine too, and that only adds. So a few more rounds may settle it.
    for done in range(1, 3 * arguments.rounds + 1):
        for name, degrees in LAYOUTS.items():
            steps, sent[name] = train(hosts, arguments.program, arguments.mpirun, folder, degrees)
            times[name] += steps
        measured = {name: min(steps) for name, steps in times.items()}
        by_measure = sorted(measured, key=measured.get)
        if done >= arguments.rounds and by_measure == by_plan:
            break
    print(f"{'layout':<26} {'measured':>10} {'planned':>10} {'left host 0 a step':>20}")
    for name in measured:
        print(f"{name:<26} {measured[name] * 1e3:>7.0f} ms {plan[name] * 1e3:>7.0f} ms {sent[name] / 1e6:>17.1f} MB")
    if by_measure[-1] != SLOWEST:
        print("tensor parallelism across hosts is not the slowest")
        return 1
    if by_measure != by_plan:
        print(f"order by measure: {by_measure}; by plan: {by_plan}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
