#!/usr/bin/env python3
"""Law 4, a process at a time: runs that save every second step are killed (SIGKILL) at random moments around and during
their saves, and started again, until they have done their last step. After each kill every checkpoint on the disk is
whole and none that was reported durable is missing; the next start goes on from the newest one, or, where none is,
begins anew by itself; and in the end losses, weights and moments are those of the run that nobody touched.

    kill_saves.py PROGRAM [MPIRUN] [--kills N] [--seed S]
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import mpirun  # noqa: E402
import tiny_data  # noqa: E402

STEPS, INTERVAL, KEPT = 24, 2, 2
LONGEST = 300  # seconds that a run may take
KILLS_A_CHAIN = 12
# Layouts of a row have the same bits: a chain of starts takes one or another of its row. "mpi": ranks as processes.
CLASSES = [
    ("llama", ["", "pp=2", "pp=4 schedule=zb-h1"]),
    ("llama", ["dp=2", "dp=2 zero=3 reduce=step", "dp=2 zero=1 pp=2", "dp=2 zero=2 reduce=step mpi"]),
    ("gpt2", ["tp=2", "tp=2 pp=2", "tp=2 mpi"]),
    ("gpt2", ["dp=3 zero=3", "dp=3 zero=2"]),
]
MOMENTS = ["time", "step", "save", "manifest", "commit"]  # what a kill waits for; it comes shortly after


def tiny(config: dict) -> dict:
    """Less of it: what takes time shall be the saves."""
    return config | {key: 16 for key in ("hidden_size", "n_embd", "intermediate_size") if key in config}


class Session:
    """A run as a child of its own session, in which all its ranks are."""

    def __init__(self, command: list[str], log: pathlib.Path):
        self.log, self.begun = log, time.monotonic()
        self.command = command
        with log.open("wb") as file:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=file,
                                          env=mpirun.environment(), start_new_session=True)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def members(self) -> list[int]:
        found = []
        for entry in os.listdir("/proc"):
            try:
                after_name = pathlib.Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except (OSError, ValueError):
                continue
            if entry.isdigit() and int(after_name[3]) == self.child.pid and after_name[0] not in "ZX":
                found.append(int(entry))
        return found

    def wait(self) -> int:
        try:
            return self.child.wait(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            raise AssertionError("a run hangs", self.command, self.text()) from None

    def kill(self, alone: bool) -> bool:
        """Whether it came before the end. alone: the run is one process."""
        if alone:  # its workers end with it
            self.child.kill()
            killed = time.monotonic()
            while len(self.members()) > 0:
                assert time.monotonic() - killed < 2, ("workers outlive their supervisor", self.members())
                time.sleep(0.002)
        else:
            while members := self.members():
                for process in members:
                    try:
                        os.kill(process, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
        return self.child.wait() == -signal.SIGKILL


class Chain:
    """One run's directory, started again and again."""

    def __init__(self, test: "Test", number: int):
        self.test, self.random = test, test.random
        self.kind = self.random.randrange(len(CLASSES))
        self.out = test.folder / f"chain-{number}"
        self.checkpoints = self.out / "checkpoints"
        self.reported = 0  # the newest step that a start called durable
        self.killed = 0

    def names(self, ending: str = "") -> list[str]:
        """Checkpoints by step, of them all that are or were complete, or that end so."""
        try:
            found = os.listdir(self.checkpoints)
        except FileNotFoundError:
            return []
        return sorted(name for name in found if name.endswith(ending) and (ending or "." not in name))

    def newest(self) -> int:
        names = self.names()
        return int(names[-1].removeprefix("step-")) if names else 0

    def start(self) -> Session:
        layouts = [layout for layout in CLASSES[self.kind][1] if self.test.launcher or "mpi" not in layout]
        self.layout = self.random.choice(layouts)
        self.background = self.random.random() < 0.6
        return self.test.start(self.kind, self.layout, self.background, self.out)

    def to_the_end(self) -> None:
        """Kills until it has had its share, then lets it run."""
        for _ in range(KILLS_A_CHAIN):
            expected = self.newest()
            run = self.start()
            killed = self.test.kills < self.test.wanted and self.strike(run)
            if not killed:
                self.finish(run, expected)
                return
            self.after_kill(run, expected)
        expected = self.newest()
        self.finish(self.start(), expected)

    def strike(self, run: Session) -> bool:
        moment, count = self.random.choice(MOMENTS), self.random.choice([1, 1, 2, 3])
        fine = self.random.random()
        at = run.begun + fine * self.test.duration if moment == "time" else None
        first, seen, partial = self.newest(), 0, False
        while run.child.poll() is None:
            now = time.monotonic()
            assert now < run.begun + LONGEST, ("a run hangs", run.command, run.text())
            if at is not None and now >= at:
                return run.kill("mpi" not in self.layout)
            if at is not None:
                time.sleep(min(at - now, 0.001))
                continue
            if moment == "step" and f"step {min(first + count, STEPS)}/" in run.text():
                at = now + fine * 0.01
            if moment == "save":
                there = bool(self.names(".partial"))
                seen += there and not partial
                partial = there
                if seen == count:
                    at = now + fine * self.test.save_duration
            if moment == "manifest" and any((self.checkpoints / name / "manifest.json").exists() for name in
                                            self.names(".partial")):
                at = now + fine * 0.005
            if moment == "commit" and self.newest() >= first + count * INTERVAL:
                at = now + fine * 0.003
            time.sleep(0.0002)
        return False

    def after_kill(self, run: Session, expected: int) -> None:
        self.killed += 1
        self.test.kills += 1
        text = run.text()
        self.check_start(text, expected)
        for step in re.findall(r"checkpoint of step (\d+) is durable", text):
            self.reported = max(self.reported, int(step))
        self.count_kill()
        assert self.newest() >= self.reported, (self.reported, self.names(), text)
        for name in self.names():
            self.test.check_whole(self.checkpoints / name)

    def count_kill(self) -> None:
        counts, partials = self.test.counts, self.names(".partial")
        counts["left a .partial"] += bool(partials)
        complete = self.newest()
        counts["  of a save"] += any(int(name[5:13]) > complete for name in partials)
        counts["    its manifest written"] += any(
            int(name[5:13]) > complete and (self.checkpoints / name / "manifest.json").exists()
            for name in partials)
        counts["  of a removal"] += any(int(name[5:13]) < complete for name in partials)
        counts["before the first checkpoint"] += complete == 0
        counts["complete but not yet reported"] += complete > self.reported
        counts["saves in the background"] += self.background
        counts["ranks as processes"] += "mpi" in self.layout

    def check_start(self, text: str, expected: int) -> None:
        """It went on from the newest checkpoint, or began anew where there was none; as far as it came to say so."""
        went_on = re.search(r"goes on from step (\d+)", text)
        first = re.search(r"^step (\d+)/", text, re.MULTILINE)
        assert "passed over" not in text and "aside" not in text, text
        if went_on:
            assert int(went_on.group(1)) == expected >= self.reported and expected > 0, (self.reported, expected, text)
        if first:
            assert int(first.group(1)) == expected + 1, (expected, text)
            assert went_on or expected == 0, text

    def finish(self, run: Session, expected: int) -> None:
        code = run.wait()
        text = run.text()
        assert code == 0, (code, self.layout, self.names(), text)
        self.check_start(text, expected)
        expected_lines, directory = self.test.unbroken[self.kind]
        assert curve(self.out) == expected_lines, f"the curve of {self.out} differs"
        assert self.names(".partial") == [] and self.newest() == STEPS and len(self.names()) == KEPT, self.names()
        assert not (self.out / ".unsaved").exists()
        self.test.check_whole(self.out)
        self.test.call("checkpoint", "diff", directory, self.out)
        exports = [run / "model" / "model.safetensors" for run in (directory, self.out)]
        assert exports[0].read_bytes() == exports[1].read_bytes(), "the exports differ"


