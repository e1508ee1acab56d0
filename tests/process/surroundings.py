#!/usr/bin/env python3
"""What a command finds around it must not change what it does: outputs that are closed, full or not read to their end,
a program file that is built anew while it runs, and less memory than the machine has.

    surroundings.py PROGRAM [MPIRUN]
"""

import errno
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "supervision"))
from runs import Broken, Run, expect, tiny_data  # noqa: E402

STEPS = 6


class Scene:
    def __init__(self, program: str, mpirun: str, folder: pathlib.Path):
        self.program, self.folder = program, folder
        self.launchers = {"none": "--supervise.launcher none", "threads": "--supervise.launcher threads"}
        if mpirun:
            self.launchers["mpirun"] = f"--supervise.launcher mpirun --supervise.mpirun {mpirun}"

    def run(self, name: str, options: str) -> Run:
        return Run(self.program, self.folder, name, f"--layout.dp 2 --checkpoint.interval 2 {options}")


def check_files(run: Run, curve: list[tuple]) -> None:
    """All steps are there, and nothing that was printed is in a file of the run."""
    expect(run.curve() == curve, f"another curve: {len(run.curve())} steps")
    for path in run.out.rglob("*"):
        if path.is_file() and path.parent.name != "logs":
            expect(b"tok/s" not in path.read_bytes(), f"{path} has lines that were printed")
    expect((run.out / ".lock").read_bytes() == b"", f".lock holds {(run.out / '.lock').read_bytes()[:100]}")


def shell(words: list[str], redirections: str, seconds: float = 60) -> subprocess.CompletedProcess:
    return subprocess.run(["sh", "-c", f'exec "$@" {redirections}', "sh", *words], capture_output=True,
                          timeout=seconds)


