#!/usr/bin/env python3
"""Writes the text of the demo: Jane Austen's six novels, 4 MB of English prose in plain ASCII.

    tools/demo_text.py OUT.txt

The novels are in the public domain. They come from the Debian package r-cran-janeaustenr, whose file is downloaded
(1.6 MB) and read; neither it nor R is installed.
"""

import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import unicodedata
import zlib
from pathlib import Path

PACKAGE = "r-cran-janeaustenr"
DATA = "./usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"


def download(folder):
    """The path of the package's file, or None. Needs no root; the second try refreshes the lists, which does."""
    command = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", PACKAGE]
    refresh = ([] if os.geteuid() == 0 else ["sudo", "-n"]) + ["apt-get", "-q", "update"]
    for before in (None, refresh):
        try:
            if before:
                subprocess.run(before, capture_output=True, check=True)
            subprocess.run(command, cwd=folder, capture_output=True, check=True)
            return next(Path(folder).glob("*.deb"))
        except (OSError, subprocess.CalledProcessError, StopIteration):
            continue
    return None


def read_member(deb, name):
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE) as unpacked:
        with tarfile.open(fileobj=unpacked.stdout, mode="r|") as archive:
            for member in archive:
                if member.name == name:
                    return archive.extractfile(member).read()
    raise ValueError(f"{deb.name} has no {name}")


def records(data):
    """R's lazy-load file: records of a big-endian length and a zlib stream."""
    while data:
        stream = zlib.decompressobj()
        yield stream.decompress(data[4:])
        data = stream.unused_data


def lines(record):
    """The elements of a serialised vector of strings (R's format X, version 3: big-endian words)."""
    at = 2 + 3 * 4  # "X\n", then versions: of the format, of the writer, of the oldest reader

    def word():
        nonlocal at
        at += 4
        return struct.unpack_from(">i", record, at - 4)[0]

    def text():
        nonlocal at
        length = max(word(), 0)  # -1: a missing value
        at += length
        return record[at - length:at]

    text()  # the native encoding
    if word() & 0xFF != 16:
        raise ValueError("not a vector of strings")
    for _ in range(word()):
        word()  # flags of this string
        yield text().decode("utf-8", errors="replace")


def plain(text):
    """ASCII: accents dropped, what has no ASCII letter left out."""
    return unicodedata.normalize("NFKD", text).encode("ascii", errors="ignore").decode("ascii")


def main():
    out = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        deb = download(folder)
        if deb is None:
            print(f"tools/demo_text.py: apt-get cannot download {PACKAGE}; put any plain text of 1 MB or more "
                  f"into {out} instead", file=sys.stderr)
            return 1
        novels = ["\n".join(lines(record)) for record in records(read_member(deb, DATA))]
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = out.with_suffix(".tmp")
    unfinished.write_text(plain("\n\n\n".join(novels)) + "\n", encoding="ascii")
    unfinished.rename(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
