#!/usr/bin/env python3
"""Law 2 through the program: 50 steps of the demo's model and of a wider gpt2 give the same hex losses and norms and the
same exported bytes, twice, with recompute none, selective and full, with one thread and two, and with every schedule.

    program_curves.py PROGRAM       run from the root of the repository
"""

import hashlib
import json
import pathlib
import random
import subprocess
import sys
import tempfile

STEPS = 50
GPT2 = {"model_type": "gpt2", "vocab_size": 259, "n_positions": 160, "n_embd": 320, "n_layer": 2, "n_head": 5}
VARIANTS = {
    "again": [],
    "one thread": ["--train.threads", "1"],
    "recompute selective": ["--layout.recompute", "selective"],
    "recompute full": ["--layout.recompute", "full"],
    "recompute full, one thread, gpipe": ["--layout.recompute", "full", "--train.threads", "1",
                                          "--layout.schedule", "gpipe"],
    "zb-h1": ["--layout.schedule", "zb-h1"],
}


def run(program: str, folder: pathlib.Path, config: str, options: list[str]) -> tuple[list[str], str]:
    out = folder / "run"
    command = [program, "train", str(folder / "run.toml"), "--model.config", config, "--out", str(out), "--overwrite",
               "--train.threads", "2", *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    weights = hashlib.sha256((out / "model" / "model.safetensors").read_bytes()).hexdigest()
    return [line["loss_hex"] + " " + line["grad_norm_hex"] for line in lines], weights


def main() -> int:
    program = sys.argv[1]
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        words = ["sea", "oar", "stroke", "bench", "three", "banks", "of", "the", "rowers", "keep", "time", "and"]
        random.seed(5)
        (folder / "text.txt").write_text(" ".join(random.choice(words) for _ in range(60000)))
        subprocess.run([program, "data", "tokenize", str(folder / "text.txt"), "--out", name], check=True,
                       stdout=subprocess.DEVNULL)
        (folder / "gpt2").mkdir()
        (folder / "gpt2" / "config.json").write_text(json.dumps(GPT2))
        (folder / "run.toml").write_text(
            f"[model]\nconfig = 'x'\n[data]\ntrain = '{name}/train.bin'\n[train]\nsteps = {STEPS}\nsequence = 96\n"
            "global_batch = 6\nmicro_batch = 3\n[optimizer]\nlearning_rate = 1e-3\nwarmup_steps = 5\n")
        for config in ["examples/models/demo", str(folder / "gpt2")]:
            expected = run(program, folder, config, [])
            print(f"{pathlib.Path(config).name}: first {expected[0][0]}, last {expected[0][-1]}")
            assert len(expected[0]) == STEPS and expected[0][0] != expected[0][-1]
            for variant, options in VARIANTS.items():
                same = run(program, folder, config, options) == expected
                failures += not same
                print(f"  {variant}: {'the same bits' if same else 'DIFFERENT'}")
    print(f"{len(VARIANTS) * 2 - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
