#!/usr/bin/env python3
"""`trireme bench machine`: rates above zero, and a cluster file that `trireme plan` plans with; nothing is overwritten.

    bench_machine.py PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tiny_data  # noqa: E402


def main() -> int:
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cluster = folder / "cluster.toml"
        command = [program, "bench", "machine", "--ranks", "2", "--out", str(cluster)]
        done = subprocess.run(command + ["--json"], capture_output=True, text=True, check=True)
        rates = json.loads(done.stdout)
        assert all(rates[key] > 0 for key in ["fp32_flops_per_s", "bf16_flops_per_s", "copy_bytes_per_s",
                                              "all_reduce_bytes_per_s", "all_reduce_latency_s"]), rates
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(json.dumps(tiny_data.MODELS["gpt2"]))
        plan = [program, "plan", str(folder / "model"), "--cluster", str(cluster), "--precision", "fp32", "--batch", "8",
                "--sequence", "32", "--json"]
        best = json.loads(subprocess.run(plan, capture_output=True, text=True, check=True).stdout)["best"]
        assert best[0]["step_s"] > 0, best
        again = subprocess.run(command, capture_output=True, text=True)
        assert again.returncode == 2 and "is there already" in again.stderr, again.stderr
        wrong = subprocess.run(command[:3] + ["--threads", "100000"], capture_output=True, text=True)
        assert wrong.returncode == 2 and "--threads = 100000" in wrong.stderr, wrong.stderr
        print(f"{rates['fp32_flops_per_s'] / 1e9:.1f} GFLOP/s, {rates['copy_bytes_per_s'] / 1e9:.1f} GB/s a rank")
    return 0


if __name__ == "__main__":
    sys.exit(main())
