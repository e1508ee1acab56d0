#!/usr/bin/env python3
"""Runs that lose hosts and get them back: they go on by themselves on what is left, with every sample used once and the
unbroken run's curve, and return to all hosts when these are there again. The hosts are names, all of them this machine.

    reshape_runs.py PROGRAM MPIRUN [--all] [--only TEXT]

Without --all one run of each kind.
"""

import argparse
import functools
import os
import pathlib
import signal
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import runs  # noqa: E402
from runs import Broken, Run, expect  # noqa: E402

STEPS, BATCH, SEQUENCE = 20, 24, 24
INTERVAL = 4
NEAR = 2e-6      # relative, as tests/equality has it for layouts that sum in another order
AS_FAST = 1.10   # a step on fewer hosts, of one of the same layout started by hand
ATTEMPTS = 2     # at that: this machine has other work
TWICE = "--inject kill:rank=6,step=7;kill:rank=6,step=9"


def replicas(count: int) -> str:
    return f"dp {count} x tp 1 x pp 1, zero 0"


EIGHT, SIX = replicas(8), replicas(6)


class Shapes:
    def __init__(self, program: str, mpirun: str, folder: pathlib.Path):
        self.program, self.mpirun, self.folder = program, mpirun, folder
        self.unbroken: dict[str, Run] = {}
        self.figures: list[str] = []

    def run(self, name: str, hosts: str, options: str) -> Run:
        return Run(self.program, self.folder, name,
                   f"--supervise.hosts {hosts} --supervise.rehearsal true --supervise.mpirun {self.mpirun} "
                   f"--supervise.backoff 0.1s --checkpoint.interval {INTERVAL} --checkpoint.keep_last 2 {options}")

    def curve_of(self, options: str) -> Run:
        """Nothing broken, with ranks as threads, whose bits are those of processes."""
        if options not in self.unbroken:
            run = Run(self.program, self.folder, f"unbroken-{len(self.unbroken)}",
                      f"--supervise.launcher none --checkpoint.interval none {options}")
            expect(run.finish() == 0, f"the unbroken run: {run.printed()[-2000:]}")
            self.unbroken[options] = run
        return self.unbroken[options]

    def tell(self, text: str) -> None:
        self.figures.append(text)


def nothing_lost(run: Run, batch: int = BATCH) -> None:
    """Each step once, and in it the samples after those of the step before."""
    run.nothing_lost()
    for line in run.metrics():
        first = (line["step"] - 1) * batch
        used = (line["first_sample"], line["samples"], line["tokens"])
        expect(used == (first, batch, (first + batch) * SEQUENCE), f"step {line['step']} used {used}")


def apart(run: Run, unbroken: Run) -> float:
    """The largest relative distance of a loss from the unbroken run's."""
    pairs = list(zip(run.metrics(), unbroken.metrics(), strict=True))
    worst = max(abs(a["loss"] - b["loss"]) / abs(b["loss"]) for a, b in pairs)
    expect(worst <= NEAR, f"losses are {worst:.2g} apart")
    return worst


def ended(run: Run, code: int = 0) -> None:
    found = run.wait()
    expect(found == code, f"exit code {found}, not {code}")
    run.no_process_left()


def failures(run: Run) -> list[tuple]:
    """Without those that are slow for a while only because this machine is."""
    return [(line["kind"], line["ranks"], line["host"]) for line in run.incidents() if line["kind"] != "slow"]


def layouts(run: Run) -> list[str]:
    """Of each start, as the ways from one to the next have them."""
    ways = run.incidents("recovery")
    return [ways[0]["layout_before"]] + [way["layout_after"] for way in ways] if ways else []


