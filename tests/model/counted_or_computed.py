#!/usr/bin/env python3
"""A model that is counted and planned, though training computes another function: through every command that counts, and
every one that computes.

    counted_or_computed.py PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tensor_files  # noqa: E402
import tiny_data  # noqa: E402

BASE = {"model_type": "llama", "vocab_size": 259, "max_position_embeddings": 64, "hidden_size": 16,
        "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 10000.0, "tie_word_embeddings": False}
PARAMETERS = 2 * 259 * 16 + 2 * 16 * 16 + 2 * 8 * 16 + 3 * 16 * 32 + 3 * 16

# Members of a config.json, and the field that whoever computes refuses; "" for none.
CASES = [
    ({}, ""),
    ({"use_mrope": False, "max_sequence_length": 64, "_num_labels": 1, "unsloth_fixed": True, "auto_map": {}}, ""),
    ({"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, ""),
    ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}, "rope_scaling: rope_type"),
    ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_scaling: rope_type"),
    ({"rope_theta": None}, "rope_theta"),
    ({"pretraining_tp": 2}, "pretraining_tp"),
    ({"quantization_config": {"load_in_8bit": True, "quant_method": "bitsandbytes"}}, "quantization_config"),
    ({"hidden_act": "gelu"}, "hidden_act"),
    ({"is_causal": False}, "is_causal"),
]


def run(program: str, *arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=100)


def check_counts(program: str, config: pathlib.Path, field: str, reference: dict) -> dict:
    answers = {}
    for name, arguments in {"model": ["model", config], "plan": ["plan", config, "--cluster", "a100-80", "--batch", 8],
                            "memory": ["plan", "memory", config, "--dp", 2, "--batch", 8]}.items():
        done = run(program, *arguments, "--json")
        assert done.returncode == 0, (arguments, done.stderr)
        notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
        assert len(notes) == (1 if field else 0) and (not field or f": {field} = " in notes[0]), (arguments, done.stderr)
        answer = json.loads(done.stdout)
        answers[name] = {key: value for key, value in answer.items() if key not in ("screening_s", "simulating_s")}
    assert answers["model"]["parameters"] == PARAMETERS, answers["model"]["parameters"]
    refused = answers["model"].pop("training_refuses")
    assert len(refused) == (1 if field else 0) and (not field or f": {field} = " in refused[0]), refused
    assert not reference or answers == reference, config  # bytes and seconds are those of the plain model
    return answers


def check_computing(program: str, root: pathlib.Path, folder: pathlib.Path, field: str) -> None:
    train = [root / "run.toml", "--model.config", folder]
    commands = {"train": ["train", *train, "--out", folder / "run"],
                "verify": ["verify", *train, "--steps", 1],
                "bench": ["bench", "step", *train],
                "sample": ["sample", folder, "--tokenizer", "byte", "--tokens", 2, "--context", 8],
                "import": ["checkpoint", "import", folder, "--out", folder / "start"]}
    for name, arguments in commands.items():
        if not field and name == "bench":
            continue  # takes its time
        done = run(program, *arguments)
        if not field:
            assert done.returncode == 0, (arguments, done)
            continue
        assert done.returncode == 2 and f": {field} = " in done.stderr, (arguments, done)
        assert not (folder / "run").exists() and not (folder / "start" / "step-00000000").exists(), name


def main() -> None:
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as place:
        root = pathlib.Path(place)
        tiny_data.make(program, root, 2, 1, 1, sequence=8)
        reference: dict = {}
        for number, (members, field) in enumerate(CASES):
            config = {**BASE, **members}
            folder = root / f"model-{number}"
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(config))
            shapes = tensor_files.llama_shapes(BASE)
            tensor_files.write(folder / "model.safetensors", shapes, tensor_files.values(shapes, "F32"))
            reference = check_counts(program, folder / "config.json", field, reference)
            check_computing(program, root, folder, field)
    print("what only computing depends on is counted, planned, and refused to whoever computes")


if __name__ == "__main__":
    main()
