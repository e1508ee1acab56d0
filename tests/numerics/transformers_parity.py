#!/usr/bin/env python3
"""Logits of this engine against transformers, and back: outside CI, since it needs torch and transformers.

    python3 tests/numerics/transformers_parity.py build/release/tests/logits_tool

For each model (float32, random weights that transformers itself saved, GPT-2's and Llama's forms): the engine's logits
from transformers' files; then transformers' logits from the files that the engine wrote. max |difference| / max |logit|
must be at most 2e-5.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers

BOUND = 2e-5
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
GPT2 = dict(n_embd=192, n_layer=4, n_head=6, vocab_size=1031, n_positions=256, bos_token_id=0, eos_token_id=0)
LLAMA = dict(hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8, vocab_size=1031,
             num_key_value_heads=2, max_position_embeddings=256, bos_token_id=0, eos_token_id=0)
MODELS = {
    "gpt2 tied": ("gpt2", GPT2),
    "gpt2 untied": ("gpt2", dict(GPT2, tie_word_embeddings=False)),
    "llama gqa, llama3 rope, untied": ("llama", dict(LLAMA, rope_parameters=dict(LLAMA3, rope_theta=500000.0))),
    "llama gqa, llama3 rope, tied": ("llama", dict(LLAMA, tie_word_embeddings=True,
                                                   rope_parameters=dict(LLAMA3, rope_theta=500000.0))),
    "llama linear rope, biases, head_dim 32": ("llama", dict(
        LLAMA, head_dim=32, attention_bias=True, mlp_bias=True,
        rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=10000.0))),
}


def relative(a: numpy.ndarray, b: numpy.ndarray) -> float:
    return float(numpy.abs(a - b).max() / numpy.abs(b).max())


def compare(name: str, family: str, values: dict, tool: str, root: pathlib.Path) -> bool:
    torch.manual_seed(7)
    config = transformers.AutoConfig.for_model(family, **values)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    source, copy = root / "source", root / "copy"
    model.save_pretrained(source, max_shard_size="2MB")  # sharded, with an index
    ids = torch.randint(0, values["vocab_size"], (3, 200))
    (root / "tokens").write_bytes(ids.int().numpy().tobytes())
    subprocess.run([tool, source, root / "tokens", "3", root / "out", copy], check=True)
    with torch.no_grad():
        expected = model(ids).logits.numpy()
        again = transformers.AutoModelForCausalLM.from_pretrained(copy).float().eval()(ids).logits.numpy()
    ours = numpy.fromfile(root / "out", dtype=numpy.float32).reshape(expected.shape)
    there, back = relative(ours, expected), relative(again, expected)
    shards = len(list(source.glob("*.safetensors")))
    ok = there <= BOUND and back <= BOUND
    print(f"{name:42} ours against transformers {there:.2e}   transformers from our files {back:.2e}   "
          f"({shards} shards)  {'ok' if ok else 'TOO LARGE'}")
    return ok


def main() -> int:
    good = True
    for name, (family, values) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            good &= compare(name, family, values, sys.argv[1], pathlib.Path(folder))
    print(f"{len(MODELS)} models, bound {BOUND}: {'all within' if good else 'NOT all within'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
