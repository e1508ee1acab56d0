#!/usr/bin/env python3
"""Any layout goes on from what any other saved. Each pair trains 40 steps on its source, loads step 20 on its target
and trains the other 20 there. Where law 2 promises the same bits (ZeRO stage, stages, schedule and backend differ;
replicas, tensor degree and layout.reduce are the same) losses, norms, the validation loss and the last checkpoint are
those of the unbroken run. Elsewhere the target loads the source's last step and saves what it loaded: weights and
both moments have the same bits; and the losses of its 20 steps lie near the unbroken run's.

    resume_matrix.py PROGRAM [MPIRUN] [--all]       --all: each of 19 layouts to each
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import mpirun  # noqa: E402
import tiny_data  # noqa: E402

STEPS, SAVED = 40, 20
NEAR = 2e-6  # relative, as tests/equality has it for layouts that sum in another order
# Of layouts: "mpi" runs the ranks as processes, "sync" saves while training waits; the rest are degrees and keys.
PAIRS = [
    ("llama", "", "dp=2 zero=1"),
    ("llama", "dp=2", ""),
    ("llama", "dp=2", "dp=2 zero=3 reduce=step"),
    ("llama", "dp=2 zero=3 reduce=step", "dp=2 zero=1 pp=2"),
    ("llama", "dp=2 zero=3", "dp=2 zero=2 sync"),
    ("llama", "dp=3 zero=3", "dp=5 zero=2"),
    ("llama", "dp=5 zero=2", "dp=7 zero=1"),
    ("llama", "dp=7 zero=1 sync", "dp=3 zero=3"),
    ("llama", "dp=4 zero=3", "dp=3 zero=3"),
    ("llama", "tp=2", "tp=4 sequence_parallel=true"),
    ("llama", "tp=8", "tp=2 pp=2"),
    ("llama", "tp=4", ""),
    ("llama", "pp=4 schedule=1f1b", "pp=2 schedule=interleaved interleave=2"),
    ("llama", "pp=2 schedule=interleaved interleave=2", "pp=4 schedule=zb-h1"),
    ("llama", "pp=2 schedule=zb-h1 sync", ""),
    ("llama", "dp=2 tp=2 pp=2", "dp=8 zero=1"),
    ("llama", "dp=8 zero=3", "tp=8"),
    ("llama", "dp=2", "dp=2 zero=2 reduce=step mpi"),
    ("llama", "dp=2 zero=2 mpi", "dp=2 zero=3"),
    ("gpt2", "", "pp=2 schedule=gpipe"),
    ("gpt2", "pp=4 schedule=zb-h1", "tp=4"),
    ("gpt2", "dp=2 pp=2 zero=3 reduce=step", "dp=2 zero=0"),
    ("gpt2", "tp=2 sequence_parallel=true", "dp=4 zero=2"),
    ("gpt2", "dp=3", "tp=8"),
    ("gpt2", "dp=8", "dp=2 tp=2 zero=3 sync"),
    ("gpt2", "tp=2 pp=2 mpi", "dp=2 zero=1 sync"),
]
LAYOUTS = ["", "dp=2", "dp=2 zero=1 pp=2", "dp=2 zero=3", "dp=2 zero=3 reduce=step sync", "dp=3 zero=3", "dp=4 zero=2",
           "dp=5 zero=1", "dp=7", "dp=8 zero=3", "tp=2", "tp=4 sequence_parallel=true", "tp=8 sync", "tp=2 pp=2 mpi",
           "dp=2 tp=2 pp=2 zero=3", "pp=2 schedule=zb-h1", "pp=2 schedule=interleaved interleave=2", "pp=4",
           "dp=2 zero=2 mpi"]


def keys(layout: str) -> dict[str, str]:
    found = {"dp": "1", "tp": "1", "pp": "1", "zero": "0"}
    return found | dict(word.split("=") for word in layout.split() if "=" in word)


def ranks(layout: str) -> int:
    return math.prod(int(keys(layout)[degree]) for degree in ("dp", "tp", "pp"))


def bits_class(layout: str) -> tuple:
    """Layouts of one class have the same bits."""
    found = keys(layout)
    reduce = found.get("reduce", "microbatch" if int(found["zero"]) >= 2 else "step")
    return found["dp"], found["tp"], found.get("sequence_parallel"), reduce if found["dp"] != "1" else ""


def batch_of(*layouts: str) -> int:
    """Sequences that all of them can share out, some for each stage."""
    base = math.lcm(*(int(keys(layout)["dp"]) * int(keys(layout)["pp"]) for layout in layouts))
    return base * max(1, -(-8 // base))


class Matrix:
    def __init__(self, program: str, launcher: str, folder: pathlib.Path):
        self.program, self.launcher, self.folder = program, launcher, folder
        self.sources: dict[tuple, pathlib.Path] = {}
        self.runs, self.worst = 0, 0.0
        tiny_data.make(program, folder, STEPS, 8, 1, 16)

    def train(self, model: str, layout: str, batch: int, *more: object) -> pathlib.Path:
        """The run's directory."""
        out = self.folder / f"run-{self.runs}"
        self.runs += 1
        command = [self.program, "train", self.folder / "run.toml", "--model.config", self.folder / model,
                   "--train.global_batch", batch, "--checkpoint.interval", SAVED, "--out", out, "--json", *more]
        command += ["--checkpoint.async", "false" if "sync" in layout.split() else "true"]
        for key, value in keys(layout).items():
            command += [f"--layout.{key}", value]
        words = [str(word) for word in command]
        if "mpi" in layout.split():
            words = mpirun.command(self.launcher, ranks(layout)) + words
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=240, env=mpirun.environment())
        assert done.returncode == 0, (" ".join(words), done.returncode, done.stderr)
        for rank in json.loads(done.stdout)["ranks"]:
            assert rank["ledger_fault"] == rank["traffic_fault"] == "", rank
        return out

    def source(self, model: str, layout: str, batch: int) -> pathlib.Path:
        known = (model, layout, batch)
        if known not in self.sources:
            self.sources[known] = self.train(model, layout, batch)
            steps = [line["step"] for line in metrics(self.sources[known])]
            assert steps == list(range(1, STEPS + 1)), steps
        return self.sources[known]

    def identical(self, a: pathlib.Path, b: pathlib.Path) -> bool:
        done = subprocess.run([self.program, "checkpoint", "diff", a, b, "--json"], check=False, capture_output=True,
                              text=True, timeout=60)
        assert done.returncode in (0, 1), done
        outcome = json.loads(done.stdout)
        assert outcome["a_step"] == outcome["b_step"] == STEPS and outcome["elements"] > 0, outcome
        return outcome["identical"] and outcome["differing_elements"] == 0

    def check(self, model: str, source: str, target: str) -> str:
        """What is wrong, or nothing."""
        batch = batch_of(source, target)
        unbroken = self.source(model, source, batch)
        resumed = self.train(model, target, batch, "--resume", saved(unbroken, SAVED))
        expected, found = metrics(unbroken)[SAVED:], metrics(resumed)
        assert [line["step"] for line in found] == list(range(SAVED + 1, STEPS + 1)), found
        if bits_class(source) == bits_class(target):
            if not same_curve(expected, found):
                return "losses or norms differ"
            same = self.identical(saved(unbroken, STEPS), saved(resumed, STEPS))
            return "" if same else "the last checkpoints differ"
        loaded = self.train(model, target, batch, "--resume", saved(unbroken, STEPS))
        assert metrics(loaded) == [], "a run with nothing left to do trained"
        if not self.identical(saved(unbroken, STEPS), saved(loaded, STEPS)):
            return "the loaded state is not the saved one"
        exports = [run / "model" / "model.safetensors" for run in (unbroken, loaded)]
        if exports[0].read_bytes() != exports[1].read_bytes():
            return "the exports differ"
        apart = max(abs(a["loss"] - b["loss"]) / abs(a["loss"]) for a, b in zip(expected, found))
        self.worst = max(self.worst, apart)
        return "" if apart <= NEAR else f"losses are {apart:.2g} apart"


