#!/usr/bin/env python3
"""Supervised runs over hosts that are network namespaces of this machine: real host lists, and a control channel by TCP.
Hosts are cut off and come back, strangers knock at the supervisor's port, the supervisor is killed. Exit code 77: this
machine cannot make namespaces (which test runners take for skipped).

    hosts_runs.py PROGRAM MPIRUN [--only NAME]
"""

import argparse
import contextlib
import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import runs
from runs import Broken, Run, expect

import namespaces  # runs knows where

SKIPPED = 77
RANKS, STEPS, EVERY = 3, 40, 4  # a save each EVERY steps
STEP_S = 0.15  # of the runs that are broken: long enough to break them in a known place
LAYOUT = f"--layout.dp {RANKS}"
AWAY = RANKS  # a host that is in no list of hosts


def troubles(run: Run) -> list[dict]:
    """Failures that it tells of; how fast ranks are is not what is looked at here."""
    return [line for line in run.incidents() if line["kind"] != "slow"]


class Watch:
    """Sees, all the time, which rank processes of a run there are, of which start and on which host."""

    def __init__(self, run: Run):
        self.run = run
        self.seen: dict[int, tuple[int, str]] = {}  # process: incarnation, host
        self.first: dict[int, float] = {}
        self.last: dict[int, float] = {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Watch":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.ended.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.ended.wait(0.03):
            for process in self.run.workers():
                moment = time.monotonic()
                if process not in self.seen:
                    words = variables_of(process)
                    if "OMPI_COMM_WORLD_RANK" not in words:  # the launcher
                        continue
                    self.seen[process] = (int(words["TRIREME_INCARNATION"]), words["TRIREME_HOST"])
                    self.first[process] = moment
                self.last[process] = moment

    def never_two_writers(self) -> None:
        for process, (incarnation, host) in self.seen.items():
            for other, (later, _) in self.seen.items():
                expect(later <= incarnation or self.last[process] <= self.first[other],
                       f"a process of start {incarnation} on {host} lived when start {later} had begun")

    def last_of(self, incarnation: int, host: str) -> float:
        return max(moment for process, moment in self.last.items() if self.seen[process] == (incarnation, host))

    def hosts_of(self, incarnation: int) -> set[str]:
        return {host for start, host in self.seen.values() if start == incarnation}


def variables_of(process: int) -> dict[str, str]:
    try:
        words = pathlib.Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)


def words_of(process: int) -> str | None:
    try:
        words = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    return words or None  # none: it has ended


class Field:
    """Hosts, the words that start a run on them, and the curves that runs must have."""

    def __init__(self, options: argparse.Namespace, folder: pathlib.Path):
        self.folder, self.program, self.mpirun = folder, options.program, options.mpirun
        self.hosts = namespaces.Hosts(RANKS + 1, "1gbit", folder)
        self.slow = ""

    def measure(self) -> None:
        runs.make_data(self.program, self.folder, STEPS)
        unbroken = self.by_threads("threads", RANKS)
        step_s = min(line["step_s"] for line in unbroken.metrics())
        factor = max(STEP_S / step_s, 1.5)
        self.slow = ";".join(f"slow:rank={rank},step=1,times=always,factor={factor:.1f}" for rank in range(RANKS))

    def by_threads(self, name: str, degree: int, options: str = "") -> Run:
        """A run that nothing breaks, with a checkpoint of every step."""
        run = Run(self.program, self.folder, name, f"--layout.dp {degree} --checkpoint.interval 1 "
                                                   f"--checkpoint.keep_last {STEPS} {options}")
        expect(run.finish() == 0, f"{name}: exit code {run.process.returncode}")
        return run

    def curve_of(self, run: Run) -> list[tuple]:
        """The curve that this run must have: of threads that change their number in the same steps. Sums over another
        number of replicas have other roundings."""
        same = Run(self.program, self.folder, "threads", "")
        curve = same.curve()
        changes: dict[int, int] = {}  # incarnation: its first step
        for line in run.metrics():
            changes.setdefault(line["incarnation"], line["step"])
        degrees = {line["incarnation"]: int(re.match(r"dp (\d+) ", line["layout_after"])[1])
                   for line in run.incidents("recovery")}
        degree = RANKS
        for incarnation, first in list(changes.items())[1:]:
            if degrees.get(incarnation, degree) == degree:
                continue
            degree = degrees[incarnation]
            same = self.by_threads(f"{run.out.name}-threads-{incarnation}", degree,
                                   f"--resume {same.out}/checkpoints/step-{first - 1:08d}")
            curve = curve[:first - 1] + same.curve()
        return curve

    def run(self, name: str, slow: bool = True) -> Run:
        run = Run(self.program, self.folder, name, f"{LAYOUT} --checkpoint.interval {EVERY} --train.deadline 60 "
                                                   "--supervise.cooldown 2s --supervise.backoff 0.1s")
        places = ",".join(f"{host}:1" for host in self.hosts.names[:RANKS])
        run.command += ["--supervise.hosts", places, "--supervise.mpirun",
                        f"{self.mpirun} --mca plm_rsh_agent {self.hosts.shell} --mca oob_tcp_if_include eth0 "
                        "--mca btl self,vader,tcp --mca btl_tcp_if_include eth0 --mca pml ob1 "
                        "--mca mpi_yield_when_idle 1"]
        run.command += ["--inject", self.slow] if slow else []
        return run

    def on(self, host: int) -> list[str]:
        """A command's words before it, for it to run on a host: under this process, and under the host's name."""
        name = self.hosts.names[host]
        return ["ip", "netns", "exec", name, "unshare", "--uts", "/bin/sh", "-c", 'hostname "$0"; exec "$@"', name]

    def processes(self) -> dict[int, str]:
        found = {}
        for name in self.hosts.names:
            listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=True).stdout
            for process in map(int, listed.split()):
                if (words := words_of(process)) is not None:
                    found[process] = f"{name}: {words}"
        return found

    def kill(self, processes: dict[int, str]) -> None:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def close(self) -> None:
        self.kill(self.processes())
        self.hosts.close()

    def nothing_runs(self, seconds: float) -> float:
        """No process on any host, daemons of the launcher included."""
        begun = time.monotonic()
        while left := self.processes():
            if time.monotonic() - begun > seconds:
                self.kill(left)
                raise Broken(f"left on the hosts after {seconds} s: {left}")
            time.sleep(0.1)
        return time.monotonic() - begun


