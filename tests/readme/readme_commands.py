#!/usr/bin/env python3
"""README.md from its first to its last command, as it stands there: in a fresh copy of the repository, in one shell. Each
ends with the exit code that is said beside it, or 0, and what is shown of its output is what it prints.

    readme_commands.py PROGRAM
"""

import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import doc_blocks  # noqa: E402

SECONDS = 240  # for all of it
LEAST = 30  # commands; fewer: they are not found


def main() -> int:
    program = pathlib.Path(sys.argv[1]).resolve()
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS
    commands = doc_blocks.commands_of((ROOT / "README.md").read_text(encoding="utf-8").split("\n"), all_of_them=True)
    with tempfile.TemporaryDirectory(prefix="readme.") as folder:
        copy = pathlib.Path(folder) / "trireme"
        doc_blocks.fresh_copy(copy, program)
        doc_blocks.run_all(commands, copy, program, seconds)
    faults = 0
    for command in commands:
        fault = doc_blocks.fault_of(command)
        faults += 1 if fault else 0
        state = "not run" if not command.runs else f"{command.seconds:6.2f} s"
        print(f"{'FAULT' if fault else 'ok':5} {state}  {command.text}" + (f"\n  {fault}" if fault else ""))
    run = [command for command in commands if command.runs]
    print(f"{len(run)} commands, {sum(command.seconds for command in run):.1f} s")
    if len(run) < LEAST:
        print(f"FAULT only {len(run)} commands were found")
        return 1
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