def saved(run: pathlib.Path, step: int) -> pathlib.Path:
    return run / "checkpoints" / f"step-{step:08}"


def metrics(run: pathlib.Path) -> list[dict]:
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def same_curve(expected: list[dict], found: list[dict]) -> bool:
    fields = ("step", "tokens", "learning_rate", "loss_hex", "grad_norm_hex", "validation_loss_hex")
    return [[line.get(field) for field in fields] for line in expected] == [
        [line.get(field) for field in fields] for line in found]


def main() -> int:
    arguments = [word for word in sys.argv[1:] if word != "--all"]
    program, launcher = (arguments + [""])[:2]
    pairs = PAIRS
    if "--all" in sys.argv:
        numbers = range(len(LAYOUTS))
        pairs = [("llama" if (a + b) % 2 else "gpt2", LAYOUTS[a], LAYOUTS[b])
                 for a in numbers for b in numbers if a != b]
    begun, failures, exact = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as name:
        matrix = Matrix(program, launcher, pathlib.Path(name))
        for model, source, target in pairs:
            if not launcher and "mpi" in (source + " " + target).split():
                continue
            before = time.monotonic()
            fault = matrix.check(model, source, target)
            failures += fault != ""
            same = bits_class(source) == bits_class(target)
            exact += same
            print(f"{model}: {source or 'one rank'} -> {target or 'one rank'}: "
                  f"{fault.upper() or ('same bits throughout' if same else 'same state, near losses')} "
                  f"({time.monotonic() - before:.1f} s)", flush=True)
        print(f"{len(pairs)} pairs, {failures} failed; {exact} with the same bits throughout; other losses at most "
              f"{matrix.worst:.2g} apart; {matrix.runs} runs in {time.monotonic() - begun:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
