#!/usr/bin/env python3
"""Faults of every kind, planted into supervised runs: each is named in time, and ends in a recovery that loses nothing, or
with its exit code; nobody is left behind.

    fault_matrix.py PROGRAM MPIRUN [--all] [--only TEXT]

Without --all every third kill of a rank, and all other cases.
"""

import argparse
import functools
import os
import pathlib
import signal
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import runs  # noqa: E402
from runs import Run, expect  # noqa: E402

STEPS = 12
SAVES = "--checkpoint.interval 4 --checkpoint.keep_last 2"
NAMED_WITHIN = 3.0


class Matrix:
    def __init__(self, program: str, folder: pathlib.Path):
        self.program, self.folder = program, folder
        self.baselines: dict[str, list[tuple]] = {}
        self.figures: list[str] = []

    def run(self, name: str, options: str) -> Run:
        return Run(self.program, self.folder, name, f"{options} {SAVES}")

    def baseline(self, layout: str) -> list[tuple]:
        """Of this layout, unbroken; ranks as threads have the bits of ranks as processes."""
        if layout not in self.baselines:
            run = self.run("unbroken" + layout.replace("--layout.", "").replace(" ", ""), f"{layout} --supervise.launcher none")
            expect(run.finish() == 0, f"the unbroken run of {layout}: {run.printed()}")
            self.baselines[layout] = run.curve()
        return self.baselines[layout]

    def goes_on(self, run: Run, layout: str, kind: str, ranks: list[int] | None = None) -> dict:
        """The first failure is named so, then comes the unbroken curve."""
        expect(run.wait() == 0, f"exit code {run.process.returncode}")
        first = run.incidents()[0]
        expect(first["kind"] == kind and ranks in (None, first["ranks"]), f"named {first}")
        expect(run.curve() == self.baseline(layout), "another loss curve than the unbroken run's")
        run.no_process_left()
        return first

    def recovered(self, run: Run, layout: str, kind: str, ranks: list[int], code: int = 0, phase: str = "") -> dict:
        """One failure, named so and in time, then the unbroken curve."""
        expect(run.wait() == code, f"exit code {run.process.returncode}, not {code}")
        failures = run.incidents()
        expect(len(failures) >= 1, "no incident")
        first = failures[0]
        expect(first["kind"] == kind, f"named {first['kind']}, not {kind}: {first['message']}")
        expect(first["ranks"] == ranks, f"ranks {first['ranks']}, not {ranks}: {first['message']}")
        expect(not phase or first["phase"] == phase, f"phase {first['phase']}, not {phase}")
        expect(first["detected_after_s"] < NAMED_WITHIN, f"detected after {first['detected_after_s']:.2f} s")
        expect(len(failures) == 1, f"{len(failures)} incidents: {[line['message'] for line in failures]}")
        run.nothing_lost()
        expect(run.curve() == self.baseline(layout), "another loss curve than the unbroken run's")
        recoveries = run.incidents("recovery")
        expect(len(recoveries) == 1, f"{len(recoveries)} recoveries")
        expect(0 <= recoveries[0]["steps_lost"] <= 4 + 1, f"{recoveries[0]['steps_lost']} steps lost")
        run.no_process_left()
        parts = ", ".join(f"{part} {recoveries[0][part + '_s']:.2f}"
                          for part in ["end", "wait", "launch", "load", "repeat", "next"])
        self.figures.append(f"recovery of {run.out.name}: {recoveries[0]['steps_lost']} steps lost; seconds: {parts}")
        return first


def kill_cases() -> list[tuple[str, object]]:
    layouts = {"tp": ("--layout.tp 2 --layout.dp 2", 1), "pp": ("--layout.pp 2 --layout.dp 2", 2), "dp": ("--layout.dp 3", 2)}
    cases = []
    for phase in ["forward", "backward", "reduce", "optimizer", "save"]:
        for axis, (layout, rank) in layouts.items():
            step = 8 if phase == "save" else 7

            def case(matrix: Matrix, name: str, layout=layout, rank=rank, phase=phase, step=step) -> None:
                run = matrix.run(name, f"{layout} --supervise.launcher mpirun "
                                       f"--inject kill:rank={rank},step={step},phase={phase}").start()
                named = matrix.recovered(run, layout, "died", [rank], phase="" if phase == "save" else phase)
                expect(named["signal"] == 9, f"signal {named['signal']}")

            cases.append((f"kill-{axis}-rank-in-{phase}", case))
    return cases


def stopped_rank(matrix: Matrix, name: str) -> None:
    layout = "--layout.dp 3"
    run = matrix.run(name, f"{layout} --supervise.launcher mpirun --inject stop:rank=1,step=7").start()
    first = matrix.goes_on(run, layout, "hung", [1])
    expect(first["detected_after_s"] < 6, f"detected after {first['detected_after_s']} s")


