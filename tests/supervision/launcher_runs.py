#!/usr/bin/env python3
"""Launchers that are named, left to choose, not there, broken, or that cannot reach a host: the named one starts the
ranks, and what cannot help is tried once and told in a line.

    launcher_runs.py PROGRAM [MPIRUN] [--only TEXT]
"""

import argparse
import functools
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import runs  # noqa: E402
from runs import expect  # noqa: E402

STEPS = 3
SHELL_OF_SRUN = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1",
                 "SLURM_STEP_TASKS_PER_NODE": "1"}
LEFT_OVER = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}


class Launchers:
    def __init__(self, program: str, mpirun: str | None, folder: pathlib.Path):
        self.program, self.mpirun, self.folder = program, mpirun, folder

    def run(self, name: str, options: str, variables: dict[str, str] = {}, prefix: list[str] = []) -> tuple[int, str]:
        """Exit code, and all that was written."""
        command = [*prefix, self.program, "train", str(self.folder / "run.toml"), "--model.config",
                   str(self.folder / "llama"), "--out", str(self.folder / name), *options.split()]
        done = subprocess.run(command, env=os.environ | variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=runs.SECONDS)
        (self.folder / f"{name}.log").write_text(done.stdout)
        return done.returncode, done.stdout

    def trains(self, name: str, options: str, variables: dict[str, str] = {}, prefix: list[str] = []) -> None:
        code, text = self.run(name, options, variables, prefix)
        expect(code == 0, f"exit code {code}")
        expect(len(runs.lines(self.folder / name / "metrics.jsonl")) == STEPS, "steps are missing")
        expect("supervisor:" not in text, "something went wrong on the way")

    def told(self, name: str, options: str, words: list[str], variables: dict[str, str] = {}, starts: int = 0) -> None:
        """Refused in one line with these words, after so many starts."""
        code, text = self.run(name, options, variables)
        expect(code == 2, f"exit code {code}")
        errors = [line for line in text.splitlines() if line.startswith("error:")]
        expect(len(errors) == 1 and len(text.splitlines()) < 12, f"{len(text.splitlines())} lines")
        for word in words:
            expect(word in errors[0], f"no word of '{word}' in: {errors[0]}")
        counted = self.folder / f"{name}.starts"
        made = len(counted.read_text().splitlines()) if counted.exists() else 0
        expect(made == starts, f"{made} starts, not {starts}")

    def stub(self, name: str, script: str) -> str:
        """A launcher that counts its starts (but for srun's question)."""
        path = self.folder / f"{name}.sh"
        path.write_text(f"#!/bin/sh\n[ \"$1\" = --mpi=list ] || echo start >> {self.folder}/{name}.starts\n{script}\n")
        path.chmod(0o755)
        return str(path)


def slurm_shell(all: Launchers, name: str) -> None:
    for launcher in ["--supervise.launcher threads", "--supervise.launcher none", ""]:
        all.trains(f"{name}-{launcher[-4:]}", f"--layout.dp 2 {launcher}", SHELL_OF_SRUN)


def left_over_variables(all: Launchers, name: str) -> None:
    all.trains(name, "--layout.dp 2 --supervise.launcher threads", LEFT_OVER)
    all.trains(f"{name}-one", "--layout.dp 2", {"PMI_SIZE": "1", "PMI_RANK": "0"})
    all.told(f"{name}-auto", "--layout.dp 2", ["mpirun has started 4 ranks", "--supervise.launcher threads"], LEFT_OVER)
    all.told(f"{name}-second", "--layout.dp 2 --supervise.launcher threads", ["this is rank 1 of 4"],
             LEFT_OVER | {"OMPI_COMM_WORLD_RANK": "1"})


