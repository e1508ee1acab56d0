#!/usr/bin/env python3
"""No value of an option, and no file, makes the program fail by its own fault: each is taken, or refused by name.

    nasty_inputs.py PROGRAM [COMMAND ...]

COMMAND: only these, as COMMANDS has them, or `keys`, `files`.
"""

import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tiny_data  # noqa: E402

AT_ONCE = 3
SECONDS = 60
FINE = {0, 1, 2, 71, 75, 78, 79, 86, 87}  # of commands that run; never 70, a signal, or a code of no meaning

VALUES = ["nan", "-inf", "1e400", "-0.0", "0", "-1", "0.5", "9223372036854775807", "9223372036854775808", "2147483648",
          "1e18", "1e300", "1e308s", "1e-300s", "0s", "99999999999y", "1e30GB", "", " ", "\x01", "\udcff", "x=,:;/"]

# What each command is given besides; {} is the folder. None of them trains for longer than some steps.
COMMANDS = {
    "plan": "{}/llama --cluster a100-80:8 --batch 8",
    "plan memory": "{}/llama --tp 2",
    "plan axes": "{}/llama --cluster a100-80:8 --batch 8",
    "plan comms": "--bytes 14GB --ranks 8 --link 200GB/s",
    "plan bubble": "--stages 4",
    "plan layout": "--world 16 --ranks-per-host 8",
    "plan checkpoint": "--cost 3min --mtbf 50h",
    "plan fleet": "--devices 4000 --device-mtbf 3y --duration 3w",
    "plan validate": "{}/runs.csv",
    "train": "{}/run.toml --model.config {}/llama --out {}/dry --dry-run",
    "drill": "{}/run.toml --model.config {}/no_such_model --out {}/drilled",
    "bench step": "{}/run.toml --model.config {}/llama",
    "bench machine": "--out {}/machine.toml",
    "verify": "{}/run.toml --model.config {}/llama --layers 1 --steps 1",
    "model": "{}/llama",
    "data tokenize": "{}/text.txt --out {}/again",
    "data inspect": "{}/train.bin",
    "sample": "{}/run/model --tokens 3 --context 16",
    "checkpoint ls": "{}/run",
    "checkpoint show": "{}/run",
    "checkpoint verify": "{}/run",
    "checkpoint diff": "{}/run {}/run",
    "checkpoint export": "{}/run --out {}/exported",
    "checkpoint import": "{}/run/model --out {}/imported",
    "report trace": "{}/trace.json --out {}/page.html",
}

# What measures for a minute before it comes to them.
LEFT_OUT = {("bench machine", "ranks"), ("bench machine", "name"), ("bench machine", "out")}


def contents() -> dict[str, bytes]:
    return {
        "empty": b"",
        "blank": b" \n\n",
        "nul": b"a = 1\0\n" * 10,
        "binary": bytes(range(256)) * 40,
        "bom_only": b"\xef\xbb\xbf",
        "utf16": "model = 1\n".encode("utf-16"),
        "deep_lists": b"a = " + b"[" * 100_000,
        "deep_objects": b'{"a":' * 100_000,
        "deep_json": b"[" * 100_000,
        "closed_json": b"[" * 5000 + b"]" * 5000,
        "twice": b'{"model_type": "llama", "model_type": "gpt2"}',
        "twice_toml": b"[train]\nsteps = 1\nsteps = 2\n",
        "huge_number": b'{"vocab_size": 1e999999, "hidden_size": -99999999999999999999999}',
        "huge_toml": b"a = 99999999999999999999999\nb = 1e99999\nc = nan\n",
        "wrong_kinds": b'{"model_type": [], "step": {}, "traceEvents": 3, "version": "x"}',
        "null": b"null",
        "number": b"3",
        "long_line": b"x" * 3_000_000,
        "many_lines": b"1,2,3\n" * 500_000,
        "many_spaces": b" " * 20_000_000,
    }


