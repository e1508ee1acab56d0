#!/usr/bin/env python3
"""What does not fit ends with code 71, whichever command says so, and nothing is written; what fits does not.

    does_not_fit.py PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tiny_data  # noqa: E402

DOES_NOT_FIT = 71


def main() -> int:
    program = sys.argv[1]

    def ends(code: int, *arguments: str) -> None:
        done = subprocess.run([program, *arguments], capture_output=True, text=True)
        said = done.stdout + done.stderr
        assert done.returncode == code, (arguments, done.returncode, said)
        assert code == 0 or "fit" in said, (arguments, said)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tiny_data.make(program, folder, 5, 4, 1)
        model = ["--model.config", str(folder / "llama")]
        run = [str(folder / "run.toml"), *model]
        out = ["--out", str(folder / "out")]
        sizes = ["--layers", "80", "--hidden", "8192", "--heads", "64"]
        for as_json in [[], ["--json"]]:
            ends(DOES_NOT_FIT, "plan", "memory", "--params", "70B", "--ranks", "2", "--device-memory", "80GB", *as_json)
            ends(DOES_NOT_FIT, "plan", "memory", *sizes, "--device-memory", "80GB", *as_json)
            ends(DOES_NOT_FIT, "plan", "memory", *sizes, "--cluster", "h100:8", *as_json)
            ends(DOES_NOT_FIT, "plan", *sizes, "--cluster", "h100:1", "--batch", "8", *as_json)
            ends(DOES_NOT_FIT, "plan", "axes", *sizes, "--cluster", "h100:8", "--batch", "8", *as_json)
            ends(DOES_NOT_FIT, "train", *run, *out, "--dry-run", "--memory-limit", "10kB", *as_json)
        small = ["--train.memory_limit", "10kB"]
        for command in [["train"], ["bench", "step"], ["drill"]]:
            ends(DOES_NOT_FIT, *command, *run, *out, *small)
        ends(DOES_NOT_FIT, "train", *run, *out, *small, "--supervise.launcher", "none")
        ends(DOES_NOT_FIT, "verify", *run, *small)
        assert not (folder / "out").exists()

        # The limit is of the run's own layout: two ranks hold less each than the one that they are compared with.
        def needed(*layout: str) -> int:
            dry = [program, "train", *run, *out, *layout, "--dry-run", "--json"]
            ledger = json.loads(subprocess.run(dry, capture_output=True, text=True, check=True).stdout)["predicted"]
            return ledger["peak_sum_bytes"]

        cut = ["--layout.tp", "2"]
        between = (needed() + needed(*cut)) // 2
        done = subprocess.run([program, "verify", *run, *cut, "--train.memory_limit", f"{between}B", "--steps", "1"],
                              capture_output=True, text=True)
        assert done.returncode in (0, 1), done.stderr
        ends(DOES_NOT_FIT, "verify", *run, "--train.memory_limit", f"{between}B")
    return 0


if __name__ == "__main__":
    sys.exit(main())
