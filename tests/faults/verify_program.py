#!/usr/bin/env python3
"""`trireme verify`: what it prints, its exit codes, and the first layers of stored weights.

    verify_program.py PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tensor_files  # noqa: E402
import tiny_data  # noqa: E402

EQUAL, WITHIN, USAGE = 0, 1, 2


def main(program: str) -> int:
    failures = []

    def verify(code: int, *options: str) -> str:
        command = [program, "verify", str(folder / "run.toml"), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode != code:
            failures.append(f"{' '.join(options)}: code {done.returncode}, not {code}:\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def expect(text: str, *words: str) -> None:
        failures.extend(f"{word!r} is missing in:\n{text}" for word in words if word not in text)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tiny_data.make(program, folder, 4, 4, 1)
        config = dict(tensor_files.LLAMA, vocab_size=259, num_hidden_layers=3)
        (folder / "model").mkdir()
        (folder / "model/config.json").write_text(json.dumps(config))
        shapes = tensor_files.llama_shapes(config)
        tensor_files.write(folder / "model/model.safetensors", shapes, tensor_files.values(shapes, "F32"))
        model = ["--model.config", str(folder / "model")]
        stored = [*model, "--model.weights", str(folder / "model")]

        expect(verify(EQUAL, *model, "--layout.pp", "3"), "\nequal\n")
        text = verify(WITHIN, *model, "--layout.dp", "2", "--train.precision", "bf16")
        expect(text, "within bound", "largest difference, of its bound:", "gradient norm", "weights")
        largest = json.loads(verify(WITHIN, *model, "--layout.tp", "2", "--json"))["largest_over_bound"]
        if set(largest) != {"loss", "gradient", "gradient norm", "weights"} or max(largest.values()) >= 1:
            failures.append(f"largest_over_bound: {largest}")

        verify(WITHIN, *stored, "--layout.dp", "2", "--layers", "2")
        verify(WITHIN, *stored, "--layout.tp", "2", "--layers", "1", "--train.precision", "bf16")
        expect(verify(USAGE, *stored, "--layers", "4"), "--layers", "has 3")
        expect(verify(USAGE, *model, "--layers", "-1"), "--layers")

    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