def rewrite(path: pathlib.Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def processes_of_host(run: Run, host: str) -> list[int]:
    """Keepers and rank processes there."""
    found = []
    for process in run.workers():
        try:
            variables = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"TRIREME_HOST={host}".encode() in variables:
            found.append(process)
    return found


def all_send(processes: list[int], number: int) -> None:
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue


def fails_twice(shapes: Shapes, name: str) -> None:
    """A host that fails twice within the hour is left out."""
    run = shapes.run(name, "a:2,b:2,c:2,d:2", f"--layout.dp 8 {TWICE}").start()
    ended(run)
    expect(failures(run) == [("died", [6], "d")] * 2, f"incidents {failures(run)}")
    actions = [line["action"] for line in run.incidents()]
    expect(actions == ["restart", f"leave out d, go on as {SIX}"], f"actions {actions}")
    expect(layouts(run) == [EIGHT, EIGHT, SIX], f"layouts {layouts(run)}")
    nothing_lost(run)
    shapes.tell(f"{name}: losses at most {apart(run, shapes.curve_of('--layout.dp 8')):.2g} apart")


def tensor_groups_stay_whole(shapes: Shapes, name: str) -> None:
    """Of replicas that are pairs of ranks, one a host."""
    run = shapes.run(name, "a:2,b:2,c:2,d:2", f"--layout.tp 2 --layout.dp 4 {TWICE}").start()
    ended(run)
    expect(layouts(run)[:2] == ["dp 4 x tp 2 x pp 1, zero 0"] * 2, f"layouts {layouts(run)}")
    expect(layouts(run)[2].split(",")[0] in ("dp 3 x tp 2 x pp 1", "dp 6 x tp 1 x pp 1"), f"layouts {layouts(run)}")
    nothing_lost(run)
    worst = apart(run, shapes.curve_of("--layout.tp 2 --layout.dp 4"))
    shapes.tell(f"{name}: went on as {layouts(run)[2]}, losses at most {worst:.2g} apart")


def spare(shapes: Shapes, name: str) -> None:
    """It takes the place of a host that fails twice: the same layout, and so the same bits."""
    run = shapes.run(name, "a:2,b:2,c:2,d:2:spare",
                     "--layout.dp 6 --inject kill:rank=4,step=7;kill:rank=4,step=9").start()
    ended(run)
    expect(failures(run) == [("died", [4], "c")] * 2, f"incidents {failures(run)}")
    actions = [line["action"] for line in run.incidents()]
    expect(actions == ["restart", "leave out c, go on on a:2 b:2 d:2"], f"actions {actions}")
    expect(layouts(run) == [SIX] * 3, f"layouts {layouts(run)}")
    nothing_lost(run)
    expect(run.curve() == shapes.curve_of("--layout.dp 6").curve(), "other bits than the unbroken run's")


def returns_by_hosts_file(shapes: Shapes, name: str) -> None:
    """Its line is taken away, and comes back: out in order, back after the next checkpoint."""
    hosts, without = "a:2\nb:2\nc:2\nd:2\n", "a:2\nb:2\nc:2\n"
    file = shapes.folder / f"{name}.hosts"
    file.write_text(hosts)
    steps = 60
    run = shapes.run(name, str(file), f"--layout.dp 8 --train.steps {steps}").start()
    run.until_step(6)
    rewrite(file, without)
    run.until(lambda: any(line["incarnation"] == 2 for line in run.metrics()), "step of the second start")
    rewrite(file, hosts)
    ended(run)
    expect(failures(run) == [], f"incidents {failures(run)}")
    expect(layouts(run) == [EIGHT, SIX, EIGHT], f"layouts {layouts(run)}")
    nothing_lost(run)
    lost = [way["steps_lost"] for way in run.incidents("recovery")]
    expect(lost[0] == 0 and lost[1] <= INTERVAL, f"steps lost {lost}")
    starts = [[line["step"] for line in run.metrics() if line["incarnation"] == start] for start in (1, 2, 3)]
    expect(len(starts[1]) <= 4 * INTERVAL, f"{len(starts[1])} steps on fewer hosts than there were")
    worst = apart(run, shapes.curve_of(f"--layout.dp 8 --train.steps {steps}"))
    shapes.tell(f"{name}: {len(starts[0])}, {len(starts[1])} and {len(starts[2])} steps of the starts, steps lost "
                f"{lost}, losses at most {worst:.2g} apart")


def returns_after_cooldown(shapes: Shapes, name: str) -> None:
    """Left out for failing twice; tried again; used after the next checkpoint."""
    steps = 60
    run = shapes.run(name, "a:2,b:2,c:2,d:2",
                     f"--layout.dp 8 --train.steps {steps} --supervise.cooldown 1s {TWICE}").start()
    ended(run)
    expect(failures(run) == [("died", [6], "d")] * 2, f"incidents {failures(run)}")
    expect(layouts(run) == [EIGHT, EIGHT, SIX, EIGHT], f"layouts {layouts(run)}")
    nothing_lost(run)
    worst = apart(run, shapes.curve_of(f"--layout.dp 8 --train.steps {steps}"))
    shapes.tell(f"{name}: losses at most {worst:.2g} apart")


SLOW_BATCH, SLOW_FROM = 384, 20
LARGER = f"--train.global_batch {SLOW_BATCH} --checkpoint.interval 1000"  # steps long enough to measure
SLOW = f"{LARGER} --train.steps 60 --supervise.straggler_span 0.1s"


def slow_attempts(shapes: Shapes, name: str, hosts: str, ranks: int, left: int, well) -> None:
    """The last rank is slow, and its host, d, is left out; then `well` says whether all is. Once more where other work
    of this machine was in the way."""
    spoiled = []
    for attempt in range(ATTEMPTS):
        run = shapes.run(f"{name}-{attempt}", hosts, f"--layout.dp {ranks} {SLOW} --supervise.stragglers evict "
                         f"--inject slow:rank={ranks - 1},step={SLOW_FROM},factor=2")
        run.log = shapes.folder / f"{name}.log"
        ended(run.start())
        nothing_lost(run, SLOW_BATCH)
        named = [(line["kind"], line["ranks"], line["action"]) for line in run.incidents()]
        starts = [line["step"] for line in run.metrics() if line["incarnation"] == 2]
        if named != [("slow", [ranks - 1], "leave out d")] or not SLOW_FROM < starts[0] <= SLOW_FROM + 30:
            spoiled.append([line["message"] for line in run.incidents()])
            shapes.tell(f"{name}: spoiled: {spoiled[-1]}")
            continue
        expect(layouts(run) == [replicas(ranks), replicas(left)], f"layouts {layouts(run)}")
        shapes.tell(f"{name}: slow from step {SLOW_FROM} on, without it from step {starts[0]} on")
        if well(run):
            return
    raise Broken(f"in none of {ATTEMPTS} attempts; spoiled: {spoiled}")


def last_steps(run: Run) -> float:
    return statistics.median(line["step_s"] for line in run.metrics()[-10:])


def slow_host(shapes: Shapes, name: str, slots: int = 1) -> None:
    """It is left out, and the run is then as fast as the smaller layout by itself, before and after."""
    hands: list[float] = []
    hosts, left = ",".join(f"{host}:{slots}" for host in "abc"), 3 * slots

    def by_hand() -> None:
        run = shapes.run(f"{name}-by-hand-{len(hands)}", hosts, f"--layout.dp {left} {LARGER} --train.steps 25")
        ended(run.start())
        hands.append(last_steps(run))

    def as_fast(run: Run) -> bool:
        by_hand()
        ratio = last_steps(run) / statistics.mean(hands[-2:])
        shapes.tell(f"{name}: a step takes {1000 * last_steps(run):.1f} ms, of the layout by itself "
                    f"{1000 * hands[-2]:.1f} and {1000 * hands[-1]:.1f} ms: {ratio:.2f} times")
        return ratio <= AS_FAST

    by_hand()
    slow_attempts(shapes, name, f"{hosts},d:{slots}", 4 * slots, left, as_fast)


def slow_host_of_two_ranks(shapes: Shapes, name: str) -> None:
    slow_host(shapes, name, 2)


def slow_host_and_spare(shapes: Shapes, name: str) -> None:
    """The same layout, and so the same bits."""
    unbroken = shapes.curve_of(f"--layout.dp 4 --train.global_batch {SLOW_BATCH} --train.steps 60")
    slow_attempts(shapes, name, "a:1,b:1,c:1,d:1,e:1:spare", 4, 4, lambda run: run.curve() == unbroken.curve())


def silent_host(shapes: Shapes, name: str) -> None:
    """Gone without a word, and for good: the others go on; what comes back of it ends by itself."""
    run = shapes.run(name, "a:2,b:2,c:2,d:2", "--layout.dp 8 --inject slow:rank=0,step=6,factor=8").start()
    run.until_step(6)
    processes = processes_of_host(run, "d")
    all_send(processes, signal.SIGSTOP)
    try:
        expect(run.wait() == 0, f"exit code {run.process.returncode}")
    finally:
        all_send(processes, signal.SIGCONT)
    run.no_process_left(6)
    expect(failures(run) == [("host_lost", [6, 7], "d")], f"incidents {failures(run)}")
    expect(layouts(run) == [EIGHT, SIX], f"layouts {layouts(run)}")
    nothing_lost(run)
    shapes.tell(f"{name}: detected after {run.incidents()[0]['detected_after_s']:.1f} s, losses at most "
                f"{apart(run, shapes.curve_of('--layout.dp 8')):.2g} apart")


def no_layout_left(shapes: Shapes, name: str) -> None:
    """Its ranks' memory is nowhere else: the run ends, and says why."""
    run = shapes.run(name, "a:2,b:2", "--layout.tp 2 --layout.pp 2 --layout.allow_slow_tp false "
                     "--train.memory_limit 2MB --inject slow:rank=0,step=6,factor=8").start()
    run.until_step(6)
    processes = processes_of_host(run, "b")
    all_send(processes, signal.SIGSTOP)
    try:
        code = run.wait()
    finally:
        all_send(processes, signal.SIGCONT)
    expect(code == 88, f"exit code {code}")
    run.no_process_left(6)
    expect(failures(run) == [("host_lost", [2, 3], "b")], f"incidents {failures(run)}")
    expect(run.incidents()[0]["action"] == "end", f"action {run.incidents()[0]['action']}")
    expect("no layout is legal on the hosts that are left" in run.printed(), f"no verdict: {run.printed()[-1000:]}")


CASES = [fails_twice, spare, returns_by_hosts_file, no_layout_left, slow_host]
OTHERS = [tensor_groups_stay_whole, returns_after_cooldown, silent_host, slow_host_of_two_ranks,
          slow_host_and_spare]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("mpirun")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    chosen = CASES + (OTHERS if options.all or options.only else [])
    cases = [(name, case) for name, case in runs.named(chosen) if options.only in name]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        runs.make_data(options.program, folder, STEPS, BATCH)
        shapes = Shapes(options.program, options.mpirun, folder)
        bound = [(name, functools.partial(case, shapes, name)) for name, case in cases]
        return runs.run_cases(folder, bound, shapes.figures)


if __name__ == "__main__":
    sys.exit(main())