def curve(directory: pathlib.Path) -> list[tuple]:
    """Each step once, in order."""
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1)), [line["step"] for line in lines]
    return [(line["loss_hex"], line["grad_norm_hex"], line.get("validation_loss_hex")) for line in lines]


class Test:
    def __init__(self, arguments: argparse.Namespace, folder: pathlib.Path):
        self.program, self.launcher, self.folder = arguments.program, arguments.mpirun, folder
        self.wanted, self.kills = arguments.kills, 0
        self.random = random.Random(arguments.seed)
        self.counts = dict.fromkeys(
            ["left a .partial", "  of a save", "    its manifest written", "  of a removal",
             "before the first checkpoint", "complete but not yet reported", "saves in the background",
             "ranks as processes"], 0)
        tiny_data.make(self.program, folder, STEPS, 12, 1, 8)
        for name, config in tiny_data.MODELS.items():
            (folder / name / "config.json").write_text(json.dumps(tiny(config)))
        self.unbroken, saves = [], []
        begun = time.monotonic()
        for kind, (_, layouts) in enumerate(CLASSES):
            out = folder / f"unbroken-{kind}"
            run = self.start(kind, layouts[0], True, out)
            assert run.wait() == 0, run.text()
            self.unbroken.append((curve(out), out))
            saves += re.findall(r"is durable: .* in ([\d.]+) (ms|s)", run.text())
        self.duration = (time.monotonic() - begun) / len(CLASSES)
        times = sorted(float(value) * (0.001 if unit == "ms" else 1) for value, unit in saves)
        self.save_duration = times[len(times) // 2]
        print(f"a run takes {self.duration:.2f} s, a save {self.save_duration * 1000:.0f} ms", flush=True)

    def start(self, *how: object) -> Session:
        self.running = Session(self.command(*how), self.folder / "log")
        return self.running

    def command(self, kind: int, layout: str, background: bool, out: pathlib.Path) -> list[str]:
        command = [self.program, "train", self.folder / "run.toml", "--model.config", self.folder / CLASSES[kind][0],
                   "--train.log_interval", "1",
                   "--out", out, "--checkpoint.interval", INTERVAL, "--checkpoint.keep_last", KEPT,
                   "--checkpoint.async", "true" if background else "false"]
        ranks = 1
        for word in layout.replace("mpi", "").split():
            key, value = word.split("=")
            command += [f"--layout.{key}", value]
            ranks *= int(value) if key in ("dp", "tp", "pp") else 1
        return (mpirun.command(self.launcher, ranks) if "mpi" in layout else []) + [str(word) for word in command]

    def call(self, *words: object) -> str:
        done = subprocess.run([self.program, *map(str, words)], check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (words, done)
        return done.stdout

    def check_whole(self, path: pathlib.Path) -> None:
        self.call("checkpoint", "verify", path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("mpirun", nargs="?", default="")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        test = Test(arguments, pathlib.Path(name))
        chains = 0
        try:
            while test.kills < test.wanted:
                assert chains < test.wanted + 20, "runs end before they are killed"
                chain = Chain(test, chains)
                chain.to_the_end()
                chains += 1
                print(f"seed {arguments.seed}, run {chains}: killed {chain.killed} times, {test.kills} in all",
                      flush=True)
        finally:
            test.running.kill(False)
    print(f"{test.kills} kills of {chains} runs in {time.monotonic() - begun:.0f} s: no unusable state, no step lost "
          "that was reported durable, and each run has the bits of the one that nobody touched")
    for what, count in test.counts.items():
        print(f"  {count:5d} {what}")


if __name__ == "__main__":
    main()
