#!/usr/bin/env python3
"""What goes wrong with ranks as processes is refused or named in time, with its exit code, and nobody is left behind; and a
memory limit is refused or kept.

    mpi_faults.py PROGRAM MPIRUN
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import mpirun  # noqa: E402
import tiny_data  # noqa: E402

SECONDS = 60  # for a case as a whole


def rank_processes(launcher_id: int) -> dict[int, int]:
    """Rank by process of a launcher's children, by what it has put into their environment."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            variables = (entry / "environ").read_bytes().split(b"\0") if parent == launcher_id else []
        except (OSError, ValueError):
            continue
        for variable in variables:
            if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                found[int(entry.name)] = int(variable.split(b"=")[1])
    return found


def rank_process(launcher_id: int, rank: int) -> int:
    return next(process for process, number in rank_processes(launcher_id).items() if number == rank)


class Case:
    def __init__(self, program: str, launcher: str, folder: pathlib.Path):
        self.program, self.launcher, self.folder = program, launcher, folder
        self.failures = 0

    def train(self, options: str) -> list[str]:
        out = str(self.folder / "run")
        return [self.program, "train", str(self.folder / "run.toml"), "--model.config", str(self.folder / "llama"),
                "--out", out, *options.split()]

    def expect(self, name: str, command: list[str], code: int, texts: list[str], hit: tuple[int, int] | None = None,
               within: float = SECONDS, once: str = "") -> None:
        """texts: regular expressions. hit: a rank and the signal that it gets after the third step. within: seconds from then, or from the start."""
        begun = time.monotonic()
        log = self.folder / "log"
        with open(log, "w") as sink:
            process = subprocess.Popen(command, env=mpirun.environment(), stdin=subprocess.DEVNULL, stdout=sink,
                                       stderr=subprocess.STDOUT)
            if hit is not None:
                while "step 3/" not in log.read_text() and time.monotonic() - begun < SECONDS:
                    time.sleep(0.02)
                os.kill(rank_process(process.pid, hit[0]), hit[1])
                begun = time.monotonic()
            try:
                process.wait(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                for rank in rank_processes(process.pid):
                    os.kill(rank, signal.SIGKILL)
                process.kill()
                process.wait()
        took = time.monotonic() - begun
        printed = log.read_text()
        faults = [f"{text!r} is not printed" for text in texts if not re.search(text, printed)]
        if process.returncode != code:
            faults.append(f"exit code {process.returncode}, not {code}")
        if took > within:
            faults.append(f"took {took:.1f} s, not {within} s")
        if once and printed.count(once) != 1:
            faults.append(f"{once!r} is printed {printed.count(once)} times")
        self.failures += bool(faults)
        print(f"{name}: {'; '.join(faults) if faults else f'exit code {code} after {took:.1f} s'}", flush=True)
        if faults:
            print(printed)


def missing(rank: int) -> str:
    """The rank has not called the operation, or has stopped in the middle of it."""
    return rf"missing: ((data of|a receive by) )?{rank}\b"


def main() -> int:
    program, launcher = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tiny_data.make(program, folder, 6, 12, 1)
        case = Case(program, launcher, folder)
        two, three = mpirun.command(launcher, 2), mpirun.command(launcher, 3)
        long_run = "--train.steps 100000 --overwrite"

        case.expect("more ranks than the layout", three + case.train("--layout.dp 2"), 2,
                    ["dp x tp x pp is 2, and mpirun has started 3 ranks"], once="dp x tp x pp is 2")
        case.expect("heads not divisible", three + case.train("--layout.tp 3"), 2, ["layout.tp = 3", r"heads \(8\)"],
                    once="heads (8)")
        case.expect("batch not divisible", two + case.train("--layout.dp 2 --train.global_batch 13"), 2,
                    ["train.global_batch = 13", "12, 14"], once="train.global_batch = 13")
        case.expect("verify under a launcher", two + [program, "verify", str(folder / "run.toml")], 2,
                    ["runs its ranks as threads of one process"])
        case.expect("tensor axis over two hosts", mpirun.on_hosts(launcher, case.train("--layout.tp 2"), ["a", "b"]), 2,
                    ["a: rank 0; b: rank 1", "the tensor axis must not leave a host", "the link between a and b"])
        case.expect("the same, allowed", mpirun.on_hosts(launcher, case.train("--layout.tp 2 --allow-slow-tp"), ["a", "b"]), 0,
                    ["a: rank 0; b: rank 1", "tensor groups cross hosts", "done after 6 steps"])
        (folder / "b").mkdir()
        here = ["here" if part == str(folder / "run") else part for part in case.train("--layout.dp 2")]
        case.expect("hosts without a shared directory",
                    mpirun.on_hosts(launcher, here, ["a", "b"], [folder, folder / "b"]), 2,
                    ["out.directory = here: host b does not see the one of host a"])
        case.expect("the leader refuses", two + case.train("--layout.dp 2 --checkpoint.interval none"), 2,
                    ["holds step-00000006"])
        case.expect("the loss is not finite", two + case.train("--layout.dp 2 --overwrite --optimizer.learning_rate 1e30"),
                    72, ["are not both finite"])
        four = mpirun.command(launcher, 4)
        limited = "--layout.dp 4 --memory-limit 2MB --overwrite"  # the state alone is 2.4 MB
        case.expect("more than the limit", case.train(limited), 71,
                    [r"does not fit: rank \d needs .* at its peak .weights .*gradients .*moments",
                     "layouts of 4 ranks would fit: .*zero 3"])
        case.expect("the same over MPI", four + case.train(limited), 71, [r"does not fit: rank \d needs"],
                    once="does not fit")
        case.expect("within it under stage 3", case.train(limited + " --layout.zero 3"), 0, ["done after 6 steps"])
        case.expect("a rank is killed", three + case.train(f"--layout.dp 3 {long_run}"), 137,
                    ["rank 2", "signal 9"], hit=(2, signal.SIGKILL), within=5)
        case.expect("a stage is killed", mpirun.command(launcher, 4) + case.train(f"--layout.pp 4 {long_run}"), 137,
                    ["rank 1", "signal 9"], hit=(1, signal.SIGKILL), within=5)
        # It may stop between two micro-batches, or where all stages meet at the end of a step. Each stage knows its
        # neighbours alone, and the first whose time is over speaks for all: rank 3 has waited for rank 2, which waits for
        # rank 1, as long as the others have.
        case.expect("a stage stops", mpirun.command(launcher, 4)
                    + case.train(f"--layout.pp 4 --train.deadline 2 {long_run}"), 86,
                    [rf"rank [02] waited .* for the (send|receive) of rank 1\b|rank 3 waited .* for the send of rank 2\b|"
                     rf"{missing(1)}"],
                    hit=(1, signal.SIGSTOP), within=10)
        case.expect("a rank stops and never arrives", three + case.train(f"--layout.dp 3 --train.deadline 2 {long_run}"),
                    86, [missing(1), "rank 0's last operations"], hit=(1, signal.SIGSTOP), within=10)
        case.expect("the leader never arrives", two + case.train(f"--layout.tp 2 --train.deadline 2 {long_run}"),
                    86, [missing(0), "rank 1's last operations"], hit=(0, signal.SIGSTOP), within=10)
    return 1 if case.failures else 0


if __name__ == "__main__":
    sys.exit(main())
