#!/usr/bin/env python3
"""The commands that the documents show, and what they print.

    tools/doc_blocks.py [--program build/release/trireme] [--write] [FILE.md ...]

runs every command that a document shows with its output ("$ trireme ..." in a fenced block) and compares. `...` stands
for lines left out. Of README.md all commands are run, in their order and in one shell, since the later ones need what
the earlier ones make: in a fresh copy of the repository. Files: README.md and docs/**/*.md. Exit code 1: an output is
out of date, or a command ends with another exit code than 0 or than is said beside it ("# exit code 71").
--write puts what is printed now in place of what is out of date; text beside it is for people to look at.

Figures that differ from run to run (times, rates, memory in use, losses) are compared by their shape.
"""

import argparse
import dataclasses
import difflib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEFT_OUT = "..."
NOT_RUN = ("git clone", "make ")  # the build itself; CI has it before this
LEAST_LIKE = 0.5  # of lines that are taken for the same one
MOST_S = 600  # for all commands of a document

NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
TIME = NUMBER + r" (?:ns|us|ms|s|min|h|d)\b"
# What differs from run to run: of sums only how long the search took; of everything else all that is measured.
SEARCHED = [(rf"(screened|simulated) in {TIME}", r"\1 in T")]
MEASURED = [
    (rf"\b{TIME}", "T"),
    (r"\b\d+:\d\d(?::\d\d)?\b", "T"),
    (rf"{NUMBER}k? tok/s", "R"),
    (rf"{NUMBER} [kMGTP]?(?:B|FLOPS|flops)(?:/s)?\b", "B"),
    (rf"(resident memory +){NUMBER}", r"\1B"),
    (rf"[+-]?{NUMBER} ?%", "P"),
    (r"[+-]?\d+\.\d+(?:e[+-]?\d+)?", "F"),
    (r"(process |MPI v|GCC )[\d.]+", r"\1N"),
    (r"\((forward|backward|reduce|optimizer|idle)\)", "(phase)"),
]


@dataclasses.dataclass
class Command:
    """As it is written, and what the document shows of its output (None: nothing is shown)."""

    text: str
    line: int  # of the document, from 1
    shown: list[str] | None = None
    shown_at: int = 0  # index of the first shown line
    code: int | None = None  # what came of it
    output: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0

    @property
    def runs(self) -> bool:
        return not self.text.startswith(NOT_RUN)

    @property
    def expected_code(self) -> int:
        found = re.search(r"#.*\bexit code (\d+)", self.text)
        return int(found.group(1)) if found else 0

    def shape(self, line: str) -> str:
        for pattern, by in SEARCHED if re.match(r"trireme plan\b", self.text) else MEASURED:
            line = re.sub(pattern, by, line)
        return re.sub(r" +", " ", line.rstrip())


def blocks(lines: list[str]):
    """Fenced blocks without a language: the index of the first line inside, and of the fence that ends it."""
    begin = None
    language = ""
    for index, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if begin is None:
            begin, language = index + 1, line[3:].strip()
            continue
        if not language:
            yield begin, index
        begin = None


def commands_of(lines: list[str], all_of_them: bool) -> list[Command]:
    """Those that are shown with their output; with all_of_them also the lines of blocks that are commands only."""
    found: list[Command] = []
    for begin, end in blocks(lines):
        shown = any(line.startswith("$ ") for line in lines[begin:end])
        listed = all_of_them and any(re.match(r"(trireme|make) ", line) for line in lines[begin:end])
        at = begin
        while at < end and (shown or listed):
            if shown and not lines[at].startswith("$ "):
                found[-1].shown.append(lines[at])
                at += 1
                continue
            first = at
            while lines[at].endswith("\\"):
                at += 1
            at += 1
            text = "\n".join(lines[first:at]).removeprefix("$ ")
            if text.strip():
                found.append(Command(text, first + 1, [] if shown else None, at))
    return found


