#!/usr/bin/env python3
"""What saving costs, beside what the machine can do: a snapshot's stall against a plain copy of as many bytes, the write
against dd with fsync on the same disk, an asynchronous save against a synchronous one, and training steps while a save is
written against steps while none is. Everything is measured in one run; figures are medians.

    checkpoint.py BENCH_CHECKPOINT TRIREME MODEL_CONFIG TOKENS DIRECTORY [--rounds 5] [--steps 24]

TOKENS: a token file that `trireme data tokenize` wrote. DIRECTORY: on the disk in question; takes five times the state.
"""

import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import time


def dd(directory: pathlib.Path, size: int) -> float:
    path = directory / "dd.bin"
    begin = time.monotonic()
    subprocess.run(["dd", "if=/dev/zero", f"of={path}", "bs=4M", f"count={-(-size // (4 << 20))}", "conv=fsync"], check=True,
                   stderr=subprocess.DEVNULL)
    took = time.monotonic() - begin
    path.unlink()
    return took


def train(options: argparse.Namespace, out: pathlib.Path, more: list[str]) -> tuple[list[dict], list[float]]:
    """The lines of metrics.jsonl, and how long each save took until it was durable."""
    shutil.rmtree(out, ignore_errors=True)
    command = [options.trireme, "train", str(options.run), "--out", str(out), "--train.steps", str(options.steps), *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    scale = {"ms": 1e-3, "s": 1.0, "min": 60.0}
    saves = [float(number) * scale[unit] for number, unit in re.findall(r"is durable: .* in ([\d.]+) (ms|s|min)", done.stderr)]
    shutil.rmtree(out)
    return lines, saves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bench", "trireme", "config", "tokens"):
        parser.add_argument(name)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    options.run = options.directory / "run.toml"
    options.run.write_text(f"[model]\nconfig = '{options.config}'\n[data]\ntrain = '{options.tokens}'\n[train]\nsteps = 1\n"
                           "threads = 1\nsequence = 256\nglobal_batch = 2\nmicro_batch = 2\n[checkpoint]\nkeep_last = 1\n")
    alone = json.loads(subprocess.run([options.bench, options.config, str(options.directory), str(options.rounds)],
                                      check=True, capture_output=True, text=True).stdout)
    size = alone["bytes"]
    median = {key: statistics.median(values) for key, values in alone.items() if key != "bytes"}
    disk = statistics.median(dd(options.directory, size) for _ in range(options.rounds))
    print(f"{size / 1e9:.2f} GB")
    print(f"copy {median['copy_s']:.3f} s, stall of an asynchronous save {median['stall_s']:.3f} s: "
          f"{median['stall_s'] / median['copy_s']:.2f} times the copy")
    print(f"synchronous save {median['synchronous_s']:.2f} s: {median['synchronous_s'] / median['stall_s']:.1f} times as long")
    wrote = median["write_s"] - median["stall_s"]
    print(f"write {size / wrote / 1e6:.0f} MB/s, dd with fsync {size / disk / 1e6:.0f} MB/s: {disk / wrote:.2f} of it")
    lines, saves = train(options, options.directory / "run", ["--checkpoint.interval", "6"])
    steps = lines[2:]  # the first ones touch all memory for the first time
    during = [line["step_s"] for line in steps if "save_stall_s" in line]
    normal = [line["step_s"] for line in steps if "save_stall_s" not in line and (line["step"] - 1) % 6 > 2]
    stalls = [line["save_stall_s"] for line in steps if "save_stall_s" in line]
    print(f"training: step {statistics.median(normal):.3f} s, the step after a save {statistics.median(during):.3f} s: "
          f"{statistics.median(during) / statistics.median(normal):.3f} times; stall {statistics.median(stalls):.3f} s, "
          f"durable after {statistics.median(saves):.2f} s")
    options.run.unlink()


if __name__ == "__main__":
    main()
