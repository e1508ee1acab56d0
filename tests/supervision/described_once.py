#!/usr/bin/env python3
"""A run is what its files said when it began: edits and pipes, through the program.

    described_once.py PROGRAM [MPIRUN]
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

from runs import Broken, Run, expect, tiny_data

STEPS = 12
KILL = "--inject kill:rank=1,step=7 --supervise.backoff 0.1s"


class Scene:
    def __init__(self, program: str, mpirun: str, folder: pathlib.Path):
        self.program, self.mpirun, self.folder = program, mpirun, folder
        self.text = (folder / "run.toml").read_text()
        self.config = (folder / "llama" / "config.json").read_text()

    def run(self, name: str, options: str = "") -> Run:
        return Run(self.program, self.folder, name, f"--layout.dp 2 --checkpoint.interval 50 {options}")

    def restore(self) -> None:
        (self.folder / "run.toml").write_text(self.text)
        (self.folder / "llama" / "config.json").write_text(self.config)

    def edit(self) -> None:
        (self.folder / "run.toml").write_text(self.text.replace("1e-3", "5e-2"))
        (self.folder / "llama" / "config.json").write_text(self.config.replace("1e-05", "0.01"))


def pipe_of(text: str) -> int:
    """The end of a pipe that gives this text once."""
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "w") as sink:
            sink.write(text)

    threading.Thread(target=write, daemon=True).start()
    return reader


def piped(run: Run, text: str, config: str, options: str = "") -> int:
    """The run, its two files through pipes: the first as standard input, the second as a shell's <(...) is."""
    first, second = pipe_of(text), pipe_of(config)
    command = [word.replace(str(run.out.parent / "run.toml"), "/dev/stdin").replace(
        str(run.out.parent / "llama"), f"/dev/fd/{second}") for word in run.command]
    with open(run.log, "a") as sink:
        done = subprocess.run(command + options.split(), stdin=first, stdout=sink, stderr=subprocess.STDOUT,
                              pass_fds=[second], timeout=90)
    os.close(first)
    os.close(second)
    return done.returncode


def case_edited_while_it_runs(scene: Scene, unbroken: Run) -> None:
    run = scene.run("edited", KILL).start()
    run.until_step(1)
    scene.edit()
    expect(run.wait() == 0, f"not 0: {run.printed()}")
    expect(len(run.incidents()) == 1, "nothing was broken")
    expect(run.curve() == unbroken.curve(), "another curve: the edited files counted")
    saved = json.loads((run.out / "model" / "config.json").read_text())
    expect(saved["rms_norm_eps"] == 1e-05, "the model that was saved is another")
    expect("learning_rate = 0.001" in (run.out / "run.toml").read_text(), "run.toml tells of another run")


def case_edited_before_it_goes_on(scene: Scene, unbroken: Run) -> None:
    run = scene.run("goes_on", "--checkpoint.interval 5 --checkpoint.async false --inject kill:rank=1,step=7,times=always "
                    "--supervise.retries 0")
    expect(run.finish() == 78, f"not 78: {run.printed()}")
    scene.edit()
    again = scene.run("goes_on", "--checkpoint.interval 5")
    expect(again.finish() == 2, f"not 2: {again.printed()}")
    expect("rms_norm_eps is 1e-05, this model's is 0.01" in again.printed(), again.printed())
    (scene.folder / "llama" / "config.json").write_text(scene.config)
    expect(again.finish() == 2, f"not 2: {again.printed()}")
    expect("optimizer.learning_rate was 0.001 and is 0.05" in again.printed(), again.printed())
    expect(again.finish("--accept optimizer.learning_rate") == 0, f"not 0: {again.printed()}")
    rates = {line["step"]: line["lr"] for line in again.metrics()}
    expect(rates[5] <= 0.001 and rates[6] > 0.03, f"learning rates {rates}")


def case_pipes(scene: Scene, unbroken: Run) -> None:
    launchers = ["threads"] + (["mpirun"] if scene.mpirun else [])
    for launcher in launchers:
        options = f"{KILL} --supervise.launcher {launcher}" + (
            f" --supervise.mpirun {scene.mpirun}" if launcher == "mpirun" else "")
        run = scene.run(f"pipes_{launcher}", options)
        expect(piped(run, scene.text, scene.config) == 0, f"not 0: {run.printed()}")
        expect(len(run.incidents()) == 1, "nothing was broken")
        expect(run.curve() == unbroken.curve(), "another curve")
    again = scene.run("of_the_resolved")
    again.command = [scene.program, "train", str(run.out / "run.toml"), "--out", str(again.out)]
    expect(again.finish() == 0, f"not 0: {again.printed()}")
    expect(again.curve() == unbroken.curve(), "the resolved run.toml gives another run")


def case_unsupervised_pipes(scene: Scene, unbroken: Run) -> None:
    run = scene.run("alone", "--supervise.launcher none")
    expect(piped(run, scene.text, scene.config) == 0, f"not 0: {run.printed()}")
    expect(run.curve() == unbroken.curve(), "another curve")
    expect(piped(run, scene.text, scene.config.replace("1e-05", "0.01")) == 2, f"not 2: {run.printed()}")
    expect("its rms_norm_eps is 1e-05" in run.printed(), run.printed())


def case_hosts_through_a_pipe(scene: Scene, unbroken: Run) -> None:
    if not scene.mpirun:
        return
    hosts = pipe_of("a:1\nb:1\n")
    run = scene.run("hosts", f"--supervise.hosts /dev/fd/{hosts} --supervise.rehearsal true --supervise.mpirun "
                    f"{scene.mpirun} {KILL}")
    with open(run.log, "a") as sink:
        done = subprocess.run(run.command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT,
                              pass_fds=[hosts], timeout=90)
    expect(done.returncode == 0, f"not 0: {run.printed()}")
    expect(run.curve() == unbroken.curve(), "another curve")


def case_drill(scene: Scene, unbroken: Run) -> None:
    run = scene.run("drill", "--faults kill-forward --steps 6")
    run.command[1] = "drill"
    expect(piped(run, scene.text, scene.config) == 0, f"not 0: {run.printed()}")
    expect((run.out / "kill-forward" / "incidents.jsonl").exists(), "no fault")


def main() -> int:
    program = str(pathlib.Path(sys.argv[1]).resolve())
    mpirun = sys.argv[2] if len(sys.argv) > 2 else ""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="trireme-described-") as name:
        folder = pathlib.Path(name)
        tiny_data.make(program, folder, STEPS, 8, 2)
        scene = Scene(program, mpirun, folder)
        unbroken = scene.run("unbroken")
        expect(unbroken.finish() == 0, unbroken.printed())
        for case in [one for name, one in globals().items() if name.startswith("case_")]:
            scene.restore()
            try:
                case(scene, unbroken)
                print(f"ok      {case.__name__}")
            except Broken as broken:
                failed += 1
                print(f"FAILED  {case.__name__}: {broken}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
