#!/usr/bin/env python3
"""What people see of a run: on terminals of several widths, in files, and in the logs of ranks.

    terminal.py PROGRAM
"""

import fcntl
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tiny_data  # noqa: E402

SECONDS = 100  # for a command
STEPS = 40


class Terminal:
    """What a terminal shows: rows, of which one that is full goes on in the next."""

    def __init__(self, columns: int):
        self.columns = columns or 80
        self.rows, self.wrapped, self.at = [[]], [False], 0
        self.widest_status = 0

    def put(self, text: str) -> None:
        for char in text:
            if char == "\r":
                self.at = 0
            elif char == "\n":
                self._next(False)
            else:
                if self.at == self.columns:
                    self._next(True)
                row = self.rows[-1]
                row.extend(" " * (self.at + 1 - len(row)))
                row[self.at] = char
                self.at += 1

    def _next(self, wrapped: bool) -> None:
        self.rows.append([])
        self.wrapped.append(wrapped)
        self.at = 0

    def lines(self) -> list[str]:
        """Rows that belong together are one line."""
        lines: list[str] = []
        for row, wrapped in zip(self.rows, self.wrapped):
            if wrapped:
                lines[-1] += "".join(row)
            else:
                lines.append("".join(row))
        return [line.rstrip() for line in lines]


def in_terminal(command: list[str], columns: int, resized: int | None = None) -> tuple[int, str]:
    """The exit code, and all that was written to a terminal; it gets another width after a second."""
    leader, follower = pty.openpty()

    def set_columns(number: int) -> None:
        fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 24 if number else 0, number, 0, 0))

    set_columns(columns)
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, start_new_session=True)
    os.close(follower)
    written, begun = b"", time.monotonic()
    while time.monotonic() - begun < SECONDS:
        if resized is not None and time.monotonic() - begun > 1:
            set_columns(resized)
            resized = None
        if select.select([leader], [], [], 0.1)[0]:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            written += part
    code = process.wait(SECONDS)
    os.close(leader)
    return code, written.decode().replace("\r\n", "\n")


def shown(written: str, columns: int) -> list[str]:
    terminal = Terminal(columns)
    terminal.put(written)
    return terminal.lines()


