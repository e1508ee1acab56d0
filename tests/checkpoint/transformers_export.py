#!/usr/bin/env python3
"""Models go from transformers into a checkpoint and back: outside CI, since it needs torch and transformers.

    transformers_export.py PROGRAM

For each model (random weights that transformers itself saved, sharded): imported, verified, exported as one file, as
many and as bf16. transformers loads each; the logits of the float32 ones are the model's own, bit by bit, and those of
bf16 are the logits of the model with its weights rounded by torch.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError as missing:
    print(f"not run: {missing}")
    sys.exit(77)

GPT2 = dict(n_embd=48, n_layer=2, n_head=3, vocab_size=211, n_positions=64, bos_token_id=0, eos_token_id=0)
LLAMA = dict(hidden_size=48, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=211,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=0)
MODELS = {
    "gpt2 tied": ("gpt2", GPT2),
    "gpt2 untied": ("gpt2", dict(GPT2, tie_word_embeddings=False)),
    "llama untied": ("llama", LLAMA),
    "llama tied, biases": ("llama", dict(LLAMA, tie_word_embeddings=True, attention_bias=True, mlp_bias=True)),
}


def run(program: str, *arguments: object) -> dict:
    command = [program, "checkpoint", *map(str, arguments), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def logits(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(ids).logits


def load(folder: pathlib.Path, **options: object) -> torch.nn.Module:
    model, loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **options)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not loaded[kind], (folder, loaded)
    return model.eval()


def check(name: str, family: str, values: dict, program: str, root: pathlib.Path) -> None:
    torch.manual_seed(7)
    config = transformers.AutoConfig.for_model(family, **values)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(root / "source", max_shard_size="60KB")
    ids = torch.randint(0, values["vocab_size"], (3, 60))
    expected = logits(model, ids)
    checkpoint = run(program, "import", root / "source", "--out", root / "start")["checkpoint"]
    assert run(program, "verify", checkpoint)["whole"]
    run(program, "export", checkpoint, "--out", root / "one")
    many = run(program, "export", checkpoint, "--out", root / "many", "--shard-size", "60kB")
    for folder in ("one", "many"):
        assert torch.equal(logits(load(root / folder, dtype=torch.float32), ids), expected), (name, folder)
    run(program, "export", checkpoint, "--out", root / "half", "--dtype", "bf16")
    assert load(root / "half", dtype="auto").dtype == torch.bfloat16  # as the folder's config.json says
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
    assert torch.equal(logits(load(root / "half", dtype=torch.float32), ids), logits(model, ids)), name
    shards = sum(file.endswith(".safetensors") for file in many["files"])
    assert shards > 2, many
    print(f"{name:20} {many['parameters']} parameters, 1 and {shards} files: the same bits; bf16: torch's rounding")


def main() -> None:
    for name, (family, values) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            check(name, family, values, sys.argv[1], pathlib.Path(folder))
    print(f"{len(MODELS)} models there and back, torch {torch.__version__}, transformers {transformers.__version__}")


if __name__ == "__main__":
    main()