def stuck_rank(matrix: Matrix, name: str) -> None:
    """Its process goes on saying that it lives."""
    layout = "--layout.tp 2 --layout.dp 2"
    run = matrix.run(name, f"{layout} --supervise.launcher mpirun --inject hang:rank=3,step=7,phase=backward").start()
    matrix.goes_on(run, layout, "hung", [3])


def stuck_thread(matrix: Matrix, name: str) -> None:
    layout = "--layout.dp 3"
    run = matrix.run(name, f"{layout} --inject hang:rank=2,step=7,phase=reduce").start()
    matrix.goes_on(run, layout, "hung", [2])


def both_of_a_host(matrix: Matrix, name: str) -> None:
    layout = "--layout.tp 2 --layout.dp 2"
    run = matrix.run(name, f"{layout} --supervise.hosts a:2,b:2 --supervise.rehearsal true "
                           "--inject kill:rank=2,step=7;kill:rank=3,step=7").start()
    first = matrix.goes_on(run, layout, "died")
    expect(first["host"] == "b", f"named {first}")


def supervisor_killed(matrix: Matrix, name: str) -> None:
    layout = "--layout.dp 3"
    run = matrix.run(name, f"{layout} --supervise.launcher mpirun --train.steps 12").start("--inject slow:rank=0,step=6,factor=20")
    run.until_step(7)
    run.kill_supervisor(2.0)
    expect(run.finish() == 0, f"exit code {run.process.returncode}")
    expect(run.incidents()[0]["kind"] == "supervisor", f"named {run.incidents()[0]}")
    expect(run.curve() == matrix.baseline(layout), "another loss curve")
    run.no_process_left(6)


def worker_killed(matrix: Matrix, name: str) -> None:
    layout = "--layout.dp 3"
    run = matrix.run(name, f"{layout} --inject kill:rank=1,step=7,phase=backward").start()
    matrix.recovered(run, layout, "died", [0, 1, 2])


def segmentation_fault(matrix: Matrix, name: str) -> None:
    layout = "--layout.pp 2 --layout.dp 2"
    run = matrix.run(name, f"{layout} --supervise.launcher mpirun --inject segv:rank=3,step=7,phase=forward").start()
    named = matrix.recovered(run, layout, "died", [3], phase="forward")
    expect(named["signal"] == 11, f"signal {named['signal']}")


def silent_exit(matrix: Matrix, name: str) -> None:
    layout = "--layout.dp 3"
    run = matrix.run(name, f"{layout} --supervise.launcher mpirun --inject exit:rank=0,step=7,phase=optimizer").start()
    named = matrix.recovered(run, layout, "died", [0])
    expect(named["code"] == 3, f"code {named['code']}")


def disk_full_once(matrix: Matrix, name: str) -> None:
    layout = "--layout.dp 3"
    run = matrix.run(name, f"{layout} --supervise.launcher mpirun --inject disk-full:rank=1,step=8").start()
    first = matrix.goes_on(run, layout, "failed", [1])
    expect(first["code"] == 79, f"named {first}")


def disk_full_for_good(matrix: Matrix, name: str) -> None:
    run = matrix.run(name, "--layout.dp 3 --inject disk-full:rank=1,step=8,times=always --supervise.backoff 0.1s "
                           "--supervise.retries 2").start()
    expect(run.wait() == 79, f"exit code {run.process.returncode}")
    run.no_process_left()


def flipped_bit(matrix: Matrix, name: str) -> None:
    layout = "--layout.dp 3"
    run = matrix.run(name, f"{layout} --inject flip:rank=0,step=12").start()
    expect(run.wait() == 0, f"exit code {run.process.returncode}")
    expect("is damaged and passed over" in run.printed(), "the damage is not told")
    expect(run.incidents("recovery")[0]["steps_lost"] in range(7, 9), f"lost {run.incidents('recovery')[0]}")
    expect(run.curve() == matrix.baseline(layout), "another loss curve")
    run.no_process_left()


def no_whole_checkpoint(matrix: Matrix, name: str) -> None:
    run = matrix.run(name, "--layout.dp 3 --supervise.backoff 0.1s --inject flip:rank=0,step=7").start()
    expect(run.wait() == 79, f"exit code {run.process.returncode}")
    expect("none of 1 checkpoint is whole" in run.printed(), "the damage is not told")
    run.no_process_left()


def nan_once(matrix: Matrix, name: str) -> None:
    layout = "--layout.dp 3"
    run = matrix.run(name, f"{layout} --supervise.launcher mpirun --inject nan:rank=1,step=7").start()
    first = matrix.goes_on(run, layout, "failed")
    expect(first["code"] == 72 and first["step"] == 7, f"named {first}")


