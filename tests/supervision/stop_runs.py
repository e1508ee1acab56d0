#!/usr/bin/env python3
"""What a run promises to those who signal, stop, suspend or starve it: a stop that is asked for saves, whoever hears of it
and however early; processes that were stopped and go on have lost nothing; a run that writes no checkpoints begins anew.

    stop_runs.py PROGRAM MPIRUN [--only TEXT]
"""

import argparse
import functools
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import runs  # noqa: E402
from runs import Run, expect  # noqa: E402

STEPS = 12
SAVES = "--checkpoint.interval 4"
SLOW = "--inject slow:rank=0,step=5,factor=10"
LONG = "--train.steps 100000 --checkpoint.interval 100000"


class Stops:
    def __init__(self, program: str, folder: pathlib.Path):
        self.program, self.folder = program, folder

    def run(self, name: str, options: str = SAVES) -> Run:
        return Run(self.program, self.folder, name, f"--layout.dp 2 {options}")


def saved_and_ended(run: Run, code: int = 76) -> None:
    expect(run.wait() == code, f"exit code {run.process.returncode}, not {code}")
    run.no_process_left()
    done = run.metrics()[-1]["step"]
    expect((run.out / "checkpoints" / f"step-{done:08d}").is_dir(), f"no checkpoint of step {done}")
    expect(not run.incidents(), f"incidents {run.incidents()}")


def signalled(number: int, code: int):
    def case(stops: Stops, name: str) -> None:
        run = stops.run(name, LONG).start()
        run.until_step(6)
        run.process.send_signal(number)
        saved_and_ended(run, code)
    return case


def signalled_unsupervised(stops: Stops, name: str) -> None:
    for number, code in [(signal.SIGUSR2, 76), (signal.SIGINT, 130)]:
        run = stops.run(f"{name}-{code}", f"{LONG} --supervise.launcher none").start()
        run.until_step(6)
        status = pathlib.Path(f"/proc/{run.process.pid}/status").read_text()
        caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
        expect(not caught >> (number - 1) & 1, "a thread that computes may run a handler, which writes over the heap")
        run.process.send_signal(number)
        saved_and_ended(run, code)


def hang_up_under_nohup(stops: Stops, name: str) -> None:
    run = stops.run(name, SAVES).start(SLOW, prefix=["nohup"])
    run.until_step(6)
    run.process.send_signal(signal.SIGHUP)
    expect(run.wait() == 0, f"exit code {run.process.returncode}")


def signalled_at_birth(stops: Stops, name: str) -> None:
    """From the moment at which it holds its signals: before its libraries have begun."""
    def holds(process: int) -> bool:
        try:
            status = pathlib.Path(f"/proc/{process}/status").read_text()
        except OSError:
            return False
        masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigBlk", "SigCgt"))]
        return any(mask >> (signal.SIGUSR1 - 1) & 1 for mask in masks)

    codes = []
    for i in range(12):
        run = stops.run(f"{name}-{i}", "--train.steps 3").start()
        until = time.monotonic() + 10
        while time.monotonic() < until and not holds(run.process.pid):
            pass
        time.sleep(i * 0.002)
        run.process.send_signal(signal.SIGUSR1)
        codes.append(run.wait())
        run.no_process_left()
    expect(set(codes) <= {0, 76}, f"exit codes {codes}")


def ranks_alone_signalled(stops: Stops, name: str) -> None:
    """As a scheduler does that signals the tasks of a step, and not the script."""
    run = stops.run(name, LONG).start()
    run.until_step(6)
    for process in run.workers():
        os.kill(process, signal.SIGUSR1)
    saved_and_ended(run)


def every_process_told(stops: Stops, name: str) -> None:
    """A scheduler's or a container's SIGTERM reaches supervisor, mpirun, keepers and ranks; one step takes seconds."""
    run = stops.run(name, f"{LONG} --supervise.launcher mpirun --train.global_batch 3072").start()
    run.until_step(1)
    time.sleep(0.3)
    for process in runs.processes_of(run.out):
        os.kill(process, signal.SIGTERM)
    saved_and_ended(run)
    expect("no save came of it" not in run.printed(), "told that nothing was saved")


