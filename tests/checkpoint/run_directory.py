#!/usr/bin/env python3
"""What else there is in a run directory, and what becomes of it while the run is under way: links to what is not the
run's, other people's files and directories, a disk that is full for a moment, a directory that is away for a moment,
limits of the process. Nothing that is not the run's is removed or emptied, and what passes ends no run.

    run_directory.py PROGRAM

Full disks are mounted, which needs root; without it these cases are left out by name, and the exit code is 77 where all
others pass.
"""

import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tiny_data  # noqa: E402

SECONDS = 200  # for a command


class Skipped(Exception):
    """What this machine lacks for a case."""


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def steps_of(out: pathlib.Path) -> list[int]:
    return [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]


class Cases:
    def __init__(self, program: str, folder: pathlib.Path):
        self.program, self.folder = program, folder
        self.out = folder / "run"
        self.home = folder / "home"
        (self.home / "deep").mkdir(parents=True)
        (self.home / "deep" / "thesis").write_text("precious")
        (self.home / "notes.txt").write_text("mine")
        self.before = contents(self.home)

    def command(self, options: str) -> list[str]:
        return [self.program, "train", str(self.folder / "run.toml"), "--model.config", str(self.folder / "llama"),
                "--out", str(self.out), "--supervise.backoff", "0.1s", *options.split()]

    def run(self, options: str = "", code: int = 0, said: tuple = (), limit: tuple = ()) -> str:
        before = (lambda: resource.setrlimit(limit[0], (limit[1], limit[1]))) if limit else None
        done = subprocess.run(self.command(options), capture_output=True, text=True, check=False, timeout=SECONDS,
                              preexec_fn=before)
        printed = done.stdout + done.stderr
        assert done.returncode == code, f"exit code {done.returncode}, not {code}:\n{printed}"
        for text in said:
            assert text in printed, f"not said: {text}\n{printed}"
        return printed

    def train_to(self, steps: int, more: str = "", **rest: object) -> str:
        return self.run(f"--train.steps {steps} --accept train.steps --checkpoint.interval 2 {more}", **rest)

    def start(self, options: str, until: int) -> subprocess.Popen:
        with open(self.folder / "log", "w") as log:
            process = subprocess.Popen(self.command(options), stdout=log, stderr=log)
        begun = time.monotonic()
        metrics = self.out / "metrics.jsonl"
        while not metrics.exists() or metrics.read_text().count("\n") < until:
            assert process.poll() is None and time.monotonic() - begun < SECONDS, self.log()
            time.sleep(0.01)
        return process

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.out / "checkpoints").iterdir())

    def home_is_whole(self) -> None:
        assert contents(self.home) == self.before, f"changed: {sorted(contents(self.home))}"

    # --- Links ---

    def links_to_elsewhere(self) -> None:
        """In the places of everything that a run removes."""
        self.train_to(2)
        kept = self.folder / "kept"
        shutil.move(self.out / "checkpoints" / "step-00000002", kept)
        (kept / "notes.txt").write_text("mine")
        whole = contents(kept)
        (self.out / "checkpoints" / "step-00000002").symlink_to(kept)
        names = [".launcher-x", ".launcher-7", "checkpoints/step-00000099.partial", "checkpoints/step-00000004",
                 "checkpoints/step-00000006.inc-000002.partial", "checkpoints/step-00000008.aside", "logs/mine"]
        for name in names:
            (self.out / name).symlink_to(self.home)
        self.train_to(6)
        self.train_to(10)  # retention reaches the checkpoint that is a link
        self.home_is_whole()
        assert contents(kept) == whole
        assert "step-00000002" not in self.checkpoints(), self.checkpoints()
        assert steps_of(self.out) == list(range(1, 11))
        self.train_to(10, "--overwrite")
        self.home_is_whole()
        assert contents(kept) == whole

    def a_model_that_is_a_link(self) -> None:
        self.train_to(2)
        (self.home / "config.json").write_text("{}")
        (self.home / "model.safetensors").write_text("weights of somebody")
        self.before = contents(self.home)
        for options in ["", "--overwrite"]:
            shutil.rmtree(self.out / "model")
            (self.out / "model").symlink_to(self.home)
            self.train_to(4, options, said=("the link is removed, what it named stays",))
            self.home_is_whole()
            assert (self.out / "model" / "model.safetensors").is_file() and not (self.out / "model").is_symlink()
        storage = self.folder / "storage"  # where the user wants it
        storage.mkdir()
        shutil.rmtree(self.out / "model")
        (self.out / "model").symlink_to(storage)
        self.train_to(6)
        assert (storage / "model.safetensors").is_file()

    def files_that_are_links(self) -> None:
        for name in ["run.toml", "metrics.jsonl", ".unsaved"]:
            self.train_to(4)
            (self.out / name).unlink(missing_ok=True)
            (self.out / name).symlink_to(self.home / "notes.txt")
            self.train_to(4, "--overwrite")
            self.home_is_whole()
            assert steps_of(self.out) == [1, 2, 3, 4]
        (self.out / "metrics.jsonl").unlink()  # another's is dropped, not emptied
        (self.out / "metrics.jsonl").symlink_to(self.home / "notes.txt")
        self.train_to(6)
        self.home_is_whole()
        assert steps_of(self.out) == [5, 6]
        shutil.rmtree(self.out)
        self.out.mkdir()
        (self.out / ".lock").symlink_to(self.folder / "nowhere")
        self.train_to(2, code=2, said=(".lock", "remove the link"))
        assert not (self.folder / "nowhere").exists()

    def directories_on_other_storage(self) -> None:
        """A run directory, or its checkpoints, that are links are how users keep them elsewhere."""
        storage = self.folder / "storage"
        (storage / "run").mkdir(parents=True)
        (storage / "checkpoints").mkdir()
        self.out.symlink_to(storage / "run")
        (self.out / "checkpoints").symlink_to(storage / "checkpoints")
        others = storage / "checkpoints" / "step-00000001"  # of another run
        self.train_to(6)
        assert self.checkpoints() == ["step-00000004", "step-00000006"], self.checkpoints()
        shutil.copytree(storage / "checkpoints" / "step-00000004", others)
        (storage / "checkpoints" / "notes.txt").write_text("mine")
        self.train_to(8)
        assert self.checkpoints() == ["notes.txt", "step-00000001", "step-00000006", "step-00000008"]
        self.train_to(2, "--overwrite")
        assert "notes.txt" in self.checkpoints() and "step-00000001.aside" in self.checkpoints(), self.checkpoints()
        assert (self.out / "checkpoints").is_symlink() and self.out.is_symlink()

    # --- What others put there ---

    def foreign_names(self) -> None:
        places = self.out / "checkpoints"
        for name in ["step-xyz", "step-00000099", "lost+found", "export"]:
            (places / name).mkdir(parents=True)
        (places / ".DS_Store").write_text("")
        (places / "step-00000002").write_text("a file")
        (places / "export" / "model.safetensors").write_text("an export")
        self.train_to(4, said=("step-00000002.left holds what is not this run's to remove",))
        assert (places / "step-00000002.left").read_text() == "a file"
        assert (places / "export" / "model.safetensors").exists() and (places / "step-00000099").is_dir()
        (places / "step-00000002" / "notes.txt").write_text("mine")
        self.train_to(8, said=("step-00000002.left.2 holds what is not this run's to remove",))
        assert (places / "step-00000002.left.2" / "notes.txt").read_text() == "mine"
        assert not (places / "step-00000002").exists()
        assert steps_of(self.out) == list(range(1, 9))

    def a_checkpoint_under_another_name(self) -> None:
        self.train_to(4)
        places = self.out / "checkpoints"
        shutil.copytree(places / "step-00000002", places / "step-00000050")
        said = "step-00000050: holds the checkpoint of step 2, and its name says step 50"
        printed = self.train_to(6, said=(said, f"goes on from step 4 of {places}/step-00000004"))
        assert "goes on from step 2" not in printed
        assert steps_of(self.out) == [1, 2, 3, 4, 5, 6]
        (places / "step-00000006").rename(places / "step-00000060")
        done = subprocess.run([self.program, "checkpoint", "verify", str(places / "step-00000060")], text=True,
                              capture_output=True, check=False)
        assert done.returncode == 79 and "its name says step 60" in done.stdout + done.stderr, done

    # --- What passes ---

    def a_disk_full_for_a_moment(self) -> None:
        place = self.folder / "disk"
        place.mkdir()
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)],
                                               capture_output=True, check=False).returncode != 0:
            raise Skipped("mounting needs root")
        try:
            self.out = place / "run"
            process = self.start("--train.steps 60 --checkpoint.interval 5", 10)
            for _ in range(2):
                try:
                    with open(place / "fill", "wb") as fill:
                        while True:
                            fill.write(bytes(4096))
                            fill.flush()
                except OSError:
                    pass
                time.sleep(0.7)
                (place / "fill").unlink()
                time.sleep(0.3)
            assert process.wait(SECONDS) == 0, self.log()
            assert steps_of(self.out) == list(range(1, 61))
            assert not (self.out / "incidents.jsonl").exists(), (self.out / "incidents.jsonl").read_text()
        finally:
            subprocess.run(["umount", str(place)], check=False)

    def a_directory_away_for_a_moment(self) -> None:
        for launcher in ["threads", "none"]:
            options = f"--train.steps 300 --checkpoint.interval 5 --supervise.launcher {launcher} --overwrite"
            process = self.start(options, 10)
            for _ in range(2):
                self.out.rename(self.folder / "away")
                time.sleep(1)
                assert not self.out.exists(), "was made anew"
                (self.folder / "away").rename(self.out)
                time.sleep(0.3)
            assert process.wait(SECONDS) == 0, self.log()
            assert steps_of(self.out) == list(range(1, 301))
            shutil.rmtree(self.out)

    # --- Limits ---

    def limits_of_the_process(self) -> None:
        self.run("--train.steps 30", code=79, said=("File too large", "ulimit -f"), limit=(resource.RLIMIT_FSIZE, 8192))
        shutil.rmtree(self.out, ignore_errors=True)
        self.run("--train.steps 30", code=71, said=("ulimit -v",), limit=(resource.RLIMIT_AS, 100_000 * 1024))
        shutil.rmtree(self.out, ignore_errors=True)
        self.run("--train.steps 30", code=71, said=("ulimit -n",), limit=(resource.RLIMIT_NOFILE, 8))


CASES = [Cases.links_to_elsewhere, Cases.a_model_that_is_a_link, Cases.files_that_are_links,
         Cases.directories_on_other_storage, Cases.foreign_names, Cases.a_checkpoint_under_another_name,
         Cases.a_disk_full_for_a_moment, Cases.a_directory_away_for_a_moment, Cases.limits_of_the_process]


def main() -> int:
    failed, skipped = [], []
    for case in [case for case in CASES if case.__name__ in sys.argv[2:] or len(sys.argv) == 2]:
        name = case.__name__.replace("_", " ")
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place).resolve()
            tiny_data.make(sys.argv[1], folder, 6, 12, 1)
            try:
                case(Cases(sys.argv[1], folder))
                outcome = "as it should be"
            except Skipped as lacking:
                skipped.append(name)
                outcome = f"left out: {lacking}"
            except (AssertionError, OSError, subprocess.SubprocessError) as fault:
                failed.append(name)
                outcome = f"FAILED: {fault}"
        print(f"{name}: {outcome} ({time.monotonic() - begun:.1f} s)", flush=True)
    return 1 if failed else 77 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
