"""A text, its tokens and the tiny models that tests through the program train."""

import json
import pathlib
import random
import subprocess

# 4 layers, 8 heads, 2 key/value heads where the family has them, and a vocabulary that no degree divides.
MODELS = {
    "llama": {"model_type": "llama", "vocab_size": 259, "max_position_embeddings": 64, "hidden_size": 64,
              "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu"},
    "gpt2": {"model_type": "gpt2", "vocab_size": 259, "n_positions": 64, "n_embd": 64, "n_layer": 4, "n_head": 8,
             "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.0},
}


def tokenize(program: str, folder: pathlib.Path, words: int) -> None:
    """folder/train.bin and validation.bin of a text of so many words."""
    known = ["sea", "oar", "stroke", "bench", "three", "banks", "of", "the", "rowers", "keep", "time", "and"]
    random.seed(5)
    (folder / "text.txt").write_text(" ".join(random.choice(known) for _ in range(words)))
    subprocess.run([program, "data", "tokenize", str(folder / "text.txt"), "--out", str(folder)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make(program: str, folder: pathlib.Path, steps: int, global_batch: int, micro_batch: int,
         sequence: int = 24) -> None:
    """folder/{llama,gpt2}/config.json, tokens, and run.toml, which lacks model.config."""
    tokenize(program, folder, 20_000)
    for name, config in MODELS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    (folder / "run.toml").write_text(
        f"[data]\ntrain = '{folder}/train.bin'\nvalidation = '{folder}/validation.bin'\n"
        f"[train]\nsteps = {steps}\nsequence = {sequence}\nglobal_batch = {global_batch}\nmicro_batch = {micro_batch}\n"
        "threads = 1\nvalidation_micro_batches = 1\n[optimizer]\nlearning_rate = 1e-3\nwarmup_steps = 2\n")