def whole(field: Field, run: Run) -> None:
    """What holds of every run at its end."""
    expect(run.wait() == 0, f"exit code {run.process.returncode}")
    expect(run.curve() == field.curve_of(run), "another loss curve")
    run.nothing_lost()
    run.no_process_left()


def unbroken(field: Field) -> str:
    run = field.run("unbroken", slow=False).start(prefix=field.on(0))
    with Watch(run) as watch:
        whole(field, run)
    expect(not troubles(run), f"incidents {troubles(run)}")
    expect(watch.hosts_of(1) == set(field.hosts.names[:RANKS]), f"ranks were on {watch.hosts_of(1)}")
    gone = field.nothing_runs(3)
    return f"daemons gone after {gone:.1f} s"


def lost(field: Field, run: Run, watch: Watch, host: int, step: int) -> str:
    """Cuts a host off in this step, and sees the run go on without it."""
    name = field.hosts.names[host]
    run.until_step(step)
    cut = time.monotonic()
    field.hosts.set_links([host], "down")
    run.until(lambda: troubles(run), "incident", 5)
    named = time.monotonic() - cut
    failure = troubles(run)[0]
    expect(failure["kind"] == "host_lost" and failure["host"] == name, f"named {failure}")
    expect(failure["ranks"] == [host], f"named {failure}")
    expect(named < 3 and failure["detected_after_s"] < 3, f"named after {named:.2f} s: {failure}")
    run.until(lambda: any(start == 2 for start, _ in list(watch.seen.values())), "second start", 10)
    ended = watch.last_of(1, name) - cut
    expect(ended < 3, f"its processes ended after {ended:.2f} s")
    run.until(lambda: run.incidents("recovery"), "recovery", 15)
    recovered = time.monotonic() - cut
    recovery = run.incidents("recovery")[0]
    before, after = run.printed().split("host_lost:", 1)
    durable = [int(step) for step in re.findall(r"checkpoint of step (\d+) is durable", before)]  # that was heard of
    begun = int(re.search(r"goes on from step (\d+) of", after)[1])
    expect(begun >= max(durable, default=0), f"step {durable} was durable: {after}")
    expect(name not in watch.hosts_of(2), f"the second start was on {watch.hosts_of(2)}")
    return (f"named after {named:.2f} s, processes there ended after {ended:.2f} s, a new step after {recovered:.1f} s, "
            f"{recovery['steps_lost']} steps lost")


def cut_off(field: Field) -> str:
    host = RANKS - 1
    run = field.run("cut-off").start(prefix=field.on(0))
    with Watch(run) as watch:
        try:
            told = lost(field, run, watch, host, EVERY + 2)
        finally:
            field.hosts.set_links([host], "up")
        up = time.monotonic()
        run.until(lambda: any(start == 3 for start, _ in list(watch.seen.values())), "third start", 20)
        back = time.monotonic() - up
        whole(field, run)
    expect(watch.hosts_of(3) == set(field.hosts.names[:RANKS]), f"the third start was on {watch.hosts_of(3)}")
    expect(len(troubles(run)) == 1, f"incidents {troubles(run)}")
    watch.never_two_writers()
    gone = field.nothing_runs(3)
    return f"{told}; used again {back:.1f} s after it was there again; daemons gone after {gone:.1f} s"


def first_rank_cut_off(field: Field) -> str:
    run = field.run("first-rank-cut-off").start(prefix=field.on(AWAY))
    with Watch(run) as watch:
        try:
            told = lost(field, run, watch, 0, EVERY + 2)
            whole(field, run)
        finally:
            field.hosts.set_links([0], "up")
    watch.never_two_writers()
    gone = field.nothing_runs(3)
    return f"{told}; daemons gone after {gone:.1f} s"


