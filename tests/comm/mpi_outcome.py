#!/usr/bin/env python3
"""Runs mpi_ranks under mpirun and checks its exit code, its texts, and that no process outlives it by more than seconds."""

import argparse
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import mpirun  # noqa: E402

SECONDS = 60  # for a case as a whole; a hang is longer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mpirun")
    parser.add_argument("--ranks", default="1")
    parser.add_argument("--program", required=True)
    parser.add_argument("--case", required=True)
    parser.add_argument("--exit-code", type=int, required=True)
    parser.add_argument("texts", nargs="*")
    arguments = parser.parse_args()

    command = [arguments.program, arguments.case]
    if arguments.mpirun:
        command = mpirun.command(arguments.mpirun, int(arguments.ranks)) + command
    try:
        done = subprocess.run(command, env=mpirun.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as expired:
        sys.exit(f"{' '.join(command)}: still running after {SECONDS} s; it printed:\n{expired.stdout}")
    print(done.stdout)
    if done.returncode != arguments.exit_code:
        sys.exit(f"exit code {done.returncode}, not {arguments.exit_code}")
    for text in arguments.texts:
        if text not in done.stdout:
            sys.exit(f"not printed: {text}")


main()
