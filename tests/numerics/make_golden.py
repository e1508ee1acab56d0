#!/usr/bin/env python3
"""Makes the golden values of the numerics tests: tiny models with random weights, their loss, logits and gradients.

Needs torch, transformers and safetensors; the tests themselves need only the files. Run it again only to add a case:

    python3 make_golden.py [CASE...]  writes golden/<case>/{config.json, model.safetensors, golden.safetensors}

golden.safetensors holds: inputs and targets (I32), logits, loss, and one gradient a parameter ("grad." + its name), all
computed in float64 by PyTorch and stored as F32 (gradients of the mean loss over all tokens).
"""

import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file

SEQUENCES, TOKENS = 2, 21
GPT2 = dict(model_type="gpt2", vocab_size=61, n_positions=32, n_embd=24, n_layer=2, n_head=4, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
LLAMA = dict(model_type="llama", vocab_size=61, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5,
             bos_token_id=0, eos_token_id=0, attention_dropout=0.0)
LLAMA3_ROPE = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=16)
CASES = {
    "gpt2": GPT2,
    "gpt2_untied_relu": dict(GPT2, tie_word_embeddings=False, activation_function="relu", n_inner=56),
    "llama_gqa_llama3_rope": dict(LLAMA, rope_theta=500.0, rope_scaling=LLAMA3_ROPE, tie_word_embeddings=False),
    "llama_tied_head_dim": dict(LLAMA, head_dim=8, num_key_value_heads=1, tie_word_embeddings=True,
                                rope_scaling=dict(rope_type="linear", factor=2.0)),
    "llama_biases": dict(LLAMA, num_key_value_heads=4, attention_bias=True, mlp_bias=True,
                         tie_word_embeddings=False),
    # Windows shorter than the sequence; in qwen2 from the second layer on.
    "mistral_window": dict(LLAMA, model_type="mistral", head_dim=10, sliding_window=6, tie_word_embeddings=False),
    "qwen2_windows": dict(LLAMA, model_type="qwen2", num_hidden_layers=3, use_sliding_window=True, sliding_window=5,
                          max_window_layers=1, tie_word_embeddings=False),
    "qwen3": dict(LLAMA, model_type="qwen3", head_dim=8, tie_word_embeddings=True),
    "gemma": dict(LLAMA, model_type="gemma", num_key_value_heads=1, head_dim=8, tie_word_embeddings=True,
                  hidden_activation="gelu_pytorch_tanh"),
    "olmo2": dict(LLAMA, model_type="olmo2", tie_word_embeddings=False),
    "phi3": dict(LLAMA, model_type="phi3", sliding_window=9, pad_token_id=0, tie_word_embeddings=False),
}


def make(name: str, values: dict, root: pathlib.Path) -> None:
    torch.manual_seed(sum(name.encode()))
    config = transformers.AutoConfig.for_model(**values)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").double().eval()
    with torch.no_grad():  # biases and norms away from their special values, and weights that matter
        for parameter in model.parameters():
            parameter.copy_((parameter + 0.2 * torch.randn_like(parameter)).float().double())
    ids = torch.randint(0, values["vocab_size"], (SEQUENCES, TOKENS + 1))
    logits = model(ids[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, values["vocab_size"]), ids[:, 1:].reshape(-1))
    loss.backward()

    folder = root / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config_json = dict(values)
    (folder / "config.json").write_text(json.dumps(config_json, indent=2) + "\n")
    tensors = {key: value.detach().float().contiguous() for key, value in model.state_dict().items()
               if not (key == "lm_head.weight" and config.tie_word_embeddings)}
    save_file({k: v for k, v in tensors.items() if not k.endswith(".attn.bias")}, folder / "model.safetensors",
              metadata={"format": "pt"})
    golden = {"inputs": ids[:, :-1].int().contiguous(), "targets": ids[:, 1:].int().contiguous(),
              "logits": logits.detach().float().contiguous(), "loss": loss.detach().float().reshape(1)}
    for key, parameter in model.named_parameters():
        golden["grad." + key] = parameter.grad.float().contiguous()
    save_file(golden, folder / "golden.safetensors")
    print(f"{name}: loss {loss.item():.6f}, {sum(f.stat().st_size for f in folder.iterdir())} bytes")


if __name__ == "__main__":
    for case_name in sys.argv[1:] or CASES:
        make(case_name, CASES[case_name], pathlib.Path(__file__).parent / "golden")
