#!/usr/bin/env python3
"""`trireme bench step`: the kernels of a step, their limits, and what is left of the step's time; wrong ranks are refused.
A calibration that it writes gives the step back when `trireme plan` is asked for it.

    bench_step.py PROGRAM
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tiny_data  # noqa: E402


def calibrates(program: str, command: list[str], folder: pathlib.Path) -> None:
    cluster, constants = folder / "cluster.toml", folder / "constants.toml"
    subprocess.run([program, "bench", "machine", "--ranks", "1", "--out", str(cluster)], capture_output=True, check=True)
    write = command + ["--cluster", str(cluster), "--calibration", str(constants), "--json"]
    step_s = json.loads(subprocess.run(write, capture_output=True, text=True, check=True).stdout)["step_s"]
    plan = subprocess.run([program, "plan", str(folder / "llama"), "--cluster", str(cluster), "--calibration",
                           str(constants), "--precision", "fp32", "--batch", "4", "--sequence", "24", "--micro-batch",
                           "1", "--dp", "1", "--json"], capture_output=True, text=True, check=True)
    planned_s = json.loads(plan.stdout)["best"][0]["step_s"]
    print(f"step {1e3 * step_s:.2f} ms, planned {1e3 * planned_s:.2f} ms")
    # One that is as slow as no calibration may say, under sanitizers, is cut off, and one that is as fast, too.
    shares = re.findall(r"(?:gemm|attention|memory)_efficiency = ([\d.]+)", constants.read_text())
    cut_off = any(float(share) in (0.01, 1.0) for share in shares)
    assert len(shares) == 3 and (cut_off or 0.9 < planned_s / step_s < 1.1), constants.read_text()
    for wrong, words in [(write, "is there already"), (write[:-1] + ["--layout.dp", "2"], "is there already"),
                         (command + ["--calibration", str(folder / "new")], "--cluster"),
                         (command + ["--cluster", str(cluster)], "--cluster"),
                         (command + ["--layout.dp", "2", "--calibration", str(folder / "new")], "one rank")]:
        refused = subprocess.run(wrong, capture_output=True, text=True)
        assert refused.returncode == 2 and words in refused.stderr, refused.stderr


def main() -> int:
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tiny_data.make(program, folder, 5, 4, 1)
        command = [program, "bench", "step", str(folder / "run.toml"), "--model.config", str(folder / "llama"), "--out",
                   str(folder / "out")]
        for layout in ["", "--layout.dp 2", "--layout.pp 2 --rank 1", "--layout.tp 2 --train.precision bf16"]:
            done = subprocess.run(command + layout.split() + ["--json"], capture_output=True, text=True, check=True)
            profile = json.loads(done.stdout)
            kernels = profile["kernels"]
            taken = sum(kernel["time_s"] for kernel in kernels)
            assert 0 < taken + profile["waited_s"] <= profile["step_s"] * 1.001, profile
            assert all(0 < kernel["limit_s"] <= kernel["time_s"] and kernel["calls"] > 0 for kernel in kernels), kernels
            assert profile["mfu"] is None or 0 < profile["mfu"] <= 1, profile["mfu"]
            assert all(k["flops"] <= 1.0001 * k["time_s"] * profile["gemm_flops_per_s"] for k in kernels), profile
            assert profile["cache_bytes_per_s"] >= profile["copy_bytes_per_s"] > 0, profile
            assert {"gemm", "attention_forward", "attention_backward", "adamw"} <= {k["kernel"] for k in kernels}, kernels
            # The products of a step: three for each parameter that is multiplied with, and those of attention.
            products = sum(kernel["flops"] for kernel in kernels)
            assert layout or abs(products / profile["model_flops"] - 1) < 0.1, (products, profile["model_flops"])
            print(f"{layout or 'one rank'}: {len(kernels)} kernels, {100 * taken / profile['step_s']:.0f} % of the step")
        table = subprocess.run(command + ["--shapes"], capture_output=True, text=True, check=True).stdout
        assert "gemm NT 24 x 64 x 64" in table and "in no kernel" in table, table
        shares = [int(share) for share in re.findall(r"(\d+) % (?:flops|bytes|cache)$", table, re.M)]
        assert len(shares) > 10 and max(shares) <= 100, table
        assert not (folder / "out").exists(), "it writes a run directory"
        calibrates(program, command, folder)
        refused = subprocess.run(command + ["--rank", "1"], capture_output=True, text=True)
        assert refused.returncode == 2 and "--rank = 1" in refused.stderr, refused.stderr
    return 0


if __name__ == "__main__":
    sys.exit(main())