class Checks:
    def __init__(self, program: str, folder: pathlib.Path):
        self.program, self.folder = program, folder
        self.faults: list[str] = []
        self.runs = 0

    def expect(self, good: bool, text: str) -> None:
        if not good:
            self.faults.append(text)

    def train(self, *more: str, threads: bool = False) -> tuple[list[str], pathlib.Path]:
        self.runs += 1
        out = self.folder / f"run-{self.runs}"
        return ([self.program, "train", str(self.folder / "run.toml"), "--model.config", str(self.folder / "llama"),
                 "--train.validation_interval", "15", "--out", str(out), *more], out)

    # A status never shares a row with a line, and is never wider than the terminal; what stays is there whole.
    def widths(self) -> None:
        for columns in (200, 60, 30, 1, 0):
            command, _ = self.train("--layout.dp", "2", "--checkpoint.interval", "5")
            code, written = in_terminal(command, columns)
            self.expect(code == 0, f"{columns} columns: exit code {code}:\n{written}")
            if columns == 1:
                continue
            lines = shown(written, columns)
            for line in lines:
                glued = re.search(r"\S.*(step \d+/|checkpoint of step)", line)
                self.expect(not (glued and line.startswith(("step", "checkpoint"))), f"{columns} columns: glued: {line}")
            for part in re.split(r"[\r\n]", written):
                if re.match(r"step \d+/", part):
                    self.expect(len(part.rstrip()) < (columns or 80), f"{columns} columns: too wide: {part!r}")
            text = re.sub(r"\s+", " ", "\n".join(lines))
            for step in (15, 30, STEPS):
                self.expect(re.search(rf"step {step}/{STEPS} loss \d\.\d+ validation \d\.\d+", text) is not None,
                            f"{columns} columns: no validation loss of step {step}:\n{text}")
            for step in range(5, STEPS + 1, 5):
                self.expect(f"checkpoint of step {step} is durable" in text, f"{columns} columns: no word of save {step}")

    def another_width(self) -> None:
        command, _ = self.train("--train.steps", "400", "--train.validation_interval", "0")
        code, written = in_terminal(command, 120, resized=40)
        self.expect(code == 0, f"resized: exit code {code}")
        last = [part.rstrip() for part in written.split("\r") if re.match(r"step \d+/400", part)][-1]
        self.expect(len(last.split("\n")[0]) < 40, f"the width is not looked at again: {last!r}")

    # The supervisor is another process than the one that writes the status.
    def a_death(self) -> None:
        command, out = self.train("--layout.dp", "2", "--checkpoint.interval", "5", "--inject", "kill:rank=1,step=12")
        code, written = in_terminal(command, 160)
        lines = shown(written, 160)
        self.expect(code == 0, f"a death: exit code {code}:\n{written}")
        told = [line for line in lines if "killed by signal 9" in line]
        self.expect(len(told) == 1 and told[0].startswith("warning: supervisor: died: "), f"a death is told so: {told}")
        for rank in (0, 1):
            log = (out / f"logs/rank-{rank:05}.log").read_text()
            self.expect(re.search(r"Z rank \d of 2 on \S+, process \d+, incarnation \d+\n", log) is not None,
                        f"the log of rank {rank} does not begin with it:\n{log}")
            self.expect("killed by signal 9" in log, f"the log of rank {rank} says nothing of its death:\n{log}")
        command, _ = self.train("--layout.dp", "2", "--supervise.retries", "0", "--inject", "kill:rank=1,step=12")
        code, written = in_terminal(command, 160)
        lines = shown(written, 160)
        self.expect(code == 78 and any(line.startswith("error: ") for line in lines), f"the last death: {code}: {lines}")
        self.expect(not any(re.match(r"step .*(error|warning|supervisor)", line) for line in lines), f"glued: {lines}")

    # A run that ends by an error has its last step, and then the error on a line of its own.
    def an_error(self) -> None:
        command, _ = self.train("--inject", "nan:rank=0,step=7,times=always", "--supervise.launcher", "none")
        code, written = in_terminal(command, 100)
        lines = shown(written, 100)
        self.expect(code == 72, f"NaN: exit code {code}:\n{written}")
        self.expect(any(line.startswith(f"step 6/{STEPS}  loss") for line in lines), f"NaN: no last step: {lines}")
        self.expect(any(line.startswith("error: ") for line in lines), f"NaN: no error on its own line: {lines}")

    # In a file: few lines, but each that matters.
    def in_a_file(self) -> None:
        command, out = self.train("--train.steps", "600", "--checkpoint.interval", "200")
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        steps = [int(step) for step in re.findall(r"^step (\d+)/600 ", done.stderr, re.MULTILINE)]
        self.expect(done.returncode == 0 and "\r" not in done.stderr, f"in a file: {done.returncode}")
        self.expect(steps[:3] == [1, 2, 3] and steps[-1] == 600, f"in a file: steps {steps}")
        self.expect(set(range(15, 600, 15)) <= set(steps), f"in a file: validations are missing in {steps}")
        self.expect(len(steps) < 44 + SECONDS / 2, f"in a file: {len(steps)} lines")
        self.expect(len((out / "metrics.jsonl").read_text().splitlines()) == 600, "in a file: metrics are not whole")
        self.expect(done.stderr.count("is durable") == 3, "in a file: saves are missing")
        command, _ = self.train("--train.log_interval", "1", "--train.steps", "30")
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        self.expect(len(re.findall(r"^step \d+/30 ", done.stderr, re.MULTILINE)) == 30, "log_interval 1 is every step")

    def words_at_the_end(self) -> None:
        command, _ = self.train("--checkpoint.interval", "none", "--train.steps", "3")
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        self.expect(done.returncode == 0 and "metrics.jsonl" in done.stdout, f"no saves: {done.returncode}")
        self.expect("checkpoints" not in done.stdout, f"there are no checkpoints:\n{done.stdout}")
        command, _ = self.train("--checkpoint.mtbf", "100h")
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        self.expect("saves at its end" in done.stderr and "saves every" not in done.stderr,
                    f"a save is announced that does not come:\n{done.stderr}")
        self.expect("/checkpoints " in done.stdout, f"there are checkpoints:\n{done.stdout}")

    def version(self) -> None:
        texts = [subprocess.run([self.program, *flag.split()], capture_output=True, text=True, timeout=SECONDS)
                 for flag in ("--version", "-V", "-V plan")]
        for done in texts:
            self.expect(done.returncode == 0 and done.stderr == "", f"the version: {done.returncode} {done.stderr}")
            self.expect(re.fullmatch(r"trireme \d+\.\d+\.\d+ \(\w+ build\)\nGCC [^\n]+, oneDNN [^\n]+, \S+\n",
                                     done.stdout) is not None, f"the version: {done.stdout!r}")


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tiny_data.make(sys.argv[1], folder, STEPS, global_batch=4, micro_batch=2)
        checks = Checks(sys.argv[1], folder)
        for check in (checks.widths, checks.another_width, checks.a_death, checks.an_error, checks.in_a_file,
                      checks.words_at_the_end, checks.version):
            before = time.monotonic()
            check()
            print(f"{check.__name__}: {time.monotonic() - before:.1f} s")
    for fault in checks.faults:
        print("FAULT", fault)
    return 1 if checks.faults else 0


if __name__ == "__main__":
    sys.exit(main())
