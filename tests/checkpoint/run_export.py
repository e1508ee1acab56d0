#!/usr/bin/env python3
"""The checkpoints of real runs: whatever layout wrote one, its slices are the tensors that the run exported, the export
from it is that of the run byte by byte, and layouts that promise the same bits have the same state. A run that goes on
from the import of an export has the losses of one that starts from its weights with a fresh optimizer.

    run_export.py PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tensor_files  # noqa: E402
import tiny_data  # noqa: E402

STEPS = 2
LAYOUTS = {  # the last one has other bits
    "plain": ["--layout.dp", "2"],
    "sharded": ["--layout.dp", "2", "--layout.pp", "2", "--layout.zero", "3", "--layout.reduce", "step"],
    "tensor": ["--layout.tp", "4"],
}


def run(program: str, *arguments: object, code: int = 0) -> str:
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == code, (arguments, done)
    return done.stdout


def check_run(program: str, directory: pathlib.Path, out: pathlib.Path) -> None:
    assert json.loads(run(program, "checkpoint", "verify", directory, "--json"))["whole"]
    listed = json.loads(run(program, "checkpoint", "ls", directory, "--json"))["checkpoints"]
    assert listed[0]["step"] == STEPS and listed[0]["reason"] == "end", listed
    exported = tensor_files.read(directory / "model" / "model.safetensors")
    states = tensor_files.checkpoint_states(pathlib.Path(listed[0]["path"]))
    assert len(states) == 3 * len(exported)
    for name, (_, shape, raw) in exported.items():
        assert states["weight", name] == (shape, raw), name
        for moment in ("exp_avg", "exp_avg_sq"):
            assert states[moment, name][0] == shape and any(states[moment, name][1]), (moment, name)
    run(program, "checkpoint", "export", directory, "--out", out)
    for file in ("config.json", "model.safetensors"):
        assert (out / file).read_bytes() == (directory / "model" / file).read_bytes(), file


def losses(directory: pathlib.Path) -> list[str]:
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss_hex"] + json.loads(line)["grad_norm_hex"] for line in lines]


def check_import(program: str, folder: pathlib.Path, export: pathlib.Path, train: list[object]) -> None:
    name = export.name
    run(program, "checkpoint", "import", export, "--out", folder / f"{name}-import")
    imported, weights = folder / f"{name}-imported", folder / f"{name}-weights"
    run(program, *train, "--layout.tp", "2", "--resume", folder / f"{name}-import", "--out", imported)
    run(program, *train, "--layout.tp", "2", "--model.weights", export, "--out", weights)
    assert len(losses(imported)) == STEPS and losses(imported) == losses(weights), name


def main() -> None:
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root)
        tiny_data.make(program, folder, STEPS, 4, 1)
        for model in tiny_data.MODELS:
            for name, layout in LAYOUTS.items():
                directory = folder / f"{model}-{name}"
                run(program, "train", folder / "run.toml", "--model.config", folder / model, *layout, "--out", directory)
                check_run(program, directory, folder / f"{model}-{name}-export")
            train = ["train", folder / "run.toml", "--model.config", folder / model]
            check_import(program, folder, folder / f"{model}-tensor-export", train)
            plain, sharded, tensor = (folder / f"{model}-{name}" for name in LAYOUTS)
            assert "identical" in run(program, "checkpoint", "diff", plain, sharded)
            assert "different" in run(program, "checkpoint", "diff", plain, tensor, code=1)
    print("checkpoints of runs are what the runs exported")


if __name__ == "__main__":
    main()