def fresh_copy(folder: pathlib.Path, program: pathlib.Path) -> None:
    """What somebody has who has cloned and built."""
    made = {"build", ".git", "runs", "data", "__pycache__"}

    def left_out(directory: str, names: list[str]) -> set[str]:
        return made & set(names) if pathlib.Path(directory) == ROOT else {"__pycache__"} & set(names)

    shutil.copytree(ROOT, folder, symlinks=True, ignore=left_out)
    (folder / "build/release").mkdir(parents=True)
    (folder / "build/release/trireme").symlink_to(program)


def run_all(commands: list[Command], folder: pathlib.Path, program: pathlib.Path, most_s: float = MOST_S) -> None:
    """One shell, one command after the other, as somebody types them; fills in what came of them."""
    with tempfile.TemporaryDirectory(prefix="commands.") as told:
        script = "now() { date +%s.%N; }\n"
        for number, command in enumerate(commands):
            if command.runs:
                script += f"before=$(now)\n{{ {command.text}\n}} > {told}/{number}.out 2>&1 < /dev/null\n"
                script += f'echo "$? $before $(now)" > {told}/{number}.end\n'
        environment = dict(os.environ, PATH=f"{program.parent}{os.pathsep}{os.environ['PATH']}", LC_ALL="C.UTF-8")
        shell = subprocess.Popen(["bash", "-c", script], cwd=folder, env=environment, start_new_session=True)
        try:
            shell.wait(most_s)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        for number, command in enumerate(commands):
            out, end = (pathlib.Path(told) / f"{number}.{kind}" for kind in ("out", "end"))
            if out.exists():
                command.output = out.read_text(errors="replace").splitlines()
            if end.exists():
                code, before, after = end.read_text().split()
                command.code, command.seconds = int(code), float(after) - float(before)


def pieces(shown: list[str]) -> list[list[str]]:
    """What stands between lines left out; an empty piece first or last: more comes before or after."""
    all_pieces: list[list[str]] = [[]]
    for line in shown:
        if line == LEFT_OUT:
            all_pieces.append([])
        else:
            all_pieces[-1].append(line)
    return all_pieces


def fault_of(command: Command) -> str:
    """Empty: what is shown is what is printed."""
    if not command.runs:
        return ""
    if command.code is None:
        return "did not end in time, or was not reached"
    if command.code != command.expected_code:
        end = "\n    ".join(command.output[-8:])
        return f"exit code {command.code} instead of {command.expected_code}:\n    {end}"
    if command.shown is None:
        return ""
    printed = [command.shape(line) for line in command.output]
    all_pieces = pieces(command.shown)
    at = 0
    for number, piece in enumerate(all_pieces):
        wanted = [command.shape(line) for line in piece]
        first, last = number == 0, number == len(all_pieces) - 1
        starts = range(at, len(printed) - len(wanted) + 1)
        if first:
            starts = [0]
        elif last and wanted:
            starts = [start for start in [len(printed) - len(wanted)] if start >= at]
        found = next((start for start in starts if printed[start:start + len(wanted)] == wanted), None)
        if found is None or (first and last and len(printed) != len(wanted)):
            return "is not what is printed:\n    " + "\n    ".join(piece)
        at = found + len(wanted) + (0 if first and not wanted else 1)
    return ""


def likeness(a: str, b: str) -> float:
    """1: the same; what counts first is the text without its figures, then the words that are the same."""
    if a == b:
        return 1.0
    bare = [re.sub(r"[\d,.]+", "0", re.sub(r" +", " ", text)) for text in (a, b)]
    matcher = difflib.SequenceMatcher(None, *bare, autojunk=False)
    if matcher.quick_ratio() <= 0.6:
        return 0.0
    words = [set(text.split()) for text in (a, b)]
    return 0.8 * matcher.ratio() + 0.1 * len(words[0] & words[1]) / max(len(words[0] | words[1]), 1)


