#!/usr/bin/env python3
"""Memory of each rank while a checkpoint is loaded by other ranks than wrote it: the highest resident memory of its
process until the state is there, beside what its ledger has booked at that moment.

    load_memory.py TRIREME MPIRUN MODEL_CONFIG TOKENS DIRECTORY

Saves with 8 ranks as threads (dp 8, ZeRO 3), loads with 3 processes (dp 3, ZeRO 1 and 3). gpt2-medium takes 10 GiB.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "support"))
import mpirun  # noqa: E402

STATIC = ("weights", "gradients", "master_weights", "moments", "logits_and_loss", "token_batch", "communication_buffers",
          "checkpoint_staging", "workspace")


def ranks_of(launcher: int) -> list[int]:
    """Processes of trireme below mpirun, by their number."""
    children = subprocess.run(["pgrep", "-P", str(launcher)], capture_output=True, text=True).stdout.split()
    return sorted(int(pid) for pid in children)


def high_water(pid: int) -> int:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])


def file_pages(pid: int) -> int:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"RssFile:\s+(\d+)", status)[1])


def main() -> None:
    trireme, launcher, config, tokens, folder = sys.argv[1:]
    directory = pathlib.Path(folder)
    directory.mkdir(parents=True, exist_ok=True)
    run = directory / "run.toml"
    run.write_text(f"[model]\nconfig = '{config}'\n[data]\ntrain = '{tokens}'\n[train]\nsteps = 1\nthreads = 1\nsequence = 32\n"
                   "global_batch = 24\nmicro_batch = 1\n[optimizer]\nlearning_rate = 1e-4\n")
    train = [trireme, "train", str(run)]
    saved = directory / "saved"
    if not saved.exists():
        subprocess.run(train + ["--out", str(saved), "--layout.dp", "8", "--layout.zero", "3", "--checkpoint.async", "false"],
                       check=True)
    for zero in (1, 3):
        more = ["--layout.dp", "3", "--layout.zero", str(zero), "--checkpoint.async", "false", "--resume", str(saved),
                "--accept", "train.steps", "--train.steps", "2", "--out", str(directory / f"loaded{zero}"), "--overwrite"]
        environment = dict(mpirun.environment(), OMPI_COMM_WORLD_SIZE="3", OMPI_COMM_WORLD_RANK="0")
        dry = subprocess.run(train + more + ["--dry-run", "--json"], check=True, capture_output=True, text=True, env=environment)
        predicted = json.loads(dry.stdout)["predicted"]
        booked = sum(predicted[f"{name}_bytes"] for name in STATIC)
        child = subprocess.Popen(mpirun.command(launcher, 3) + train + more, stderr=subprocess.PIPE, text=True,
                                 env=mpirun.environment(), start_new_session=True)
        for line in child.stderr:
            if "goes on from" in line:
                print(line.strip())
                for pid in ranks_of(child.pid):
                    peak, files = high_water(pid), file_pages(pid)
                    print(f"dp 3, ZeRO {zero}: peak until loaded {peak / 1e6:.1f} MB, of it {files / 1e6:.1f} MB mapped files; "
                          f"booked {booked / 1e6:.1f} MB; beside it {(peak - files - booked) / 1e6:+.1f} MB")
                break
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


if __name__ == "__main__":
    main()
