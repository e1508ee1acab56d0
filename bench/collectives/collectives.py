#!/usr/bin/env python3
"""Collectives beside those of the MPI library, on this machine: ranks as threads, and our messages over MPI.

    bench/collectives/collectives.py PROGRAM [--mpirun MPIRUN] [--ranks 2 4] [--rounds 9] [--passes 1] [--json]

PROGRAM is bench_collectives. Threads, and then ours over MPI alternating with the library's own collectives in one run,
for each number of ranks; with several passes, all of it so often and the medians of the passes. Rates are bytes of a
rank's buffer by the time of the slowest rank. The limit is what memcpy's rate leaves: see rounds.h.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "support"))
import mpirun  # noqa: E402


def run(command):
    done = subprocess.run(command, env=mpirun.environment(), stdin=subprocess.DEVNULL, check=True, stdout=subprocess.PIPE,
                          text=True)
    return json.loads(done.stdout)


def speed(size, seconds):
    return f"{1e6 * seconds:.1f} us" if size < 1 << 20 else f"{size / seconds / 1e9:.2f} GB/s"


def size_text(size):
    return f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB"


def of_limit(row):
    return f"{100 * row['limit_s'] / row['s']:.0f}%" if row.get("limit_s") else "-"


def medians(passes):
    """One result from those of several passes, row by row."""
    rows = []
    for of_passes in zip(*(one["results"] for one in passes)):
        row = dict(of_passes[0])
        for key in row:
            if key.endswith("_s"):
                row[key] = statistics.median(one[key] for one in of_passes)
        rows.append(row)
    return dict(passes[0], results=rows, copy_two_threads_bytes_per_s=statistics.median(
        one["copy_two_threads_bytes_per_s"] for one in passes))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    version = subprocess.run([arguments.mpirun, "--version"], capture_output=True, text=True, check=True).stdout
    options = ["--json", "--rounds", str(arguments.rounds)]
    results = []
    for ranks in arguments.ranks:
        threads = []
        mpi = []
        for _ in range(arguments.passes):
            threads.append(run([arguments.program, "threads", str(ranks), *options]))
            mpi.append(run([*mpirun.command(arguments.mpirun, ranks), arguments.program, "mpi", *options]))
        results.append((ranks, medians(threads), medians(mpi)))
    if arguments.json:
        print(json.dumps([{"ranks": ranks, "threads": threads, "mpi": mpi} for ranks, threads, mpi in results]))
        return

    print(f"library: {version.splitlines()[0]}")
    for ranks, threads, mpi in results:
        print(f"\n{ranks} ranks; two threads' memcpy: {threads['copy_two_threads_bytes_per_s'] / 1e9:.1f} GB/s")
        print(f"{'size':>8}  {'operation':<14} {'threads':>12} {'of limit':>9} {'library':>12} {'ratio':>6} "
              f"{'over MPI':>12} {'of limit':>9} {'ratio':>6}")
        for a, b in zip(threads["results"], mpi["results"]):
            size = a["buffer_bytes"]
            print(f"{size_text(size):>8}  {a['operation']:<14} {speed(size, a['ours_s']):>12} "
                  f"{of_limit(dict(a, s=a['ours_s'])):>9} {speed(size, b['library_s']):>12} "
                  f"{b['library_s'] / a['ours_s']:>6.2f} {speed(size, b['ours_s']):>12} "
                  f"{of_limit(dict(b, s=b['ours_s'])):>9} {b['library_s'] / b['ours_s']:>6.2f}")


main()
