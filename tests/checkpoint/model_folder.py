#!/usr/bin/env python3
"""Everything in a model's folder that training does not change comes out as it went in: through import and export, and
through runs, after the folder is gone.

    model_folder.py PROGRAM
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tensor_files  # noqa: E402
import tiny_data  # noqa: E402

CONFIG = {"architectures": ["LlamaForCausalLM"], "_name_or_path": "someone/something", "model_type": "llama",
          "vocab_size": 259, "max_position_embeddings": 64, "hidden_size": 16, "intermediate_size": 32,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
          "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": False, "bos_token_id": 1,
          "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}, "rope_theta": None,
          "eos_token_id": [91, 92, 93], "pad_token_id": 94, "dtype": "float32", "use_cache": True, "use_mrope": False,
          "temperature": 0.6, "task_specific_params": {"a": [1, 2.5, None, "\u00e9"]}, "num_labels": 3}
FILES = {"generation_config.json": b'{"eos_token_id": [91, 92, 93], "do_sample": true}\n',
         "tokenizer.json": '{"model": {"vocab": {"\u00e9": 0}}}'.encode(), "tokenizer_config.json": b"{}",
         "special_tokens_map.json": b'{"pad_token": "<pad>"}', "tokenizer.model": bytes(range(256)),
         "vocab.json": b"{}", "merges.txt": b"#version: 0.2\n", "added_tokens.json": b"{}",
         "chat_template.jinja": b"{{ messages }}"}


def run(program: str, *arguments: object, code: int = 0) -> subprocess.CompletedProcess:
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == code, (arguments, done)
    return done


def make_folder(folder: pathlib.Path, files: dict, config: dict = CONFIG) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    shapes = tensor_files.llama_shapes(config)
    tensor_files.write(folder / "model.safetensors", shapes, tensor_files.values(shapes, "F32"))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "README.md").write_text("of these weights")


def check(folder: pathlib.Path, dtype: str = "float32", files: dict = FILES) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert config == {**CONFIG, "dtype": dtype}, config
    assert list(config) == list(CONFIG)
    assert {path.name: path.read_bytes() for path in folder.iterdir()
            if path.name != "config.json" and path.suffix != ".safetensors"} == files, list(folder.iterdir())


def check_import(program: str, root: pathlib.Path) -> None:
    make_folder(root / "hf", FILES)
    run(program, "checkpoint", "import", root / "hf", "--out", root / "start")
    shutil.rmtree(root / "hf")
    run(program, "checkpoint", "verify", root / "start")
    shown = json.loads(run(program, "checkpoint", "show", root / "start", "--json").stdout)
    assert shown["model_files"] == sorted(FILES) and shown["model"] == CONFIG
    for word, dtype in {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "f16": "float16"}.items():
        done = run(program, "checkpoint", "export", root / "start", "--out", root / word, "--dtype", word, "--json")
        check(root / word, dtype)
        assert json.loads(done.stdout)["dtype"] == ("fp16" if word == "f16" else word)
    done = run(program, "checkpoint", "export", root / "start", "--out", root / "x", "--dtype", "f8", code=2)
    assert "nearest legal: fp32, bf16, fp16" in done.stderr, done.stderr
    # Nothing is written over, and a file that was changed is no checkpoint's.
    (root / "kept").mkdir()
    (root / "kept" / "tokenizer_config.json").write_text("mine")
    done = run(program, "checkpoint", "export", root / "start", "--out", root / "kept", code=2)
    assert "tokenizer_config.json: is there already" in done.stderr and len(list((root / "kept").iterdir())) == 1
    changed = root / "start" / "step-00000000" / "tokenizer.json"
    changed.write_bytes(changed.read_bytes().replace(b"vocab", b"vocal"))
    done = run(program, "checkpoint", "export", root / "start", "--out", root / "y", code=79)
    assert "tokenizer.json" in done.stderr and not (root / "y" / "model.safetensors").exists()
    run(program, "checkpoint", "verify", root / "start", code=79)


def check_runs(program: str, root: pathlib.Path) -> None:
    make_folder(root / "model", FILES)
    train = ["train", root / "run.toml", "--model.config", root / "model", "--out", root / "run"]
    run(program, *train, "--model.weights", root / "model", "--train.steps", 2)
    check(root / "run" / "model")
    for name in FILES:
        (root / "model" / name).unlink()
    (root / "model" / "model.safetensors").rename(root / "weights.safetensors")
    run(program, "checkpoint", "export", root / "run", "--out", root / "exported")
    check(root / "exported")
    # The checkpoint has what the folder no longer has.
    run(program, *train, "--model.weights", root / "weights.safetensors", "--train.steps", 3, "--accept", "train.steps")
    check(root / "run" / "model")
    run(program, "checkpoint", "verify", root / "run")
    run(program, "checkpoint", "export", root / "run", "--out", root / "later")
    check(root / "later")
    run(program, *train[:-2], "--resume", root / "run", "--train.steps", 4, "--accept", "train.steps",
        "--out", root / "other", "--layout.dp", 2)
    check(root / "other" / "model")
    # A model is another where its arithmetic is, and the same whatever else is written of it.
    for change, code in (({"rms_norm_eps": 1e-6}, 2), ({"pad_token_id": 95, "_num_labels": 1}, 0)):
        (root / "model" / "config.json").write_text(json.dumps({**CONFIG, **change}))
        done = run(program, *train, "--train.steps", 4, "--accept", "train.steps", code=code)
        assert code == 0 or "is of another model: its rms_norm_eps is 1e-05, this model's is 1e-06" in done.stderr, done
    assert json.loads((root / "run" / "model" / "config.json").read_text()) == {**CONFIG, **change}
    # A run from random weights has no tokenizer, and its checkpoints are of the first version.
    (root / "bare").mkdir()
    (root / "bare" / "config.json").write_text(json.dumps(CONFIG))
    run(program, "train", root / "run.toml", "--model.config", root / "bare", "--out", root / "new")
    check(root / "new" / "model", files={})
    # One that begins anew in a directory leaves no tokenizer of the model before.
    run(program, "train", root / "run.toml", "--model.config", root / "bare", "--out", root / "other", "--overwrite")
    check(root / "other" / "model", files={})
    newest = sorted((root / "new" / "checkpoints").iterdir())[-1]
    assert json.loads((newest / "manifest.json").read_text())["version"] == 1


# transformers 5 refuses such a llama: a run that begins is told, and so is an export.
def check_width(program: str, root: pathlib.Path) -> None:
    (root / "odd").mkdir()
    odd = {**CONFIG, "hidden_size": 18, "head_dim": 4}
    (root / "odd" / "config.json").write_text(json.dumps(odd))
    words = "hidden_size (18) is no multiple of num_attention_heads (4)"
    done = run(program, "train", root / "run.toml", "--model.config", root / "odd", "--out", root / "odd-run")
    assert words in done.stderr + done.stdout, done
    done = run(program, "checkpoint", "export", root / "odd-run", "--out", root / "odd-export")
    assert "warning: " in done.stderr and words in done.stderr, done


def main() -> None:
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as place:
        root = pathlib.Path(place)
        tiny_data.make(program, root, 2, 2, 1, sequence=8)
        check_import(program, root)
        check_runs(program, root)
        check_width(program, root)
    print("what training does not change comes out as it went in")


if __name__ == "__main__":
    main()
