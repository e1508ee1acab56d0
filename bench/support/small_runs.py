"""Models that benchmarks train a few steps of, tokens for them, and the run file."""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tests" / "support"))
import tiny_data  # noqa: E402

_GPT2 = {"model_type": "gpt2", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}

# config.json, tokens of a sequence, sequences of a step
MODELS = {
    "byte": ({**_GPT2, "vocab_size": 256, "n_positions": 256, "n_embd": 384, "n_layer": 6, "n_head": 6}, 256, 16),
    "124m": ({**_GPT2, "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}, 512, 4),
}


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def make(program: str, folder: pathlib.Path, model: str) -> pathlib.Path:
    """Writes folder/model, tokens and run.toml, whose path it gives; precision, threads and layout are the caller's."""
    config, sequence, batch = MODELS[model]
    tiny_data.tokenize(program, folder, 100_000)
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(config))
    path = folder / "run.toml"
    path.write_text(f"[model]\nconfig = '{folder}/model'\n[data]\ntrain = '{folder}/train.bin'\n"
                    f"validation = '{folder}/validation.bin'\n[train]\nsequence = {sequence}\nglobal_batch = {batch}\n"
                    f"micro_batch = {batch}\nsteps = 100\n[out]\ndirectory = '{folder}/out'\n")
    return path
