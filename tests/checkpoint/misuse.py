#!/usr/bin/env python3
"""What users do to checkpoints and disks, through the program on a real disk: each case has its exit code and its words,
and what was good is afterwards what it was before.

    misuse.py PROGRAM

Disks that are full or read-only are mounted, which needs root; without it these cases are left out by name, and the
exit code is 77 where all others pass.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tiny_data  # noqa: E402

SECONDS = 100  # for a command
STEPS = 6


class Skipped(Exception):
    """What this machine lacks for a case."""


OF_STARTS = {".lease", ".renewal", "logs", "incidents.jsonl"}  # they tell of each start, whatever came of it


def bytes_below(folder: pathlib.Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.relative_to(folder).parts[0] not in OF_STARTS}


def curve(out: pathlib.Path) -> list[tuple]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss_hex"], line["grad_norm_hex"]) for line in lines]


class Disk:
    """A file system of its own."""

    def __init__(self, place: pathlib.Path, size: str):
        self.place = place
        place.mkdir()
        self._mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))

    def resize(self, size: str) -> None:
        self._mount("-o", f"remount,size={size}", str(self.place))

    def read_only(self) -> None:
        self._mount("-o", "remount,ro", str(self.place))

    @staticmethod
    def _mount(*words: str) -> None:
        if os.geteuid() != 0 or shutil.which("mount") is None:
            raise Skipped("mounting needs root")
        done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Skipped(f"mount: {done.stderr.strip()}")

    def __enter__(self) -> "Disk":
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", str(self.place)], check=False)


class Cases:
    def __init__(self, program: str, folder: pathlib.Path):
        self.program, self.folder = program, folder
        self.names = 0

    def fresh(self) -> pathlib.Path:
        self.names += 1
        return self.folder / f"run{self.names}"

    def command(self, out: pathlib.Path, options: str = "") -> list[str]:
        return [self.program, "train", str(self.folder / "run.toml"), "--model.config", str(self.folder / "llama"),
                "--layout.dp", "2", "--checkpoint.interval", "2", "--out", str(out), *options.split()]

    def run(self, out: pathlib.Path, options: str = "", code: int = 0, said: tuple = ()) -> str:
        done = subprocess.run(self.command(out, options), capture_output=True, text=True, check=False, timeout=SECONDS)
        printed = done.stdout + done.stderr
        assert done.returncode == code, f"exit code {done.returncode}, not {code}:\n{printed}"
        for text in said:
            assert re.search(text, printed), f"not said: {text}\n{printed}"
        return printed

    def refused(self, out: pathlib.Path, options: str, said: tuple, code: int = 2) -> None:
        """Nothing below `out` changes."""
        before = bytes_below(out)
        self.run(out, options, code, said)
        assert bytes_below(out) == before, f"changed: {set(before.items()) ^ set(bytes_below(out).items())}"

    def verify(self, out: pathlib.Path) -> list[int]:
        """The steps of the complete checkpoints, all of them whole."""
        done = subprocess.run([self.program, "checkpoint", "ls", str(out), "--json"], capture_output=True, text=True,
                              check=True)
        paths = [entry["path"] for entry in json.loads(done.stdout)["checkpoints"] if "." not in entry["path"][-9:]]
        for path in paths:
            subprocess.run([self.program, "checkpoint", "verify", path], check=True, stdout=subprocess.DEVNULL)
        return sorted(int(path[-8:]) for path in paths)

    def log_of(self, out: pathlib.Path) -> pathlib.Path:
        return self.folder / f"{out.name}.log"

    def start(self, out: pathlib.Path, options: str, until: int) -> subprocess.Popen:
        """A run that has done so many steps. What it prints is never on a disk that gets full."""
        log = open(self.log_of(out), "w")
        process = subprocess.Popen(self.command(out, options), stdout=log, stderr=log)
        begun = time.monotonic()
        metrics = out / "metrics.jsonl"
        while not metrics.exists() or metrics.read_text().count("\n") < until:
            assert process.poll() is None and time.monotonic() - begun < SECONDS, self.log_of(out).read_text()
            time.sleep(0.01)
        return process

    # --- What is asked of a run that is there ---

    def keys_that_shape_the_curve(self) -> None:
        out = self.fresh()
        self.run(out)
        for key, was, now in [("train.steps", "6", "8"), ("optimizer.learning_rate", "0.001", "0.002"),
                              ("train.global_batch", "12", "24"), ("train.seed", None, "7")]:
            self.refused(out, f"--{key} {now}",
                         (rf"checkpoint = .*step-00000006: would go on as another run: {re.escape(key)} was "
                          rf"{was or '[0-9]+'} and is {now}", f"the values that it had, or --accept {key}"))
        self.refused(out, "--train.steps 8 --optimizer.learning_rate 0.002",
                     ("--accept train.steps,optimizer.learning_rate",))
        self.refused(out, "--train.sequence 16 --accept train.steps",
                     ("its run has train.sequence 24, this one 16: samples would be others",))
        self.refused(out, "--accept train.stpes", (r"checkpoint.accept = train.stpes: is not a key whose change must be "
                                                   r"accepted; nearest legal: train.steps",))
        self.refused(out, "--accept train.sequence --train.sequence 16", ("checkpoint.accept = train.sequence",))
        self.run(out, "--train.steps 8 --accept train.steps", 0, ("goes on from step 6", "done after 8 steps"))
        assert [line[0] for line in curve(out)] == list(range(1, 9))
        self.run(out, "--train.steps 5 --accept train.steps", 0, ("nothing to do: step 8 was done before",))
        self.run(out, "--train.steps 9 --optimizer.learning_rate 0.002 "
                      "--accept train.steps,optimizer.learning_rate", 0, ("goes on from step 8",))

    def another_global_batch_goes_on_in_the_samples(self) -> None:
        out = self.fresh()
        self.run(out, "--train.steps 4")
        self.run(out, "--train.steps 6 --train.global_batch 24 --accept train.steps,train.global_batch", 0,
                 ("goes on from step 4",))
        progress = json.loads((out / "checkpoints" / "step-00000006" / "manifest.json").read_text())["progress"]
        assert progress["samples"] == 4 * 12 + 2 * 24 and progress["tokens"] == progress["samples"] * 24, progress
        # Back to the first batch: the samples still count on, so that none is taken twice.
        self.run(out, "--train.steps 7 --train.global_batch 12 --accept train.steps,train.global_batch", 0, ())
        progress = json.loads((out / "checkpoints" / "step-00000007" / "manifest.json").read_text())["progress"]
        assert progress["samples"] == 4 * 12 + 2 * 24 + 12, progress

    def other_data_or_model(self) -> None:
        out = self.fresh()
        self.run(out)
        other = self.folder / "other"
        other.mkdir()
        (other / "text.txt").write_text((self.folder / "text.txt").read_text()[::-1])
        subprocess.run([self.program, "data", "tokenize", str(other / "text.txt"), "--out", str(other)], check=True,
                       capture_output=True)
        self.refused(out, f"--data.train {other}/train.bin", ("data.train holds other tokens", "--accept data.train"))
        self.run(out, f"--data.train {other}/train.bin --train.steps 7 --accept data.train,train.steps", 0,
                 ("goes on from step 6",))
        config = dict(tiny_data.MODELS["llama"], intermediate_size=128)
        (other / "config.json").write_text(json.dumps(config))
        self.refused(out, f"--model.config {other}",
                     ("is of another model: its intermediate_size is 96, this model's is 128",))
        self.refused(out, f"--model.config {self.folder}/gpt2", ("is of another model: it is a llama, this model a gpt2",))

    def overwriting(self) -> None:
        out = self.fresh()
        self.run(out)
        first = curve(out)
        self.refused(out, "--checkpoint.interval none", ("checkpoint.interval = none: .* holds step-00000006",
                                                         "auto, or --overwrite to begin anew"))
        link = self.folder / "link"
        link.symlink_to(out)
        for resume in [out, f"{out}/", f"{out}/checkpoints/step-00000004", os.path.relpath(out), link,
                       link / "checkpoints"]:
            self.refused(out, f"--overwrite --resume {resume}",
                         ("would remove the checkpoint that the run is to start from",
                          "one of --overwrite and --resume, or another --out"))
        kept = (out / "checkpoints" / "notes.txt")
        kept.write_text("the user's own")
        self.run(out, "--overwrite --train.steps 3", 0, ("done after 3 steps",))
        assert curve(out)[:2] == first[:2] and len(curve(out)) == 3
        assert self.verify(out) == [2, 3] and kept.read_text() == "the user's own"
        self.run(out, "--overwrite --checkpoint.interval none", 0, ("done after 6 steps",))
        assert self.verify(out) == [] and curve(out) == first

    def a_finished_run_has_nothing_to_do(self) -> None:
        out = self.fresh()
        self.run(out)
        before = bytes_below(out)
        self.run(out, "", 0, ("nothing to do: step 6 was done before; a larger train.steps goes on",))
        after = bytes_below(out)
        assert after == before, set(before.items()) ^ set(after.items())

    # --- Checkpoints that are not there ---

    def removed_checkpoints(self) -> None:
        out = self.fresh()
        self.run(out)
        shutil.move(out / "checkpoints", self.folder / "moved")
        self.refused(out, "", ("holds run.toml already, and no checkpoint to go on from", "another --out, or --overwrite"))
        shutil.move(self.folder / "moved", out / "checkpoints")
        self.run(out, "--train.steps 7 --accept train.steps", 0, ("goes on from step 6",))

    def resume_of_nothing(self) -> None:
        out = self.fresh()
        for resume, said in [(self.folder / "nowhere", "there is no such directory"),
                             (self.folder / "run.toml", "is a file; a checkpoint is a directory"),
                             (self.folder / "llama", "is no checkpoint .there is no manifest.json in it. and holds none")]:
            self.run(out, f"--resume {resume}", 2, (rf"checkpoint.resume = {resume}: {said}",))
            assert not out.exists()
        partial = self.folder / "killed" / "checkpoints" / "step-00000002.partial"
        partial.mkdir(parents=True)
        self.run(out, f"--resume {self.folder}/killed", 2, (rf"only a save that was not completed: {partial}",))
        assert not out.exists()

    def a_damaged_checkpoint(self) -> None:
        out = self.fresh()
        self.run(out)
        expected, shard = curve(out), out / "checkpoints" / "step-00000006" / "part-00001.safetensors"
        content = bytearray(shard.read_bytes())
        content[len(content) // 2] ^= 4
        shard.write_bytes(content)
        good = bytes_below(out / "checkpoints" / "step-00000004")
        self.run(out, "", 0, (rf"{shard.parent} is damaged and passed over: .*{shard}: slice .*: expected checksum \w+, "
                              r"found \w+", "goes on from step 4",
                              rf"a checkpoint beyond step 4 is kept aside as {shard.parent}\.aside"))
        assert curve(out) == expected and bytes_below(out / "checkpoints" / "step-00000004") == good
        assert pathlib.Path(f"{shard.parent}.aside/part-00001.safetensors").read_bytes() == content
        assert self.verify(out) == [4, 6]
        for step in [4, 6]:
            (out / "checkpoints" / f"step-{step:08}" / "manifest.json").write_text("")
        self.refused(out, "", ("none of 2 checkpoints is whole: .*step-00000006/manifest.json: .*"
                               "step-00000004/manifest.json", "restore one from a copy"), 79)

    # --- Processes ---

    def two_runs_in_one_directory(self) -> None:
        out = self.fresh()
        process = self.start(out, "--train.steps 100000", 3)
        try:
            for options in ["--train.steps 100000", "--train.steps 100000 --overwrite"]:
                self.run(out, options, 2, (f"out.directory = {out}: another run is writing there", "another --out"))
            assert process.poll() is None
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=SECONDS)
        assert process.returncode == 130

    def an_interrupt_saves(self) -> None:
        whole, out = self.fresh(), self.fresh()
        steps = "--train.steps 400 --checkpoint.interval 1000"
        process = self.start(out, steps, 5)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=SECONDS) == 130
        done = len(curve(out))
        assert 5 <= done < 400 and self.verify(out) == [done], (done, self.verify(out))
        manifest = json.loads((out / "checkpoints" / f"step-{done:08}" / "manifest.json").read_text())
        assert manifest["reason"] == "stop", manifest["reason"]
        self.run(out, steps, 0, (f"goes on from step {done}", "done after 400 steps"))
        self.run(whole, steps)
        assert curve(out) == curve(whole)
        weights = pathlib.Path("model/model.safetensors")
        assert (out / weights).read_bytes() == (whole / weights).read_bytes()

    # --- Disks ---

    def a_read_only_disk(self) -> None:
        with Disk(self.folder / "frozen", "40m") as disk:
            out = disk.place / "run"
            self.run(out)
            disk.read_only()
            self.refused(out, "--train.steps 8 --accept train.steps", (f"{out}", "Read-only file system"), 79)
            self.run(disk.place / "new", "", 79, (f"{disk.place}/new", "Read-only file system"))
            again = self.fresh()  # what is there can be read
            self.run(again, f"--resume {out} --train.steps 8 --accept train.steps", 0, ("goes on from step 6",))

    def no_directory_can_be_made(self) -> None:
        out = pathlib.Path("/proc/trireme")
        self.run(out, "", 79, ("out.directory = /proc/trireme: a checkpoint needs .*, and its disk has 0 B left",))
        self.run(out, "--checkpoint.interval none", 2, ("files: create the directory /proc/trireme", "check the path"))

    def a_small_disk(self) -> None:
        whole = self.fresh()
        self.run(whole)
        needed = sum(path.stat().st_size for path in (whole / "checkpoints" / "step-00000006").iterdir())
        with Disk(self.folder / "small", f"{needed // 2}") as disk:
            out = disk.place / "run"
            self.run(out, "", 79, (r"out.directory = .*: a checkpoint needs [\d.]+ \w+, and its disk has [\d.]+ \w+ left",
                                   "a directory on another disk, or checkpoint.interval none"))
            assert not out.exists()
            disk.resize(f"{needed * 5 // 2}")
            self.run(out, "", 79, ("checkpoint: save step 6: there is no room for it", r"free [\d.]+ \w+ on the disk of"))
            assert self.verify(out) == [2, 4]
            disk.resize(f"{needed * 5}")
            self.run(out, "", 0, ("goes on from step 4", "done after 6 steps"))
            assert curve(out) == curve(whole) and self.verify(out) == [4, 6]

    def a_disk_that_gets_full(self) -> None:
        steps = "--train.steps 300 --checkpoint.interval 10"
        whole = self.fresh()
        self.run(whole, steps)
        with Disk(self.folder / "filling", "40m") as disk:
            out = disk.place / "run"
            process = self.start(out, steps, 30)
            ballast = disk.place / "ballast"
            try:
                with open(ballast, "wb", buffering=0) as file:
                    while True:
                        file.write(b"x" * 4096)
            except OSError:
                pass
            assert process.wait(timeout=SECONDS) == 79, process.returncode
            printed = self.log_of(out).read_text()
            assert "No space left on device" in printed and str(out) in printed, printed
            ballast.unlink()
            kept = self.verify(out)
            assert kept and kept[-1] >= 10, kept
            self.run(out, steps, 0, (f"goes on from step {kept[-1]}", "done after 300 steps"))
            assert curve(out) == curve(whole)


CASES = [Cases.keys_that_shape_the_curve, Cases.another_global_batch_goes_on_in_the_samples, Cases.other_data_or_model,
         Cases.overwriting, Cases.a_finished_run_has_nothing_to_do, Cases.removed_checkpoints, Cases.resume_of_nothing,
         Cases.a_damaged_checkpoint, Cases.two_runs_in_one_directory, Cases.an_interrupt_saves, Cases.a_read_only_disk,
         Cases.no_directory_can_be_made, Cases.a_small_disk, Cases.a_disk_that_gets_full]


def main() -> int:
    failed, skipped = [], []
    for case in CASES:
        name = case.__name__.replace("_", " ")
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place).resolve()
            tiny_data.make(sys.argv[1], folder, STEPS, 12, 1)
            try:
                case(Cases(sys.argv[1], folder))
                outcome = "as it should be"
            except Skipped as lacking:
                skipped.append(name)
                outcome = f"left out: {lacking}"
            except (AssertionError, subprocess.SubprocessError) as fault:
                failed.append(name)
                outcome = f"FAILED: {fault}"
        print(f"{name}: {outcome} ({time.monotonic() - begun:.1f} s)", flush=True)
    return 1 if failed else 77 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