def aligned(shown: list[str], printed: list[str]) -> dict[int, int]:
    """For lines of `shown` their likes in `printed`, in order, so that all are as like as can be."""
    like = [[likeness(a, b) for b in printed] for a in shown]
    best = [[0.0] * (len(printed) + 1) for _ in range(len(shown) + 1)]
    for i in reversed(range(len(shown))):
        for j in reversed(range(len(printed))):
            pair = best[i + 1][j + 1] + like[i][j] if like[i][j] > LEAST_LIKE else 0.0
            best[i][j] = max(best[i + 1][j], best[i][j + 1], pair)
    pairs, i, j = {}, 0, 0
    while i < len(shown) and j < len(printed):
        if like[i][j] > LEAST_LIKE and best[i][j] == best[i + 1][j + 1] + like[i][j]:
            pairs[i] = j
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def renewed(command: Command) -> list[str]:
    """The same lines as they are printed now; what has come between two that stood together comes along."""
    printed = [line.rstrip() for line in command.output]
    if LEFT_OUT not in command.shown:
        return printed
    most_between = 3
    flat, piece_of = [], []
    for number, piece in enumerate(pieces(command.shown)):
        flat += piece
        piece_of += [number] * len(piece)
    pairs = aligned(flat, printed)
    chosen: list[int] = []
    before = None
    for i, j in sorted(pairs.items()):
        last = chosen[-1] if chosen else -1
        together = piece_of[i] == (piece_of[before] if before is not None else 0)
        if together and j - last - 1 <= most_between:
            chosen += range(last + 1, j)
        chosen.append(j)
        before = i
    rest = range(chosen[-1] + 1 if chosen else 0, len(printed))
    if command.shown[-1] != LEFT_OUT and len(rest) <= most_between:
        chosen += rest
    lines: list[str] = []
    for before, j in zip([-1, *chosen], chosen):
        if j != before + 1:
            lines.append(LEFT_OUT)
        lines.append(printed[j])
    if not chosen or chosen[-1] != len(printed) - 1:
        lines.append(LEFT_OUT)
    return lines


def work(path: pathlib.Path, program: pathlib.Path, write: bool, tell_all: bool) -> int:
    """How many commands of a document are out of date."""
    lines = path.read_text(encoding="utf-8").split("\n")
    whole = path == ROOT / "README.md"
    commands = commands_of(lines, whole)
    if whole:
        with tempfile.TemporaryDirectory(prefix="readme.") as folder:
            copy = pathlib.Path(folder) / "trireme"
            fresh_copy(copy, program)
            run_all(commands, copy, program)
    elif commands:
        run_all(commands, ROOT, program)
    bad = 0
    name = path.relative_to(ROOT)
    for command in reversed(commands):  # from the end, so that earlier lines stay where they are
        fault = fault_of(command)
        if tell_all and command.runs:
            print(f"{name}:{command.line}: {command.seconds:6.2f} s  {command.text.splitlines()[0][:100]}")
        if not fault:
            continue
        if write and command.shown is not None and command.code == command.expected_code:
            shown = renewed(command)
            lines[command.shown_at:command.shown_at + len(command.shown)] = shown
            command.shown = shown
            fault = fault_of(command)
            print(f"{name}:{command.line}: renewed")
            if not fault:
                continue
        bad += 1
        print(f"{name}:{command.line}: {command.text}\n  {fault}")
    if write:
        path.write_text("\n".join(lines), encoding="utf-8")
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/trireme")
    parser.add_argument("--write", action="store_true", help="renew what is out of date")
    parser.add_argument("--times", action="store_true", help="say of each command how long it took")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    files = [path.resolve() for path in options.files] or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    bad = sum(work(path, options.program.resolve(), options.write, options.times) for path in files)
    if bad:
        print(f"{bad} out of date; tools/doc_blocks.py --write renews outputs", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
