#!/usr/bin/env python3
"""trireme drill on a tiny run: every fault that it plants is told as what it was, and ends as it should.

    drill.py PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import runs  # noqa: E402

DETECTED_AS = {"kill-backward": "died", "hang": "hung: rank 2", "nan": "failed", "flip": "died", "disk-full": "failed: rank 2",
               "crash-loop": "died", "preempt": "", "supervisor": "supervisor"}


def main() -> int:
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        runs.make_data(program, folder, 12)
        command = [program, "drill", str(folder / "run.toml"), "--model.config", str(folder / "llama"), "--layout.dp", "3",
                   "--out", str(folder / "drill")]
        done = subprocess.run(command + ["--faults", ",".join(DETECTED_AS), "--json"], capture_output=True, text=True,
                              timeout=300)
        print(done.stderr)
        rows = json.loads(done.stdout)["faults"]
        faults = []
        for row in rows:
            print({key: value for key, value in row.items() if key != "recovery"})
            if not row["detected_as"].startswith(DETECTED_AS[row["fault"]]):
                faults.append(f"{row['fault']} is told as {row['detected_as']!r}")
            if not row["exit_as_expected"] or not row.get("curve_equal", True):
                faults.append(f"{row['fault']} did not end as it should")
        if [row["fault"] for row in rows] != list(DETECTED_AS):
            faults.append("not the faults that were asked for")
        if done.returncode != 0:
            faults.append(f"exit code {done.returncode}")
        again = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if again.returncode != 2 or "is not empty" not in again.stderr:
            faults.append(f"into the same place again: {again.returncode} {again.stderr}")
        unknown = subprocess.run(command[:-1] + [str(folder / "other"), "--faults", "flood"], capture_output=True, text=True,
                                 timeout=60)
        if unknown.returncode != 2 or "flood" not in unknown.stderr:
            faults.append(f"an unknown fault: {unknown.returncode} {unknown.stderr}")
        for fault in faults:
            print("FAULT", fault)
        return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
