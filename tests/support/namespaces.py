"""Hosts that are network namespaces of this machine, joined by a switch, each behind a link of a given rate.

Needs root and iproute2. Names carry this process's id, so two tests do not meet; close() takes everything down again.
"""

import os
import pathlib
import shutil
import stat
import subprocess
import sys


# Tries to reach addresses, in words, until each has answered, be it that nobody listens there.
REACH = """
import socket, sys, time
end = time.monotonic() + 10
for address in sys.argv[1:]:
    while True:
        try:
            socket.create_connection((address, 9), timeout=1).close()
        except ConnectionRefusedError:
            pass
        except OSError as lacking:
            if time.monotonic() > end:
                sys.exit(f"{address}: {lacking}")
            time.sleep(0.05)
            continue
        break
"""


class Unavailable(Exception):
    """What this machine lacks for namespaces."""


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"ip {' '.join(words)}: {done.stderr.strip()}")


def address_of(host: int) -> str:
    return f"10.77.0.{host + 1}"


class Hosts:
    def __init__(self, count: int, rate: str, folder: pathlib.Path):
        if os.geteuid() != 0:
            raise Unavailable("not root")
        for tool in ["ip", "tc", "unshare"]:
            if shutil.which(tool) is None:
                raise Unavailable(f"no program {tool}")
        self.prefix = f"tr{os.getpid()}"
        self.names = [f"{self.prefix}h{i}" for i in range(count)]
        self.switch = f"{self.prefix}s"
        try:
            self._up(rate)
        except BaseException:
            self.close()
            raise
        # What mpirun starts its daemons with: a shell on another host, under that host's name. A host whose link is
        # down keeps it waiting.
        self.shell = folder / "host_shell.sh"
        self.shell.write_text("#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1\nshift\n"
                              "while [ \"$(ip netns exec \"$host\" cat /sys/class/net/eth0/carrier)\" != 1 ]; do "
                              "sleep 0.2; done\n"
                              "exec ip netns exec \"$host\" unshare --uts /bin/sh -c \"hostname $host; $*\"\n")
        self.shell.chmod(self.shell.stat().st_mode | stat.S_IXUSR)

    def _up(self, rate: str) -> None:
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        addresses = "".join(f"{address_of(i)} {name}\n" for i, name in enumerate(self.names))
        for i, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"p{i}", "netns", self.switch)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"{address_of(i)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", self.switch, "link", "set", f"p{i}", "master", "br0", "up")
            shaped = subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst",
                                     "128kb", "latency", "20ms"], capture_output=True, text=True)
            if shaped.returncode != 0:
                raise Unavailable(f"tc: {shaped.stderr.strip()}")
            folder = pathlib.Path("/etc/netns") / name
            folder.mkdir(parents=True)
            (folder / "hosts").write_text("127.0.0.1 localhost\n" + addresses)

    def mpirun(self, mpirun: str, ranks_a_host: int) -> list[str]:
        """The launcher on the first host; ranks fill one host after the other."""
        places = ",".join(f"{name}:{ranks_a_host}" for name in self.names)
        return [str(self.shell), self.names[0], mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                "--mca", "mpi_yield_when_idle", "1", "-n", str(ranks_a_host * len(self.names)), "-H", places,
                "--map-by", "slot", "--mca", "plm_rsh_agent", str(self.shell),
                "--mca", "oob_tcp_if_include", "eth0", "--mca", "btl", "self,vader,tcp",
                "--mca", "btl_tcp_if_include", "eth0", "--mca", "pml", "ob1"]

    def set_links(self, hosts: list[int], state: str) -> None:
        """`up` or `down`: these hosts' ports at the switch. What is on its way is lost without a word to anybody. A host is
        up again when it reaches all others: sockets that ended ranks left keep asking for an address while the link is
        down, and for a second after it is up who connects is told what they are told, that there is no way to that host."""
        for host in hosts:
            ip("-n", self.switch, "link", "set", f"p{host}", state)
        for host in hosts if state == "up" else []:
            others = [address_of(other) for other in range(len(self.names)) if other != host]
            subprocess.run(["ip", "netns", "exec", self.names[host], sys.executable, "-c", REACH, *others], check=True)

    def sent_bytes(self, host: int) -> int:
        """What has left a host through its link so far."""
        done = subprocess.run(["ip", "netns", "exec", self.names[host], "cat",
                               "/sys/class/net/eth0/statistics/tx_bytes"], capture_output=True, text=True, check=True)
        return int(done.stdout)

    def close(self) -> None:
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            shutil.rmtree(pathlib.Path("/etc/netns") / name, ignore_errors=True)
