#!/usr/bin/env python3
"""Files of users that are not what they are given for, through the program: each is refused before anything is trained,
once, with exit code and words that name the file; what is right beside it is read.

    wrong_inputs.py PROGRAM
"""

import array
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tensor_files  # noqa: E402

SECONDS = 60  # for a command
VOCABULARY = tensor_files.LLAMA["vocab_size"]
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 22888\n"


def numbers(kind: str, values: list) -> bytes:
    return array.array(kind, values).tobytes()


class Cases:
    def __init__(self, program: str, folder: pathlib.Path):
        self.program, self.folder = program, folder
        self.tokens = [1 + (7 * i * i + i) % (VOCABULARY - 1) for i in range(400)]
        (folder / "t.bin").write_bytes(numbers("H", self.tokens))
        self.config(folder / "config.json")
        (folder / "run.toml").write_text(
            "[model]\nconfig = 'config.json'\n[data]\ntrain = 't.bin'\n[train]\nsteps = 2\nsequence = 8\n"
            "global_batch = 2\nmicro_batch = 2\nthreads = 1\n[supervise]\nbackoff = '0.1s'\n")

    def config(self, path: pathlib.Path, **changes) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(tensor_files.LLAMA | changes))

    def weights(self, name: str, rename=lambda name: name, **changes) -> pathlib.Path:
        """A folder of the model's config and weights."""
        shapes = tensor_files.llama_shapes(tensor_files.LLAMA)
        tensors = tensor_files.values(shapes, "F32")
        self.config(self.folder / name / "config.json", **changes)
        tensor_files.write(self.folder / name / "model.safetensors", {rename(n): s for n, s in shapes.items()},
                           {rename(n): raw for n, raw in tensors.items()})
        return self.folder / name

    def run(self, *words: str, code: int, says: str = "", seconds: float = SECONDS) -> str:
        done = subprocess.run([self.program, *words], cwd=self.folder, capture_output=True, text=True, errors="replace",
                              timeout=seconds, check=False, stdin=subprocess.DEVNULL)
        text = done.stdout + done.stderr
        assert done.returncode == code, f"{words}: {done.returncode}\n{text}"
        assert says in text, f"{words}: lacks {says!r}\n{text}"
        return text

    def train(self, *words: str, code: int = 0, says: str = "") -> str:
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        return self.run("train", "run.toml", "--out", "out", *words, code=code, says=says)

    def refused(self, *words: str, says: str, code: int = 2) -> None:
        """By a look at the run, and by the run, which starts no rank for it and leaves nothing."""
        self.train("--dry-run", *words, code=code, says=says)
        text = self.train(*words, code=code, says=says)
        assert text.count("error:") == 1, text
        assert not (self.folder / "out" / "run.toml").exists() and "restart" not in text, text
        self.train("--supervise.launcher", "none", *words, code=code, says=says)
        assert not (self.folder / "out" / "run.toml").exists()

    def losses(self) -> list:
        return [json.loads(line)["loss_hex"] for line in (self.folder / "out" / "metrics.jsonl").read_text().splitlines()]

    # --- Token files ---

    def a_header_is_no_token(self) -> None:
        header = numbers("i", [20240520, 1, 400] + 253 * [0])
        (self.folder / "llmc.bin").write_bytes(header + numbers("H", self.tokens))
        words = "begins with llm.c's header (256 int32, of which the first is 20240520), before 400 tokens of 2 bytes"
        self.refused("--data.train", "llmc.bin", says=words)
        self.refused("--data.validation", "llmc.bin", says=words)
        self.run("data", "inspect", "llmc.bin", "--vocabulary", "53", code=2, says=words)
        (self.folder / "text.txt").write_text("It was the best of times, it was the worst of times. " * 20)
        self.refused("--data.train", "text.txt", says="text.txt: is plain text, not a token file; trireme data tokenize")

    def a_token_beyond_the_vocabulary_is_told_before_the_first_step(self) -> None:
        tokens = self.tokens[:]
        tokens[-1] = VOCABULARY
        (self.folder / "beyond.bin").write_bytes(numbers("H", tokens))
        for key in ("data.train", "data.validation"):
            self.refused(f"--{key}", "beyond.bin",
                         says=f"{key} = beyond.bin: token 53 at position 399 is not below the vocabulary (53); 1 of 400")

    def tokens_of_four_bytes_are_told_and_read_where_that_is_said(self) -> None:
        (self.folder / "wide.bin").write_bytes(numbers("i", self.tokens))
        words = "every second one is 0: it holds 400 tokens of 4 bytes"
        self.refused("--data.train", "wide.bin", says=words)
        self.run("data", "inspect", "wide.bin", "--vocabulary", "53", code=2, says=words)
        self.run("data", "inspect", "wide.bin", "--vocabulary", "53", "--token-bytes", "4", code=0,
                 says="wide.bin: 400 tokens of 4 bytes")
        self.train()
        expected = self.losses()
        self.train("--data.train", "wide.bin", "--data.token_bytes", "4")
        assert self.losses() == expected
        folder = self.folder / "beside"  # where data.json is of other files
        folder.mkdir()
        (folder / "data.json").write_text(json.dumps({
            "tokenizer": "byte", "vocabulary": 53, "token_bytes": 2, "train_tokens": 9, "validation_tokens": 0,
            "text_bytes": 9, "text_xxh3": "0"}))
        shutil.copy(self.folder / "wide.bin", folder)
        self.refused("--data.train", "beside/wide.bin", says=words)
        self.train("--data.token_bytes", "3", code=2, says="data.token_bytes = 3: tokens are 16 or 32 bits")
        folder = self.folder / "megatron"
        folder.mkdir()
        (folder / "x.bin").write_bytes(numbers("i", self.tokens))
        (folder / "x.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QB", 1, 4) + bytes(16))
        self.train("--data.train", "megatron/x.bin")
        assert self.losses() == expected
        self.refused("--data.train", "megatron/x.bin", "--data.token_bytes", "2", says="megatron/x.idx says 4")

    # --- Weights ---

    def weights_that_are_not_there_are_refused_once(self) -> None:
        folder = self.weights("hf")
        file = folder / "model.safetensors"
        whole = file.read_bytes()
        for content, words in [
                (POINTER.encode(), "hf/model.safetensors: is a git-lfs pointer, not a safetensors file; `git lfs pull`"),
                (b"<!DOCTYPE html>\n<html><body>Log in to download</body></html>", "is a web page"),
                (whole[:-100], "truncated: the tensors need"), (b"", "truncated: 0 bytes")]:
            file.write_bytes(content)
            begun = time.monotonic()
            self.refused("--model.weights", "hf", says=words)
            assert time.monotonic() - begun < 20
            self.run("checkpoint", "import", "hf", "--out", "start", code=2, says=words)
            assert not (self.folder / "start" / "step-00000000").exists()
        file.rename(folder / "pytorch_model.bin")
        self.refused("--model.weights", "hf", says="pytorch_model.bin is a pickle of PyTorch")
        self.refused("--model.weights", "nowhere", says="model.weights = nowhere: there is no such file or directory")
        (folder / "model-00001-of-00002.safetensors").write_bytes(whole)
        names = list(tensor_files.llama_shapes(tensor_files.LLAMA))
        (folder / "model.safetensors.index.json").write_text(json.dumps(
            {"weight_map": {name: f"model-0000{1 + (name > 'm')}-of-00002.safetensors" for name in names}}))
        self.refused("--model.weights", "hf", says="there is no file hf/model-00002-of-00002.safetensors")

    def names_that_wrappers_left_are_read(self) -> None:
        self.weights("plain")
        self.train("--model.weights", "plain")
        expected = self.losses()
        for prefix in ("_orig_mod.", "module.", "model."):
            self.weights("wrapped", lambda name, prefix=prefix: prefix + name)
            self.train("--model.weights", "wrapped")
            assert self.losses() == expected, prefix
            shutil.rmtree(self.folder / "start", ignore_errors=True)
            self.run("checkpoint", "import", "wrapped", "--out", "start", code=0)

    def a_head_of_its_own_is_not_left_out(self) -> None:
        self.weights("own-head", tie_word_embeddings=True)
        words = "lm_head.weight is another tensor than model.embed_tokens.weight"
        self.refused("--model.config", "own-head", "--model.weights", "own-head", says=words)
        self.run("checkpoint", "import", "own-head", "--out", "start2", code=2, says=words)

    def the_weights_config_is_the_runs(self) -> None:
        self.weights("theirs", rope_theta=500000.0)
        self.refused("--model.weights", "theirs",
                     says="model.weights = theirs: are of another model: rope_theta is 5e+05 in theirs/config.json, and "
                          "10000.0 in model.config; --model.config theirs/config.json")
        self.train("--model.config", "theirs", "--model.weights", "theirs")
        self.weights("theirs", attention_dropout=0.1, initializer_range=0.5, eos_token_id=3)
        self.train("--model.weights", "theirs")

    def weights_that_are_not_finite_are_named(self) -> None:
        folder = self.weights("nan")
        file = folder / "model.safetensors"
        content = bytearray(file.read_bytes())
        content[-4:] = struct.pack("<f", float("nan"))
        file.write_bytes(content)
        words = "lm_head.weight is not finite: NaN at [52, 15]"
        self.train("--model.weights", "nan", code=72, says=words)
        self.run("checkpoint", "import", "nan", "--out", "start3", code=72, says=words)

    def a_sample_is_of_the_models_own_tokens(self) -> None:
        self.weights("words")
        self.run("sample", "words", "--tokens", "3", code=2, says="--tokenizer = byte: has 256 tokens, the model's vocab")
        config = tensor_files.LLAMA | {"vocab_size": 300}
        shapes = tensor_files.llama_shapes(config)
        for name, size in (("bytes", 256), ("more", 300)):
            config = tensor_files.LLAMA | {"vocab_size": size}
            shapes = tensor_files.llama_shapes(config)
            self.config(self.folder / name / "config.json", vocab_size=size)
            tensor_files.write(self.folder / name / "model.safetensors", shapes, tensor_files.values(shapes, "F32"))
        self.run("sample", "bytes", "--tokens", "3", "--context", "8", code=0)
        self.run("sample", "more", "--tokens", "3", "--context", "8", code=2, says="--tokenizer byte")
        self.run("sample", "more", "--tokens", "3", "--context", "8", "--tokenizer", "byte", code=0,
                 says="written as ?")
        (self.folder / "bytes" / "tokenizer.json").write_text("{}")
        self.run("sample", "bytes", "--tokens", "3", code=2, says="that is bytes/tokenizer.json")

    def a_run_that_goes_on_needs_no_weights(self) -> None:
        folder = self.weights("old")
        self.train("--model.weights", "old")
        shutil.rmtree(folder)
        more = ("train", "run.toml", "--out", "out", "--model.weights", "old", "--train.steps", "4", "--accept",
                "train.steps")
        self.run(*more, "--dry-run", code=0)
        for launcher in ("none", "threads"):
            shutil.copytree(self.folder / "out", self.folder / f"out-{launcher}")
            self.run(*[word if word != "out" else f"out-{launcher}" for word in more], "--supervise.launcher", launcher,
                     code=0, says="goes on from step 2")
        self.refused("--model.weights", "old", says="there is no such file")

    # --- Other files than regular ones, other files than before ---

    def what_is_no_regular_file_is_refused_without_waiting(self) -> None:
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        for folder, name in (("fifo-data", "data.json"), ("fifo-index", "model.safetensors.index.json"),
                             ("fifo-weights", "model.safetensors"), ("fifo-config", "config.json")):
            (self.folder / folder).mkdir()
            os.mkfifo(self.folder / folder / name)
        shutil.copy(self.folder / "t.bin", self.folder / "fifo-data")
        words = "is a FIFO, not a regular file"
        for options in (["--data.train", "fifo"], ["--data.validation", "fifo"], ["--data.train", "fifo-data/t.bin"],
                        ["--model.config", "fifo"], ["--model.config", "fifo-config"], ["--model.weights", "fifo"],
                        ["--model.weights", "fifo-index"], ["--model.weights", "fifo-weights"],
                        ["--model.weights", "fifo-config"], ["--checkpoint.cluster", "fifo"],
                        ["--supervise.hosts", "./fifo"]):
            for more in ([], ["--dry-run"]) if options[0] != "--supervise.hosts" else ([],):
                self.train(*options, *more, code=2, says=words)
        self.run("train", "fifo", code=2, says=words)
        self.run("model", "fifo", code=2, says=words)
        self.run("data", "inspect", "fifo", "--vocabulary", "53", code=2, says=words)
        self.run("data", "tokenize", "fifo", "--out", "tokenized", code=2, says=words)
        self.train("--data.train", "/dev/zero", code=2, says="is a device, not a regular file")
        self.train("--data.train", ".", code=2, says="data.train = .: is a directory, not a token file")

    def a_stream_of_the_shell_is_read(self) -> None:
        for command in ('"$0" model <(sleep 0.1; cat config.json)', 'cat config.json | "$0" model /dev/stdin',
                        '"$0" model /dev/stdin < config.json', '"$0" train <(sleep 0.1; cat run.toml) --dry-run',
                        'cat run.toml | "$0" train /dev/stdin --dry-run'):
            done = subprocess.run(["bash", "-c", command, self.program], cwd=self.folder, capture_output=True, text=True,
                                  timeout=SECONDS, check=False, stdin=subprocess.DEVNULL)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"

    def a_token_file_that_changes_while_it_is_trained_on_ends_the_run_once(self) -> None:
        content = (self.folder / "t.bin").read_bytes()
        changed = self.folder / "changed.bin"
        for change, words in [(lambda: os.truncate(changed, 0), "it had 800 bytes when it was opened, and has 0"),
                              (lambda: changed.write_bytes(content[::-1]), "changed while it was trained on")]:
            for launcher in ("threads", "none"):
                changed.write_bytes(content)
                shutil.rmtree(self.folder / "out", ignore_errors=True)
                with subprocess.Popen([self.program, "train", "run.toml", "--out", "out", "--data.train", "changed.bin",
                                       "--train.steps", "1000000", "--supervise.launcher", launcher], cwd=self.folder,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
                    metrics, end = self.folder / "out" / "metrics.jsonl", time.monotonic() + SECONDS
                    while time.monotonic() < end and not (metrics.exists() and metrics.read_text().count("\n") > 3):
                        time.sleep(0.02)
                    change()
                    _, text = process.communicate(timeout=SECONDS)
                assert process.returncode == 2, text
                errors = [line for line in text.splitlines() if line.startswith("error:")]
                assert any("changed.bin" in line and words in line for line in errors), text
                assert "restart" not in text, text


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        cases = Cases(os.path.abspath(sys.argv[1]), pathlib.Path(folder))
        wanted = sys.argv[2:]
        names = [name for name, value in vars(Cases).items()
                 if callable(value) and not name.startswith("_") and name not in
                 ("config", "weights", "run", "train", "refused", "losses")]
        for name in names:
            if wanted and name not in wanted:
                continue
            begun = time.monotonic()
            getattr(cases, name)()
            print(f"{name}: {time.monotonic() - begun:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