def goes_on(run: Run, before: int, seconds: float = 20) -> None:
    """At least as many steps again, none of them done twice, and no incident."""
    run.until(lambda: len(run.metrics()) > before + 5, "further step", seconds)
    expect(not run.incidents(), f"incidents {run.incidents()}")
    run.process.send_signal(signal.SIGTERM)
    saved_and_ended(run)
    run.nothing_lost()
    expect("goes on from step" not in run.printed(), "it has begun again")


def stopped_for(run: Run, processes: list[int], seconds: float = 5) -> int:
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    time.sleep(0.2)
    before = len(run.metrics())
    time.sleep(seconds)
    for process in processes:
        os.kill(process, signal.SIGCONT)
    return before


def all_stopped(launcher: str):
    def case(stops: Stops, name: str) -> None:
        run = stops.run(name, f"{LONG} --supervise.launcher {launcher}").start()
        run.until_step(20)
        goes_on(run, stopped_for(run, list(runs.processes_of(run.out))))
    return case


def longer_than_its_deadline(stops: Stops, name: str) -> None:
    """Of those that wait for one another: all of the job was stopped, and nobody has waited."""
    run = stops.run(name, f"{LONG} --supervise.launcher mpirun --train.deadline 2 --supervise.hang_floor 1s").start()
    run.until_step(20)
    goes_on(run, stopped_for(run, list(runs.processes_of(run.out))))


def supervisor_stopped(stops: Stops, name: str) -> None:
    """Its workers stand still meanwhile: what they did might be done twice."""
    run = stops.run(name, LONG).start()
    run.until_step(20)
    os.kill(run.process.pid, signal.SIGSTOP)
    time.sleep(3.5)
    standing = len(run.metrics())
    time.sleep(1.5)
    expect(len(run.metrics()) == standing, "its workers went on without it")
    os.kill(run.process.pid, signal.SIGCONT)
    goes_on(run, standing)
    expect("was stopped for" in run.printed(), "it is not told")


def workers_stopped(stops: Stops, name: str) -> None:
    run = stops.run(name, LONG).start()
    run.until_step(20)
    goes_on(run, stopped_for(run, list(run.workers())))
    expect("seem to be stopped" in run.printed(), "it is not told")


