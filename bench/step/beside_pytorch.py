#!/usr/bin/env python3
"""Training steps beside PyTorch's, in turns on the same cores: the ratio of tokens a second, and the share of the rate of
products that PyTorch's oneDNN or MKL reaches in the same run.

    beside_pytorch.py TRIREME PYTHON [--model byte|124m] [--precision fp32|bf16] [--threads 1] [--pairs 5] [--rounds 2]
                      [--modes eager,compile] [--preload LIBRARY]

PYTHON: an interpreter that has torch. The faster one of the modes is the peer. --preload: a library for PyTorch's process
alone, such as one that lets MKL take AVX-512 on a CPU that is not its maker's.
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

STEPS = {"byte": 2, "124m": 1}  # of a turn


class Peer:
    def __init__(self, options: argparse.Namespace, folder: pathlib.Path, mode: str):
        _, sequence, batch = small_runs.MODELS[options.model]
        environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
        if options.preload:
            environment["LD_PRELOAD"] = options.preload
        script = pathlib.Path(__file__).resolve().parent / "pytorch_gpt2.py"
        self.mode = mode
        self.process = subprocess.Popen(
            [options.python, str(script), str(folder / "model" / "config.json"), str(sequence), str(batch),
             options.precision, mode, str(options.threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=environment)
        if self.process.stdout.readline().strip() != "ready":
            sys.exit(f"{options.python} {script} in {mode} mode ended with {self.process.wait()}")

    def ask(self, words: object) -> float:
        self.process.stdin.write(f"{words}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def fastest(options: argparse.Namespace, folder: pathlib.Path) -> Peer:
    best, best_rate = None, 0.0
    for mode in options.modes.split(","):
        peer = Peer(options, folder, mode)
        rate = max(peer.ask(1), peer.ask(1))
        print(f"PyTorch, {mode}: {rate:.1f} tokens/s", flush=True)
        if rate > best_rate:
            best, best_rate, peer = peer, rate, best
        if peer is not None:
            peer.end()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("python")
    parser.add_argument("--model", choices=small_runs.MODELS, default="byte")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--modes", default="eager,compile")
    parser.add_argument("--preload", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        command = [options.program, "bench", "step", str(small_runs.make(options.program, folder, options.model)),
                   "--train.threads", str(options.threads), "--train.precision", options.precision, "--steps",
                   str(STEPS[options.model]), "--json"]
        peer = fastest(options, folder)
        for number in range(1, options.rounds + 1):
            peaks, pairs = [peer.ask("peak")], []
            for _ in range(options.pairs):
                own = json.loads(small_runs.run(command))
                pairs.append((own["tokens_per_s"], peer.ask(STEPS[options.model]), own["model_flops"] / own["step_s"]))
            peaks.append(peer.ask("peak"))
            ratios = [own / other for own, other, _ in pairs]
            own, other, flops = (statistics.median(column) for column in zip(*pairs))
            print(f"{options.model}, {options.precision}, {options.threads} threads, round {number}: {own:.1f} tokens/s, "
                  f"PyTorch ({peer.mode}) {other:.1f}: {statistics.median(ratios):.3f} ({min(ratios):.3f} to "
                  f"{max(ratios):.3f}); {flops / 1e9 / max(peaks):.3f} of {max(peaks):.1f} GFLOP/s", flush=True)
        peer.end()


if __name__ == "__main__":
    main()