def with_no_reader(words: list[str], stderr: bool = False, seconds: float = 60) -> tuple[int, str]:
    """Standard output (and error) is a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer if stderr else
                              subprocess.PIPE, timeout=seconds)
    finally:
        os.close(writer)
    return done.returncode, "" if stderr else done.stderr.decode()


def case_closed_descriptors(scene: Scene, curve: list[tuple]) -> None:
    closed = ["<&-", ">&-", "2>&-"]
    for launcher, options in scene.launchers.items():
        chosen = [closed] if launcher == "mpirun" else [[one] for one in closed] + [closed]
        for index, redirections in enumerate(chosen):
            run = scene.run(f"closed_{launcher}_{index}", options)
            done = shell(run.command, " ".join(redirections))
            expect(done.returncode == 0, f"{launcher} {redirections}: {done.returncode} {done.stderr.decode()}")
            check_files(run, curve)


def case_closed_descriptors_of_other_commands(scene: Scene, curve: list[tuple]) -> None:
    out = scene.folder / "closed_data"
    for redirections in itertools.chain(["<&-", "2>&-"], ["<&- 2>&-"]):
        done = shell([scene.program, "data", "tokenize", str(scene.folder / "text.txt"), "--out", str(out), "--json"],
                     redirections)
        expect(done.returncode == 0, f"{redirections}: {done.returncode}")
        json.loads(done.stdout)
        for name in ("train.bin", "validation.bin"):
            expect((out / name).read_bytes() == (scene.folder / name).read_bytes(), f"{redirections}: another {name}")
        shutil.rmtree(out)
    for words in (["plan", "bubble", "--stages", "4"], ["model", str(scene.folder / "llama")], ["--help"],
                  ["train", "--help"]):
        done = shell([scene.program, *words], ">&-")
        expect(done.returncode == 79 and os.strerror(errno.EBADF) in done.stderr.decode(),
               f"{words}: {done.returncode} {done.stderr.decode()}")


def case_a_run_whose_output_is_lost(scene: Scene, curve: list[tuple]) -> None:
    for launcher, options in scene.launchers.items():
        for name, extra in (("text", ""), ("json", " --json")):
            run = scene.run(f"full_{launcher}_{name}", options + extra)
            with open("/dev/full", "w") as full:
                done = subprocess.run(run.command, stdout=full, stderr=subprocess.PIPE, timeout=60)
            said = done.stderr.decode()
            expect(done.returncode == 0, f"{launcher}: {done.returncode} {said}")
            expect(f"warning: standard output could not be written ({os.strerror(errno.ENOSPC)})" in said, said)
            check_files(run, curve)
        run = scene.run(f"unread_{launcher}", options)
        code, said = with_no_reader(run.command)
        expect(code == 0 and os.strerror(errno.EPIPE) in said, f"{launcher}: {code} {said}")
        check_files(run, curve)
        run = scene.run(f"unheard_{launcher}", options)
        code, _ = with_no_reader(run.command, stderr=True)
        expect(code == 0, f"{launcher}, standard error not read either: {code}")
        check_files(run, curve)
        run = scene.run(f"no_room_{launcher}", options)
        with open("/dev/full", "w") as full:
            done = subprocess.run(run.command, stdout=full, stderr=full, timeout=60)
        expect(done.returncode == 0, f"{launcher}, all full: {done.returncode}")
        check_files(run, curve)


def case_results_that_are_lost(scene: Scene, curve: list[tuple]) -> None:
    run = scene.folder / "unbroken"
    words = [["plan", "bubble", "--stages", "4"], ["model", str(scene.folder / "llama"), "--json"], ["--help"],
             ["train", "--help"], ["checkpoint", "ls", str(run)], ["checkpoint", "verify", str(run)],
             ["train", str(scene.folder / "run.toml"), "--model.config", str(scene.folder / "llama"), "--out",
              str(scene.folder / "dry"), "--dry-run"]]
    for one in words:
        code, said = with_no_reader([scene.program, *one])
        expect(code == 0 and "error" not in said and "warning" not in said, f"{one}: {code} {said}")
        with open("/dev/full", "w") as full:
            done = subprocess.run([scene.program, *one], stdout=full, stderr=subprocess.PIPE, timeout=60)
        expect(done.returncode == 79, f"{one}: {done.returncode}")
        expect(f"error: standard output could not be written: {os.strerror(errno.ENOSPC)}" in done.stderr.decode(),
               done.stderr.decode())


def case_a_verdict_is_not_lost(scene: Scene, curve: list[tuple]) -> None:
    damaged = scene.folder / "damaged"
    shutil.copytree(scene.folder / "unbroken", damaged)
    shard = next((damaged / "checkpoints").rglob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    for one in (["checkpoint", "verify", str(shard.parent)], ["checkpoint", "verify", str(shard.parent), "--json"]):
        code, _ = with_no_reader([scene.program, *one])
        expect(code == 79, f"{one}: {code}")
        code, _ = with_no_reader([scene.program, *one], stderr=True)
        expect(code == 79, f"{one}, unheard: {code}")


def case_sample_ends_with_its_reader(scene: Scene, curve: list[tuple]) -> None:
    model = scene.folder / "unbroken" / "model"
    code, said = with_no_reader([scene.program, "sample", str(model), "--tokenizer", "byte", "--context", "32",
                                 "--tokens", "1000000"])
    expect(code == 0 and all(line.startswith("warning: --tokenizer = byte") for line in said.splitlines()),
           f"{code} {said}")


def case_program_built_anew(scene: Scene, curve: list[tuple]) -> None:
    for launcher in set(scene.launchers) - {"none"}:
        for kind in ("removed", "replaced"):
            program = scene.folder / f"trireme_{launcher}_{kind}"
            shutil.copy(scene.program, program)
            run = scene.run(f"rebuilt_{launcher}_{kind}", f"{scene.launchers[launcher]} --train.steps 40 "
                            "--supervise.backoff 0.1s --inject kill:rank=1,step=30")
            run.command[0] = str(program)
            run.start()
            run.until_step(1)
            name = pathlib.Path(f"/proc/{run.process.pid}/comm").read_text().strip()
            program.unlink()
            if kind == "replaced":
                shutil.copy("/bin/false", program)
            expect(name == "trireme", f"the supervisor is called {name}")
            expect(run.wait() == 0, f"{launcher}, {kind}: {run.printed()}")
            expect(len(run.incidents()) == 1, "nothing was broken")
            expect(len(run.metrics()) == 40, "not all steps")


def case_program_built_anew_for_other_hosts(scene: Scene, curve: list[tuple]) -> None:
    """A launcher that stands for one of several hosts: there the path alone tells which program is meant."""
    launcher = scene.folder / "srun"
    launcher.write_text("#!/bin/sh\nwhile [ \"$1\" != worker ]; do last=$1; shift; done\nexec \"$last\" \"$@\"\n")
    launcher.chmod(0o755)
    program = scene.folder / "trireme_hosts"
    shutil.copy(scene.program, program)
    run = scene.run("rebuilt_hosts", f"--supervise.launcher srun --supervise.srun {launcher} --train.steps 40 "
                    "--supervise.address 127.0.0.1 --supervise.backoff 0.1s --inject kill:rank=1,step=30")
    run.command[0] = str(program)
    run.start()
    run.until_step(1)
    program.unlink()
    shutil.copy("/bin/false", program)
    expect(run.wait() == 75, f"not 75: {run.printed()}")
    expect("is not the program any more that this run was started with" in run.printed(), run.printed())
    shutil.copy(scene.program, program)
    expect(scene.run("rebuilt_hosts", "--train.steps 40").finish() == 0, "the same command does not go on")


def case_memory_that_is_limited(scene: Scene, curve: list[tuple]) -> None:
    """A dry run is refused where the run is."""
    config = json.loads((scene.folder / "llama" / "config.json").read_text())
    config["intermediate_size"] = 400_000  # 307 million parameters
    large = scene.folder / "large"
    large.mkdir()
    (large / "config.json").write_text(json.dumps(config))
    for limit in ("-v 2000000", "-d 1000000"):
        for launcher, options in [*scene.launchers.items(), ("dry", "--dry-run")]:
            run = scene.run(f"limited_{launcher}_{limit[1]}", options)
            done = subprocess.run(["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *run.command, "--model.config",
                                   str(large)], capture_output=True, timeout=60)
            text = done.stderr.decode()
            expect(done.returncode == 71, f"{limit} {launcher}: {done.returncode} {text}")
            expect("the run needs that at its peak" in text or "the ranks of this process need" in text, text)
            expect(not run.out.exists() or not (run.out / "metrics.jsonl").exists(), "something was trained")


def main() -> int:
    program = str(pathlib.Path(sys.argv[1]).resolve())
    failed = 0
    with tempfile.TemporaryDirectory(prefix="trireme-surroundings-") as name:
        folder = pathlib.Path(name)
        tiny_data.make(program, folder, STEPS, 8, 2)
        scene = Scene(program, sys.argv[2] if len(sys.argv) > 2 else "", folder)
        unbroken = scene.run("unbroken", "")
        expect(unbroken.finish() == 0, unbroken.printed())
        for case in [one for name, one in globals().items() if name.startswith("case_")]:
            try:
                case(scene, unbroken.curve())
                print(f"ok      {case.__name__}", flush=True)
            except (Broken, subprocess.TimeoutExpired) as broken:
                failed += 1
                print(f"FAILED  {case.__name__}: {broken}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