def suspended_by_its_terminal(stops: Stops, name: str) -> None:
    """Ctrl-Z, and fg: only the supervisor is in the terminal's foreground."""
    run = stops.run(name, LONG)
    master, slave = pty.openpty()
    with open(run.log, "w") as sink:
        run.process = subprocess.Popen(run.command, stdin=slave, stdout=sink, stderr=subprocess.STDOUT,
                                       start_new_session=True)
    run.until_step(20)
    run.process.send_signal(signal.SIGTSTP)
    run.until(lambda: "T" == pathlib.Path(f"/proc/{run.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0],
              "suspension")
    time.sleep(0.5)
    standing = len(run.metrics())
    time.sleep(4)
    expect(len(run.metrics()) == standing, "its workers went on")
    run.process.send_signal(signal.SIGCONT)
    goes_on(run, standing)
    os.close(master)
    os.close(slave)


def killed_without_checkpoints(stops: Stops, name: str) -> None:
    whole = stops.run(f"{name}-whole", "--checkpoint.interval none")
    expect(whole.finish() == 0, f"unbroken: exit code {whole.process.returncode}")
    run = stops.run(name, "--checkpoint.interval none").start("--inject kill:rank=1,step=7")
    expect(run.wait() == 0, f"exit code {run.process.returncode}")
    expect([line["kind"] for line in run.incidents()] == ["died"], f"incidents {run.incidents()}")
    expect(run.curve() == whole.curve(), "another loss curve than the unbroken run's")
    # It has its model now: nothing is written over unasked.
    expect(run.finish() == 2 and "holds run.toml already" in run.printed(), f"once more: {run.process.returncode}")


def diverged_without_checkpoints(stops: Stops, name: str) -> None:
    run = stops.run(name, "--checkpoint.interval none").start("--inject nan:rank=1,step=7,times=always")
    expect(run.wait() == 72, f"exit code {run.process.returncode}")
    expect("the same again" in run.printed(), "no diagnosis")
    expect("holds run.toml" not in run.printed(), "refused in the middle of a run")


def requeued_without_checkpoints(stops: Stops, name: str) -> None:
    """Who is told to requeue it can."""
    run = stops.run(name, "--checkpoint.interval none").start(SLOW)
    run.until_step(6)
    run.process.send_signal(signal.SIGTERM)
    expect(run.wait() == 75, f"exit code {run.process.returncode}")
    expect(run.finish() == 0, f"requeued: exit code {run.process.returncode}")
    expect(len(run.metrics()) == STEPS, f"{len(run.metrics())} steps")


def traced_and_killed(stops: Stops, name: str) -> None:
    """Before, in the midst of and after what is traced: the next start is not refused for it."""
    for step in [2, 4, 10]:
        run = stops.run(f"{name}-{step}", f"{SAVES} --trace {stops.folder}/{name}-{step}.json --trace-steps 3-5")
        expect(run.finish(f"--inject kill:rank=0,step={step}") == 0, f"step {step}: exit code {run.process.returncode}")
        expect(len(run.incidents()) == 1, f"incidents {run.incidents()}")
        traced = (stops.folder / f"{name}-{step}.json").exists()
        expect(traced or "no trace" in run.printed(), f"step {step}: neither a trace nor a word")


def stop_directory(stops: Stops, name: str) -> None:
    run = stops.run(name, LONG).start()
    run.until_step(6)
    (run.out / "stop" / "inner").mkdir(parents=True)
    saved_and_ended(run)
    expect(run.finish("--train.steps 100001 --accept train.steps") == 2, f"exit code {run.process.returncode}")
    expect("stop" in run.printed() and "remove it" in run.printed(), "what is in the way is not named")


def names(stops: Stops, name: str) -> None:
    run = stops.run(name, LONG).start()
    run.until_step(1)
    called = {process: pathlib.Path(f"/proc/{process}/comm").read_text().strip() for process in runs.processes_of(run.out)}
    expect(called[run.process.pid] == "trireme", f"the supervisor is called {called[run.process.pid]}")
    expect(sorted(called.values()) == ["trireme", "trireme-keeper", "trireme-rank"], f"called {called}")
    run.process.send_signal(signal.SIGTERM)
    saved_and_ended(run)


CASES = [(f"signal-{signal.Signals(number).name}", signalled(number, code))
         for number, code in [(signal.SIGUSR2, 76), (signal.SIGXCPU, 76), (signal.SIGPWR, 76), (signal.SIGHUP, 130),
                              (signal.SIGQUIT, 130)]]
CASES += [(f"all-stopped-{launcher}", all_stopped(launcher)) for launcher in ["threads", "mpirun"]]
CASES += runs.named([signalled_unsupervised, hang_up_under_nohup, signalled_at_birth, ranks_alone_signalled,
                     every_process_told, longer_than_its_deadline, supervisor_stopped, workers_stopped,
                     suspended_by_its_terminal, killed_without_checkpoints, diverged_without_checkpoints,
                     requeued_without_checkpoints, traced_and_killed, stop_directory, names])


OF_MPIRUN = ["all-stopped-mpirun", "every-process-told", "longer-than-its-deadline"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("mpirun", nargs="?")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        runs.make_data(options.program, folder, STEPS)
        stops = Stops(options.program, folder)
        bound = [(name, functools.partial(case, stops, name)) for name, case in CASES
                 if options.only in name and (options.mpirun or name not in OF_MPIRUN)]
        return runs.run_cases(folder, bound)


if __name__ == "__main__":
    sys.exit(main())
