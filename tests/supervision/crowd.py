#!/usr/bin/env python3
"""Strangers who do not know the secret hold as many connections to a run's supervisor as they get, and a rank dies in the
midst of it: its workers get in, nothing else is lost.

    crowd.py PROGRAM [MPIRUN] [--held 300] [--threads 1] [--only TEXT]
"""

import argparse
import functools
import os
import pathlib
import signal
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import runs  # noqa: E402
from runs import Run, expect  # noqa: E402

NOBODY = 65534


def sockets_of(process: int) -> set[str]:
    """Inodes."""
    found = set()
    for entry in pathlib.Path(f"/proc/{process}/fd").iterdir():
        try:
            link = os.readlink(entry)
        except OSError:
            continue
        if link.startswith("socket:["):
            found.add(link[8:-1])
    return found


def local_name(process: int) -> str:
    own = sockets_of(process)
    for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        if words[6] in own and words[3] == "00010000":
            return words[7][1:]
    raise runs.Broken("no local socket listens")


def tcp_end(process: int) -> tuple[str, int]:
    own = sockets_of(process)
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[9] in own and words[3] == "0A":
            host, port = words[1].split(":")
            return ".".join(str(byte) for byte in reversed(bytes.fromhex(host))), int(port, 16)
    raise runs.Broken("no TCP socket listens on IPv4")


def crowd(target: str | tuple[str, int], most: int) -> None:
    """Holds so many connections, the newest."""
    held: list[socket.socket] = []
    while True:
        try:
            one = socket.socket(socket.AF_UNIX if isinstance(target, str) else socket.AF_INET)
            one.settimeout(0.5)
            one.connect("\0" + target if isinstance(target, str) else target)
            held.append(one)
            if len(held) > most:
                held.pop(0).close()
        except OSError:
            time.sleep(0.001)


class Crowd:
    def __init__(self, target: str | tuple[str, int], options: argparse.Namespace):
        self.process = os.fork()
        if self.process > 0:
            return
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        for _ in range(options.threads):
            threading.Thread(target=crowd, args=(target, options.held // options.threads), daemon=True).start()
        time.sleep(600)
        os._exit(0)

    def end(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)


def in_a_crowd(program: str, folder: pathlib.Path, options: argparse.Namespace, name: str, words: str, find) -> None:
    run = Run(program, folder, name, f"--layout.dp 2 --train.steps 60 --checkpoint.interval 10 {words} "
                                     "--inject kill:rank=0,step=45;slow:rank=0,step=30,factor=40").start()
    run.until_step(20)
    strangers = Crowd(find(run.process.pid), options)
    try:
        expect(run.wait(60) == 0, f"exit code {run.process.returncode}")
    finally:
        strangers.end()
    kinds = [line["kind"] for line in run.incidents()]
    expect(kinds.count("slow") == len(kinds) - 1 and "died" in kinds, f"incidents {kinds}")
    run.nothing_lost()
    run.no_process_left()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("mpirun", nargs="?")
    parser.add_argument("--held", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        runs.make_data(options.program, folder, 60)
        cases = [("local", "", local_name)]
        if options.mpirun:
            (folder / "hosts").write_text("127.0.0.1 slots=2\n")
            cases.append(("tcp", f"--supervise.mpirun {options.mpirun} --supervise.hosts {folder}/hosts "
                                 "--supervise.address 127.0.0.1", tcp_end))
        bound = [(name, functools.partial(in_a_crowd, options.program, folder, options, name, words, find))
                 for name, words, find in cases if options.only in name]
        return runs.run_cases(folder, bound)


if __name__ == "__main__":
    sys.exit(main())
