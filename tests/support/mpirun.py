"""How tests start ranks as processes."""

import os
import subprocess


def command(mpirun: str, ranks: int) -> list[str]:
    """The launcher's part of a command line."""
    flags = []
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=True).stdout
    if "Open MPI" in version or "OpenRTE" in version:
        # More ranks than cores, and root in a container; ranks that wait must not spin.
        flags = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    return [mpirun] + flags + ["-n", str(ranks)]


def on_hosts(mpirun: str, program: list[str], names: list[str], folders: list[object] = []) -> list[str]:
    """One rank of the program on each of these hosts, as far as it can tell, in these folders where they are given."""
    whole = command(mpirun, 1)
    for number, name in enumerate(names):
        whole += [":", "-n", "1"] if number else []
        whole += ["-wdir", str(folders[number])] if folders else []
        whole += ["-x", f"TRIREME_HOST={name}"] + program
    return whole


def environment() -> dict[str, str]:
    return dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