class Test:
    def __init__(self, program: str, folder: pathlib.Path):
        self.program, self.folder = program, folder
        self.faults: list[str] = []
        self.count = 0

    def check(self, words: list[str], name: str = "") -> None:
        """Runs it; `name` must be in what it says where it refuses."""
        self.count += 1
        shown = " ".join(repr(word) if len(word) < 80 else repr(word[:80]) + "..." for word in words)
        try:
            done = subprocess.run([self.program, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self.faults.append(f"{shown}: not ended after {SECONDS} s")
            return
        said = done.stderr.decode(errors="replace")
        if done.returncode not in FINE:
            self.faults.append(f"{shown}: {done.returncode} {said[:300]}")
        elif done.returncode == 2 and name.replace("-", "_") not in said.replace("-", "_"):
            self.faults.append(f"{shown}: {name} is not named: {said[:300]}")

    def all(self, jobs: list[tuple[list[str], str]]) -> None:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda job: self.check(*job), jobs))

    def help(self, command: str) -> str:
        return subprocess.run([self.program, *command.split(), "--help"], capture_output=True, text=True).stdout

    def base(self, command: str) -> list[str]:
        return command.split() + COMMANDS[command].format(*[self.folder] * 3).split()

    def names(self, command: str) -> list[str]:
        return re.findall(r"^ +--([a-z-]+)(?= (?:TEXT|INT|FLOAT))", self.help(command).split("Examples:")[0], re.M)

    def options(self, command: str) -> None:
        names = self.names(command)
        if command in ("drill", "bench step"):  # those of a run are train's
            names = [name for name in names if name not in self.names("train")]
        jobs = []
        for name in dict.fromkeys(names):
            if (command, name) not in LEFT_OUT:
                jobs += [(self.base(command) + [f"--{name}={value}"], "") for value in VALUES]
        self.all(jobs)

    def keys(self) -> None:
        keys = re.findall(r"^  --([a-z_]+\.[a-z_0-9]+)", self.help("train"), re.M)
        assert len(keys) > 60, keys
        self.all([(self.base("train") + [f"--{key}={value}"], key.split(".")[0]) for key in keys for value in VALUES])
        # What a supervisor makes of those that it takes.
        extreme = ["--train.deadline=1", "--train.deadline=0.001", "--train.start_deadline=1", "--supervise.grace=1ms",
                   "--supervise.backoff=1ms", "--supervise.hang_factor=999999", "--supervise.cooldown=1e9s",
                   "--supervise.hang_floor=5min", "--supervise.hang_floor=1ms", "--supervise.straggler_span=1e6s",
                   "--supervise.straggler_margin=999999", "--checkpoint.mtbf=1e12s", "--checkpoint.mtbf=1ms",
                   "--checkpoint.interval=1e-300s", "--checkpoint.interval=1e300s", "--checkpoint.interval=1000000000000000",
                   "--supervise.retries=0", "--checkpoint.keep_every=4611686018427387904",
                   "--optimizer.loss_scale_growth=4611686018427387904", "--train.log_interval=4611686018427387904",
                   "--train.validation_interval=4611686018427387904", "--train.seed=4611686018427387904",
                   "--layout.bucket=4611686018427387904", "--optimizer.clip_norm=1e300", "--optimizer.clip_norm=1e-300",
                   "--optimizer.epsilon=1e300", "--optimizer.weight_decay=1e-300", "--out.trace_steps=1-1"]
        for index, option in enumerate(extreme):
            self.check(["train", str(self.folder / "run.toml"), "--model.config", str(self.folder / "llama"), "--out",
                        str(self.folder / f"extreme_{index}"), option], option.split(".")[0][2:])

    def files(self) -> None:
        place = self.folder / "nasty"
        place.mkdir()
        paths = {name: place / name for name in contents()}
        for name, content in contents().items():
            paths[name].write_bytes(content)
        for ending, change in (("crlf", lambda text: text.replace("\n", "\r\n")), ("bom", lambda text: "\ufeff" + text)):
            for source in ("run.toml", "llama/config.json"):
                paths[f"{ending}_{source.replace('/', '_')}"] = place / f"{ending}_{source.replace('/', '_')}"
                text = change((self.folder / source).read_text())
                (place / f"{ending}_{source.replace('/', '_')}").write_text(text, newline="")
        paths["directory"] = place
        paths["absent"] = place / "absent"
        run, model = str(self.folder / "run.toml"), str(self.folder / "llama")
        train = ["train", run, "--model.config", model, "--out", str(self.folder / "dry"), "--dry-run"]
        jobs: list[tuple[list[str], str]] = []
        for path in map(str, paths.values()):
            jobs += [(["train", path, "--model.config", model, "--out", str(self.folder / "dry"), "--dry-run"], ""),
                     (train + [f"--model.config={path}"], ""), (train + [f"--data.train={path}"], ""),
                     (train + [f"--model.weights={path}"], ""), (train + [f"--checkpoint.cluster={path}"], ""),
                     (train + [f"--checkpoint.resume={path}"], ""),
                     (["train", run, "--model.config", model, "--layout.dp=2", "--out", str(self.folder / "hosted"),
                       "--supervise.rehearsal=true", f"--supervise.hosts={path}", "--supervise.retries=0",
                       "--supervise.mpirun=/bin/false"], ""),
                     (["model", path], ""), (["sample", path], ""), (["report", "trace", path, "--out", path + ".html"], ""),
                     (["plan", path, "--cluster", "a100-80:8", "--batch", "8"], ""),
                     (["plan", model, "--cluster", path, "--batch", "8"], ""),
                     (["plan", model, "--cluster", "a100-80:8", "--batch", "8", "--calibration", path], ""),
                     (["plan", "validate", path], ""), (["data", "inspect", path, "--vocabulary", "300"], ""),
                     (["checkpoint", "ls", path], ""), (["checkpoint", "verify", path], ""),
                     (["checkpoint", "import", path, "--out", str(self.folder / "imports")], "")]
        self.all(jobs)
        for name in ("metrics.jsonl", "incidents.jsonl", ".lease", "run.toml"):  # what a run finds in its own directory
            for kind, path in paths.items():
                if path.is_file() and path.stat().st_size < 1_000_000:
                    own = self.folder / f"own_{name}_{kind}"
                    shutil.copytree(self.folder / "run", own)
                    shutil.copy(path, own / name)
                    jobs = [(["checkpoint", "ls", str(own)], ""),
                            (["train", run, "--model.config", model, "--out", str(own), "--dry-run"], "")]
                    self.all(jobs)
                    shutil.rmtree(own)


def main() -> int:
    program = str(pathlib.Path(sys.argv[1]).resolve())
    chosen = sys.argv[2:]
    with tempfile.TemporaryDirectory(prefix="trireme-nasty-") as name:
        folder = pathlib.Path(name)
        tiny_data.make(program, folder, 3, 4, 2)
        (folder / "runs.csv").write_text("a,b\n1,2\n")
        done = subprocess.run([program, "train", str(folder / "run.toml"), "--model.config", str(folder / "llama"), "--out",
                               str(folder / "run"), "--trace", str(folder / "trace.json"), "--trace-steps", "1-2"],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        test = Test(program, folder)
        for command in COMMANDS:
            if not chosen or command in chosen:
                test.options(command)
                print(f"{command}: {test.count} in all, {len(test.faults)} wrong", flush=True)
        for part, run in (("keys", test.keys), ("files", test.files)):
            if not chosen or part in chosen:
                run()
                print(f"{part}: {test.count} in all, {len(test.faults)} wrong", flush=True)
        for fault in test.faults:
            print(f"WRONG  {fault}".replace("\n", " | "))
        return 1 if test.faults else 0


if __name__ == "__main__":
    sys.exit(main())
