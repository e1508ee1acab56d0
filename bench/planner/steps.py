#!/usr/bin/env python3
"""Planned steps beside measured ones: layouts of 1, 2, 4 and 8 ranks of one small GPT-2 on this machine.

    bench/planner/steps.py TRIREME [--precision fp32] [--ranks 1,2,4,8] [--steps 5]

The constants come from one step on one rank, at a micro-batch of 4; the rates from `bench machine` with as many ranks as
the layout has. Ends with 1 if a layout of at most as many ranks as there are cores is planned more than 10 % off.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import small_runs  # noqa: E402

MODEL, CALIBRATED_AT, BOUND = "byte", 4, 0.1
_, SEQUENCE, BATCH = small_runs.MODELS[MODEL]

# Ranks, micro-batch, and what of the layout is not its default; the same words for `plan` and `bench step`.
LAYOUTS = [
    (1, 16, {}), (1, 8, {}), (1, 2, {}), (1, 4, {"recompute": "full"}), (1, 4, {"recompute": "selective"}),
    (2, 8, {"dp": 2}), (2, 4, {"dp": 2, "zero": 1}), (2, 8, {"dp": 2, "zero": 3}), (2, 16, {"tp": 2}),
    (2, 4, {"tp": 2, "sequence_parallel": "true"}), (2, 2, {"pp": 2, "schedule": "1f1b"}),
    (2, 4, {"pp": 2, "schedule": "gpipe"}),
    (4, 4, {"dp": 4}), (4, 4, {"dp": 4, "zero": 2}), (4, 8, {"dp": 2, "tp": 2}), (4, 2, {"pp": 4, "schedule": "1f1b"}),
    (4, 2, {"dp": 2, "pp": 2, "schedule": "1f1b"}),
    (8, 2, {"dp": 8}), (8, 4, {"dp": 4, "tp": 2}), (8, 2, {"dp": 2, "tp": 2, "pp": 2, "schedule": "1f1b"}),
]
DEFAULTS = {"dp": 1, "tp": 1, "pp": 1, "zero": 0, "recompute": "none", "sequence_parallel": "false"}


class Bench:
    def __init__(self, options: argparse.Namespace, folder: pathlib.Path):
        self.program, self.precision, self.steps, self.folder = options.program, options.precision, options.steps, folder
        self.clusters: dict[int, str] = {}
        self.run = str(small_runs.make(self.program, folder, MODEL))
        self.constants = str(folder / "constants.toml")
        self.measured(CALIBRATED_AT, {}, ["--cluster", self.cluster(1), "--calibration", self.constants])

    def cluster(self, ranks: int) -> str:
        if ranks not in self.clusters:
            self.clusters[ranks] = str(self.folder / f"cluster{ranks}.toml")
            small_runs.run([self.program, "bench", "machine", "--ranks", str(ranks), "--out", self.clusters[ranks]])
        return self.clusters[ranks]

    def measured(self, micro_batch: int, layout: dict, more: list[str]) -> float:
        words = [word for key, value in layout.items() for word in (f"--layout.{key}", str(value))]
        return json.loads(small_runs.run([self.program, "bench", "step", self.run, "--train.precision", self.precision,
                                          "--train.threads", "1", "--train.micro_batch", str(micro_batch), "--steps",
                                          str(self.steps), "--json", *words, *more]))["step_s"]

    def planned(self, ranks: int, micro_batch: int, layout: dict) -> float:
        def word(key: str, value: object) -> str:
            return {"true": "on", "false": "off"}.get(str(value), str(value)) if key == "sequence_parallel" else str(value)
        words = [text for key, value in {**DEFAULTS, **layout}.items()
                 for text in (f"--{key.replace('_', '-')}", word(key, value))]
        found = json.loads(small_runs.run([self.program, "plan", str(self.folder / "model"), "--cluster",
                                           self.cluster(ranks), "--calibration", self.constants, "--precision",
                                           self.precision, "--batch", str(BATCH), "--sequence", str(SEQUENCE),
                                           "--micro-batch", str(micro_batch), "--json", *words]))
        return found["best"][0]["step_s"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--ranks", default="1,2,4,8")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    wanted, off = [int(ranks) for ranks in options.ranks.split(",")], 0
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(options, pathlib.Path(name))
        print(pathlib.Path(bench.constants).read_text())
        for ranks, micro_batch, layout in LAYOUTS:
            if ranks not in wanted:
                continue
            measured, planned = bench.measured(micro_batch, layout, []), bench.planned(ranks, micro_batch, layout)
            judged = ranks <= len(os.sched_getaffinity(0))
            off += judged and abs(planned / measured - 1) > BOUND
            words = " ".join(f"{key} {value}" for key, value in layout.items())
            print(f"{ranks} ranks, micro-batch {micro_batch} {words}: planned {planned:.3f} s, measured {measured:.3f} s, "
                  f"{planned / measured:.3f}{'' if judged else ' (ranks share cores)'}", flush=True)
    print(f"{off} layouts off by more than {100 * BOUND:.0f} %")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