def slurm_without_srun(all: Launchers, name: str) -> None:
    nowhere = {"SLURM_JOB_ID": "7", "PATH": "/nowhere"}
    all.trains(name, "", nowhere)
    all.trains(f"{name}-ranks", "--layout.dp 2", nowhere)
    all.told(f"{name}-nodes", "--layout.dp 2", ["supervise.srun = srun", "is not in PATH", "--supervise.launcher threads"],
             nowhere | {"SLURM_JOB_NUM_NODES": "2"})


def programs_that_are_none(all: Launchers, name: str) -> None:
    (all.folder / "text").write_text("words")
    for launcher, words, rule in [("mpirun", "no-such-mpirun", "is not in PATH"), ("srun", "no-such-srun", "is not in PATH"),
                                  ("mpirun", "/no/such/mpirun", "there is no such file"),
                                  ("mpirun", str(all.folder / "text"), "is not executable"),
                                  ("srun", str(all.folder), "is no file")]:
        all.told(name, f"--layout.dp 2 --supervise.launcher {launcher} --supervise.{launcher} {words}",
                 [f"supervise.{launcher} = {words}", rule, "threads"])


def launcher_of_other_words(all: Launchers, name: str) -> None:
    stub = all.stub(name, "for i in $(seq 50); do echo '-----'; done; echo 'usage: unknown option --ntasks'; exit 1")
    all.told(name, f"--layout.dp 2 --supervise.launcher srun --supervise.srun {stub}",
             ["usage: unknown option --ntasks", "launcher.log"], starts=1)


def no_controller(all: Launchers, name: str) -> None:
    stub = all.stub(name, "echo 'srun: error: Unable to contact slurm controller (connect failure)' >&2; exit 1")
    all.told(name, f"--layout.dp 2 --supervise.srun {stub}",
             ["Unable to contact slurm controller", "--supervise.launcher threads"], {"SLURM_JOB_ID": "7"}, starts=1)


def mpi_of_another_slurm(all: Launchers, name: str) -> None:
    """Ranks come up, and die in the start of MPI."""
    stub = all.stub(name, """
if [ "$1" = --mpi=list ]; then printf 'MPI plugin types are...\\n\\tnone\\n\\tpmix\\n'; exit; fi
while [ "${1#--}" != "$1" ]; do shift; done
echo 'The application appears to have been direct launched using "srun",' >&2
echo "but OMPI was not built with SLURM's PMI support and therefore cannot execute." >&2
export SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 OMPI_MCA_pml=nosuch
SLURM_PROCID=0 "$@" & SLURM_PROCID=1 "$@"; code=$?; wait; exit $code""")
    all.told(name, f"--layout.dp 2 --supervise.launcher srun --supervise.srun {stub} --supervise.address 127.0.0.1",
             ["OMPI was not built with SLURM's PMI support", f'"{stub} --mpi=pmix"'], starts=1)


def hosts_out_of_reach(all: Launchers, name: str) -> None:
    all.told(name, f"--layout.dp 2 --supervise.mpirun {all.mpirun} --supervise.address 127.0.0.1 "
                   "--supervise.hosts no-such-host-1.invalid:1,no-such-host-2.invalid:1", ["mpirun starts no rank", "supervise.hosts"])


def inside_of_mpirun(all: Launchers, name: str) -> None:
    """A shell that mpirun has started: its variables are not those of the ranks."""
    variables = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    all.trains(name, f"--layout.dp 2 --supervise.launcher mpirun --supervise.mpirun {all.mpirun}", variables,
               [all.mpirun, "-n", "1"])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("mpirun", nargs="?")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    cases = [slurm_shell, left_over_variables, slurm_without_srun, programs_that_are_none, launcher_of_other_words,
             no_controller]
    if options.mpirun:
        cases += [mpi_of_another_slurm, hosts_out_of_reach, inside_of_mpirun]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        runs.make_data(options.program, folder, STEPS)
        all = Launchers(options.program, options.mpirun, folder)
        bound = [(name, functools.partial(case, all, name)) for name, case in runs.named(cases) if options.only in name]
        return runs.run_cases(folder, bound)


if __name__ == "__main__":
    sys.exit(main())
