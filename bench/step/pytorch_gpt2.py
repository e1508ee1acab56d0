#!/usr/bin/env python3
"""A GPT-2 in PyTorch that trains random tokens, as a peer to be timed: beside_pytorch.py starts it.

    pytorch_gpt2.py CONFIG_JSON SEQUENCE BATCH PRECISION MODE THREADS

PRECISION: fp32, or bf16, which is autocast over fp32 weights. MODE: eager or compile. A number on standard input: that
many steps, answered by tokens a second. "peak": answered by the GFLOP/s of a product of 1024 x 1024 x 1024.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, sequence, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, sequence, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(batch, sequence, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        width = config["n_embd"]
        self.tokens, self.positions = nn.Embedding(config["vocab_size"], width), nn.Embedding(config["n_positions"], width)
        self.blocks = nn.ModuleList(Block(width, config["n_head"]) for _ in range(config["n_layer"]))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(inputs) + self.positions(torch.arange(inputs.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def peak(dtype: torch.dtype) -> float:
    a, b = (torch.randn(1024, 1024).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(12):
        begin = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - begin)
    return 2 * 1024**3 / best / 1e9


def main() -> None:
    config, sequence, batch = json.load(open(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
    precision, mode, threads = sys.argv[4], sys.argv[5], int(sys.argv[6])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Gpt2(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    forward = torch.compile(model) if mode == "compile" else model

    def step() -> None:
        tokens = torch.randint(0, config["vocab_size"], (batch, sequence + 1))
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = forward(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()

    step()
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "peak":
            print(peak(torch.bfloat16 if precision == "bf16" else torch.float32), flush=True)
            continue
        begin = time.perf_counter()
        for _ in range(int(line)):
            step()
        print(batch * sequence * int(line) / (time.perf_counter() - begin), flush=True)


if __name__ == "__main__":
    main()
