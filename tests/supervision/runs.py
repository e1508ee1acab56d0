"""Supervised runs of a tiny model, for tests that break them: what they left, and whether it is what an unbroken one gives."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tiny_data  # noqa: E402

SECONDS = 90  # of a run as a whole


class Broken(Exception):
    """What a run did that it must not."""


def expect(condition: object, text: str) -> None:
    if not condition:
        raise Broken(text)


def processes_of(folder: pathlib.Path) -> dict[int, str]:
    """Living processes that have this folder in their command line."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if str(folder) in words and state != "Z":
            found[int(entry.name)] = words
    return found


def lines(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Run:
    """One run directory and the command that trains there."""

    def __init__(self, program: str, folder: pathlib.Path, name: str, options: str, model: str = "llama"):
        self.out = folder / name
        self.log = folder / f"{name}.log"
        self.command = [program, "train", str(folder / "run.toml"), "--model.config", str(folder / model), "--out",
                        str(self.out), *options.split()]
        self.process: subprocess.Popen | None = None

    def start(self, extra: str = "", prefix: list[str] = []) -> "Run":
        with open(self.log, "a") as sink:
            self.process = subprocess.Popen(prefix + self.command + extra.split(), stdin=subprocess.DEVNULL,
                                            stdout=sink, stderr=subprocess.STDOUT)
        return self

    def wait(self, seconds: float = SECONDS) -> int:
        assert self.process is not None
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Broken(f"not ended after {seconds} s")

    def finish(self, extra: str = "", prefix: list[str] = []) -> int:
        return self.start(extra, prefix).wait()

    def until(self, condition, what: str, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert self.process is not None
            expect(self.process.poll() is None, f"the run ended before {what}")
            expect(time.monotonic() < end, f"no {what} within {seconds} s")
            time.sleep(0.01)

    def until_step(self, step: int) -> None:
        self.until(lambda: any(line["step"] >= step for line in self.metrics()), f"step {step}")

    def metrics(self) -> list[dict]:
        try:
            return lines(self.out / "metrics.jsonl")
        except json.JSONDecodeError:  # a line is being written
            return []

    def incidents(self, event: str = "failure") -> list[dict]:
        return [line for line in lines(self.out / "incidents.jsonl") if line["event"] == event]

    def curve(self) -> list[tuple]:
        return [(line["step"], line["loss_hex"], line["grad_norm_hex"]) for line in self.metrics()]

    def kill_supervisor(self, within: float) -> float:
        """And nothing of it is left after that many seconds; after how many."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        killed = time.monotonic()
        while self.workers() and time.monotonic() - killed < 2 * within:
            time.sleep(0.02)
        took = time.monotonic() - killed
        expect(took < within, f"workers ended after {took:.2f} s")
        return took

    def printed(self) -> str:
        return self.log.read_text()

    def workers(self) -> dict[int, str]:
        return {process: words for process, words in processes_of(self.out).items() if " worker " in words}

    def rank_process(self, rank: int) -> int:
        """The process of a rank that mpirun has started, not its keeper."""
        for process in self.workers():
            try:
                variables = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
                parent = int(pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, ValueError):
                continue
            if f"OMPI_COMM_WORLD_RANK={rank}".encode() in variables and parent in self.workers():
                return process
        raise Broken(f"no process of rank {rank}")

    def no_process_left(self, seconds: float = 2.0) -> None:
        end = time.monotonic() + seconds
        while left := processes_of(self.out):
            if time.monotonic() > end:
                for process in left:
                    os.kill(process, signal.SIGKILL)
                raise Broken(f"processes left after {seconds} s: {left}")
            time.sleep(0.02)
        launchers = [path.name for path in self.out.glob(".launcher-*")]
        expect(not launchers, f"left in the run directory: {launchers}")

    def nothing_lost(self) -> None:
        """Every start but the first went on from a checkpoint, with the step after it; no step is missing."""
        steps = [line["step"] for line in self.metrics()]
        expect(steps == list(range(1, len(steps) + 1)), f"steps {steps}")


def named(cases: list) -> list[tuple]:
    """Functions with their names, as a command line has them."""
    return [(case.__name__.replace("_", "-"), case) for case in cases]


def run_cases(folder: pathlib.Path, cases: list[tuple], figures: list[str] = []) -> int:
    """Each with its name; what one gives back is told. A case that fails shows its run's log and incidents. Exit code."""
    failed = 0
    for name, case in cases:
        begun = time.monotonic()
        try:
            told = case()
            print(f"{name}: well, {time.monotonic() - begun:.1f} s{': ' + told if told else ''}", flush=True)
        except (Broken, IndexError, KeyError, ValueError, OSError) as broken:
            failed += 1
            print(f"{name}: {broken!r}", flush=True)
            for path in [folder / f"{name}.log", folder / name / "incidents.jsonl"]:
                if path.exists():
                    print(path.read_text()[-6000:], flush=True)
    for figure in figures:
        print(figure)
    print(f"{len(cases) - failed} of {len(cases)} cases well")
    return 1 if failed else 0


def make_data(program: str, folder: pathlib.Path, steps: int, global_batch: int = 24) -> None:
    tiny_data.make(program, folder, steps, global_batch, 1)