def nan_for_good(matrix: Matrix, name: str) -> None:
    run = matrix.run(name, "--layout.dp 3 --inject nan:rank=1,step=7,times=always").start()
    expect(run.wait() == 72, f"exit code {run.process.returncode}")
    run.no_process_left()


def preempted(matrix: Matrix, name: str, send=lambda run: os.kill(run.process.pid, signal.SIGTERM),
              launcher: str = "mpirun") -> None:
    layout = "--layout.dp 3"
    run = matrix.run(name, f"{layout} --supervise.launcher {launcher}").start("--inject slow:rank=0,step=5,factor=10")
    run.until_step(6)
    send(run)
    expect(run.wait() == 76, f"exit code {run.process.returncode}")
    run.no_process_left()
    done = run.metrics()[-1]["step"]
    expect(done < STEPS, "it was not stopped")
    expect((run.out / "checkpoints" / f"step-{done:08d}").is_dir(), f"no checkpoint of step {done}")
    expect(run.finish() == 0, f"going on: exit code {run.process.returncode}")
    expect(run.curve() == matrix.baseline(layout), "another loss curve")
    expect(not run.incidents(), f"incidents {run.incidents()}")
    run.no_process_left()


def preempted_by_user_signal(matrix: Matrix, name: str) -> None:
    preempted(matrix, name, lambda run: os.kill(run.process.pid, signal.SIGUSR1), "threads")


def preempted_by_file(matrix: Matrix, name: str) -> None:
    preempted(matrix, name, lambda run: (run.out / "stop").write_text(""), "threads")


def interrupted(matrix: Matrix, name: str) -> None:
    run = matrix.run(name, "--layout.dp 3").start("--inject slow:rank=0,step=5,factor=10")
    run.until_step(6)
    run.process.send_signal(signal.SIGINT)
    expect(run.wait() == 130, f"exit code {run.process.returncode}")
    run.no_process_left()


def crash_loop(matrix: Matrix, name: str) -> None:
    run = matrix.run(name, "--layout.dp 3 --supervise.launcher mpirun --supervise.retries 2 --supervise.backoff 0.1s "
                           "--inject kill:rank=1,step=3,times=always").start()
    expect(run.wait() == 78, f"exit code {run.process.returncode}")
    expect("the same each time: killed by signal 9: rank 1" in run.printed(), f"no diagnosis: {run.printed()[-2000:]}")
    expect(len(run.incidents()) == 3, f"{len(run.incidents())} incidents")
    run.no_process_left()


def two_at_once(matrix: Matrix, name: str) -> None:
    run = matrix.run(name, "--layout.dp 3").start("--inject slow:rank=0,step=3,factor=10")
    run.until_step(2)
    other = matrix.run(name, "--layout.dp 3")
    other.log = matrix.folder / f"{name}-other.log"
    expect(other.finish() == 2, f"the second: exit code {other.process.returncode}")
    expect(f"process {run.process.pid}" in other.printed(), f"the holder is not named: {other.printed()}")
    expect(run.wait() == 0, f"the first: exit code {run.process.returncode}")
    run.no_process_left()


def slowed(matrix: Matrix, name: str) -> None:
    run = Run(matrix.program, matrix.folder, name,
              "--layout.dp 2 --supervise.launcher mpirun --train.steps 45 --train.global_batch 384 "
              "--checkpoint.interval 100 --supervise.straggler_span 0.1s --inject slow:rank=1,step=15,factor=2").start()
    expect(run.wait() == 0, f"exit code {run.process.returncode}")
    slow = [line for line in run.incidents() if line["kind"] == "slow"]
    expect(len(slow) == 1 and slow[0]["ranks"] == [1], f"named {run.incidents()}")
    expect(slow[0]["step"] <= 36, f"named in step {slow[0]['step']}")
    run.no_process_left()


CASES = kill_cases()
OTHERS = [stopped_rank, stuck_rank, stuck_thread, both_of_a_host, supervisor_killed, worker_killed, segmentation_fault,
          silent_exit, disk_full_once, disk_full_for_good, flipped_bit,
          no_whole_checkpoint, nan_once, nan_for_good, preempted,
          preempted_by_user_signal, preempted_by_file, interrupted, crash_loop, two_at_once, slowed]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("mpirun")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    cases = CASES if options.all or options.only else CASES[::3]
    cases = [(name, case) for name, case in cases + runs.named(OTHERS) if options.only in name]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        runs.make_data(options.program, folder, STEPS)
        matrix = Matrix(options.program, folder)
        bound = [(name, functools.partial(case, matrix, name)) for name, case in cases]
        return runs.run_cases(folder, bound, matrix.figures)


if __name__ == "__main__":
    sys.exit(main())