def two_cut_off(field: Field) -> str:
    """At once: one more than is named."""
    run = field.run("two-cut-off").start(prefix=field.on(AWAY))
    with Watch(run) as watch:
        try:
            run.until_step(EVERY + 2)
            cut = time.monotonic()
            field.hosts.set_links([1, 2], "down")
            run.until(lambda: run.incidents("recovery"), "recovery", 20)
            recovered = time.monotonic() - cut
            whole(field, run)
        finally:
            field.hosts.set_links([1, 2], "up")
    expect([line["kind"] for line in troubles(run)] == ["host_lost"], f"incidents {run.incidents()}")
    expect(watch.hosts_of(2) == {field.hosts.names[0]}, f"the second start was on {watch.hosts_of(2)}")
    watch.never_two_writers()
    gone = field.nothing_runs(3)
    return f"a new step after {recovered:.1f} s; daemons gone after {gone:.1f} s"


def not_there_at_the_start(field: Field) -> str:
    """The launcher waits for that host, and begins on none."""
    run = field.run("not-there-at-the-start", slow=False)
    field.hosts.set_links([RANKS - 1], "down")
    try:
        with Watch(run) as watch:
            run.start("--train.start_deadline 4", prefix=field.on(AWAY))
            expect(run.wait() == 0, f"exit code {run.process.returncode}")
    finally:
        field.hosts.set_links([RANKS - 1], "up")
    expect([line["kind"] for line in troubles(run)] == ["not_started"], f"incidents {run.incidents()}")
    expect(watch.hosts_of(2) == set(field.hosts.names[:RANKS - 1]), f"the second start was on {watch.hosts_of(2)}")
    run.nothing_lost()
    gone = field.nothing_runs(10)  # what the launcher reaches hosts with waits for the host to answer
    return f"daemons gone after {gone:.1f} s"


# What talks to the supervisor's port without its secret, from another host: port in words, each way in turn, for ever.
STRANGER = """
import socket, sys, time
where = (sys.argv[1], int(sys.argv[2]))
words = [b"", b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", b"\\0" * 4096, b"\\xff" * 70000, bytes(range(256)) * 16,
         b'{"type":"hello","secret":"","incarnation":1,"ranks":[0]}\\n']
kept = []
turn = 0
while True:
    try:
        one = socket.create_connection(where, timeout=1)
        one.setblocking(False)
        if words[turn % len(words)]:
            one.send(words[turn % len(words)])
        kept.append(one)
    except OSError:
        time.sleep(0.05)
    turn += 1
    if len(kept) > 1000:
        print(turn, flush=True)
        for old in kept:
            old.close()
        kept = []
    if turn % 50 == 0:
        time.sleep(0.01)
"""


def strangers(field: Field) -> str:
    run = field.run("strangers", slow=False).start(prefix=field.on(0))
    run.until(lambda: run.workers(), "worker", 10)
    address = variables_of(next(iter(run.workers())))["TRIREME_CONTROL"]
    port = address.rsplit(":", 1)[1]
    with open(field.folder / "stranger.log", "w") as sink:
        stranger = subprocess.Popen([*field.on(AWAY), sys.executable, "-c", STRANGER, field.hosts.names[0], port],
                                    stdout=sink, stderr=subprocess.STDOUT)
    try:
        whole(field, run)
    finally:
        stranger.kill()
        stranger.wait()
    printed = (field.folder / "stranger.log").read_text().split()
    expect(printed and all(word.isdigit() for word in printed), f"the stranger said {printed}")
    expect(not troubles(run), f"incidents {troubles(run)}")
    field.nothing_runs(3)
    return f"{printed[-1]} connections at {address}"


def supervisor_killed(field: Field) -> str:
    run = field.run("supervisor-killed").start(prefix=field.on(0))
    with Watch(run) as watch:
        run.until_step(EVERY + 2)
        took = run.kill_supervisor(2.5)
        gone = field.nothing_runs(5)
        run.start(prefix=field.on(0))
        whole(field, run)
    failures = troubles(run)
    expect([failure["kind"] for failure in failures] == ["supervisor"], f"named {failures}")
    watch.never_two_writers()
    field.nothing_runs(3)
    return f"workers on all hosts ended after {took:.2f} s, daemons after {gone:.1f} s more"


CASES = [unbroken, cut_off, first_rank_cut_off, two_cut_off, not_there_at_the_start, strangers,
         supervisor_killed]


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what it has made is taken down then, too
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("mpirun")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    cases = [(name, case) for name, case in runs.named(CASES) if options.only in name]
    with tempfile.TemporaryDirectory() as name:
        try:
            field = Field(options, pathlib.Path(name))
        except namespaces.Unavailable as lacking:
            print(f"skipped: no network namespaces here: {lacking}")
            return SKIPPED
        try:
            field.measure()
            return runs.run_cases(field.folder, [(name, functools.partial(case, field)) for name, case in cases])
        finally:
            field.close()


if __name__ == "__main__":
    sys.exit(main())
