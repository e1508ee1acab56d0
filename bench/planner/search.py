#!/usr/bin/env python3
"""Layouts a second: this planner's screening beside Calculon's evaluation, in one run on one core each.

    bench/planner/search.py TRIREME [CALCULON [PYTHON]] [--seconds 20]

The model is GPT-3 175B on 512 A100. Ours: the whole search, over as many batch sizes as make 13 million layouts (the
size of Calculon's space for the same model and devices), and Llama 3.1 405B on 16,384 H100. Theirs: layouts of their
own space for 175B on 512 devices, drawn in a fixed random order, for the given time. CALCULON is a checkout of
github.com/calculon-ai/calculon, PYTHON an interpreter that has what it needs (numpy, psutil, pandas).
"""

import json
import random
import subprocess
import sys
import time

GPT3 = "--family gpt2 --layers 96 --hidden 12288 --heads 96 --cluster a100-80:512 --framework megatron".split()
LLAMA = "examples/models/llama-3.1-405b --cluster h100:16384 --batch 2048 --framework megatron".split()
AIM = 13_200_000


def plan(trireme, arguments):
    start = time.monotonic()
    text = subprocess.run([trireme, "plan", *arguments, "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(text), time.monotonic() - start


def describe(found):
    layout = found["best"][0]["layout"]
    return f"{found['best'][0]['step_s']:.4f} s, dp {layout['dp']} tp {layout['tp']} pp {layout['pp']}"


def ours(trireme):
    screened = screening = wall = 0
    batch = 1536
    while screened < AIM:
        found, seconds = plan(trireme, [*GPT3, "--batch", str(batch), "--wide", "--allow-slow-tp"])
        if screened == 0:
            print(f"175B on 512, batch {batch}: {found['screened']:,} layouts, {seconds:.2f} s in all, best {describe(found)}")
        screened += found["screened"]
        screening += found["screening_s"]
        wall += seconds
        batch += 512
    print(f"175B on 512, batches 1536 to {batch - 512}: {screened:,} layouts, screened in {screening:.2f} s, "
          f"{wall:.2f} s in all: {screened / screening / 1e6:.2f} million a second")
    found, seconds = plan(trireme, LLAMA)
    print(f"405B on 16,384: {found['screened']:,} layouts, {seconds:.3f} s in all, best {describe(found)}, "
          f"proved: {found['winner_proved']}")
    full, full_seconds = plan(trireme, [*LLAMA, "--exhaustive"])
    print(f"405B, every layout that fits simulated ({full['simulated']:,}): {full_seconds:.1f} s, best {describe(full)}; "
          f"the same winner: {full['best'][0]['layout'] == found['best'][0]['layout']}")
    return screened / screening


THEIRS = """
import itertools, random, sys, time
sys.path.insert(0, ".")
import types
sys.modules.setdefault("pandas", types.ModuleType("pandas"))
import calculon
from calculon import System
from calculon.llm.llm import Llm
from calculon.llm.optimal_execution import OptimalExecution, pick
app = Llm.Application(calculon.io.read_json_file("models/gpt3-175B.json"))
system = System(calculon.io.read_json_file("systems/a100_80g.json"))
tasks = []
for tp in Llm.get_all_tensor_parallelisms(512, app.hidden, app.attn_heads):
  for pp in Llm.get_all_pipeline_parallelisms(512, tp, app.num_blocks):
    dp = Llm.get_data_parallelism(512, tp, pp)
    for chunks in Llm.get_valid_pipeline_interleavings(app.num_blocks, pp):
      batch = OptimalExecution.get_batch_size(dp, 1536)
      if batch is None: continue
      for recompute, sharding, comm in itertools.product(["full", "attn_only", "none"], pick(dp > 1, [True, False], [False]), ["ar", "p2p_rs_ag", "rs_ag"]):
        tasks.append((False, 1, False, 512, 1536, "float16", app, system, tp, pp, dp, chunks, batch, recompute, sharding, comm, "true", False, True, True))
random.Random(1).shuffle(tasks)
start, done = time.monotonic(), 0
for task in tasks:
  done += OptimalExecution.search(*task)[1]
  if time.monotonic() - start > float(sys.argv[1]): break
print(done, time.monotonic() - start)
"""


def theirs(calculon, python, seconds):
    out = subprocess.run([python, "-c", THEIRS, seconds], cwd=calculon, check=True, capture_output=True, text=True)
    done, took = out.stdout.split()[-2:]
    print(f"Calculon, 175B on 512: {int(done):,} layouts in {float(took):.1f} s: {int(done) / float(took):.0f} a second")
    return int(done) / float(took)


def main():
    arguments = sys.argv[1:]
    seconds = "20"
    if "--seconds" in arguments:
        at = arguments.index("--seconds")
        seconds = arguments[at + 1]
        del arguments[at:at + 2]
    if not 1 <= len(arguments) <= 3:
        sys.exit(__doc__)
    rate = ours(arguments[0])
    if len(arguments) > 1:
        peer = theirs(arguments[1], arguments[2] if len(arguments) > 2 else sys.executable, seconds)
        print(f"ratio: {rate / peer:,.0f}")


if __name__ == "__main__":
    main()
