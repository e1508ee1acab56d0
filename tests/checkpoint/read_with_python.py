#!/usr/bin/env python3
"""A checkpoint is what its format says: Hugging Face models are imported, and the checkpoint is read back with nothing of
this program, the standard library alone; then it is exported, damaged and compared through the program.

    read_with_python.py PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tensor_files  # noqa: E402

DONE, DIFFERENT, USAGE, STORAGE = 0, 1, 2, 79
PROGRAM = sys.argv[1]


def run(*arguments: object, code: int = DONE) -> subprocess.CompletedProcess:
    done = subprocess.run([PROGRAM, "checkpoint", *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=60)
    assert done.returncode == code, (arguments, done)
    return done


def answer(*arguments: object, code: int = DONE) -> dict:
    return json.loads(run(*arguments, "--json", code=code).stdout)


def refused(said: str, *arguments: object, code: int = USAGE) -> None:
    done = run(*arguments, code=code)
    assert said in done.stdout + done.stderr, (said, done)


def check_contents(checkpoint: pathlib.Path, shapes: dict, tensors: dict, dtype: str) -> None:
    states = tensor_files.checkpoint_states(checkpoint)
    assert len(states) == 3 * len(shapes), (len(states), len(shapes))
    for name, shape in shapes.items():
        assert states["weight", name] == (shape, tensor_files.as_f32(tensors[name], dtype)), name
        for moment in ("exp_avg", "exp_avg_sq"):
            assert states[moment, name] == (shape, bytes(4 * tensor_files.elements(shape))), (moment, name)


def check_exports(checkpoint: pathlib.Path, shapes: dict, tensors: dict, dtype: str, out: pathlib.Path) -> None:
    answer("export", checkpoint, "--out", out / "one")
    one = tensor_files.read(out / "one" / "model.safetensors")
    wide = {name: tensor_files.as_f32(raw, dtype) for name, raw in tensors.items()}
    assert one == {name: ("F32", shapes[name], wide[name]) for name in shapes}
    report = answer("export", checkpoint, "--out", out / "many", "--shard-size", "6kB", "--dtype", "bf16")
    index = json.loads((out / "many" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == report["bytes"] == 2 * report["parameters"]
    shards = sorted(set(index["weight_map"].values()))
    assert shards == [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))], shards
    assert len(shards) > 2 and set(report["files"]) == {*shards, "model.safetensors.index.json", "config.json"}, report
    files = {shard: tensor_files.read(out / "many" / shard) for shard in shards}
    for shard, held in files.items():
        assert len(held) == 1 or sum(len(raw) for _, _, raw in held.values()) <= 6000, shard
    for name, shape in shapes.items():
        assert files[index["weight_map"][name]][name] == ("BF16", shape, tensor_files.as_bf16(wide[name])), name
    config = json.loads((out / "many" / "config.json").read_text())
    assert config["torch_dtype"] == "bfloat16", config
    refused("is there already", "export", checkpoint, "--out", out / "one")
    # What was exported is the same model: the same weights come back.
    answer("import", out / "one", "--out", out / "again")
    assert answer("diff", checkpoint, out / "again")["identical"]
    rounded = pathlib.Path(answer("import", out / "many", "--out", out / "rounded")["checkpoint"])
    if dtype == "BF16":
        assert answer("diff", checkpoint, rounded)["identical"]
        return
    different = answer("diff", checkpoint, rounded, code=DIFFERENT)
    assert {d["state"] for d in different["differences"]} == {"weight"}, different
    first = different["differences"][0]
    assert float.fromhex(first["first_a_hex"]) == first["first_a"] != first["first_b"], first
    assert 0 < first["largest_ulp"] <= 1 << 15, first  # half a step of BF16


def check_damage(checkpoint: pathlib.Path, out: pathlib.Path) -> None:
    part = checkpoint / "part-00000.safetensors"
    whole = part.read_bytes()
    part.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    found = answer("verify", checkpoint, code=STORAGE)
    assert not found["whole"] and len(found["damages"]) == 1, found
    assert "exp_avg_sq/" in found["damages"][0] and "checksum" in found["damages"][0], found
    assert len(run("verify", checkpoint, code=STORAGE).stdout.splitlines()) == 1
    refused("exp_avg_sq", "diff", checkpoint, checkpoint, code=STORAGE)
    answer("show", checkpoint)
    answer("export", checkpoint, "--out", out / "weights")  # which are whole
    at = whole.index(b"}}") + 200
    part.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
    refused("checksum", "export", checkpoint, "--out", out / "damaged", code=STORAGE)
    assert not list((out / "damaged").iterdir())
    part.write_bytes(whole[:-1])
    refused("part-00000.safetensors", "verify", checkpoint, code=STORAGE)
    part.unlink()
    refused("missing", "verify", checkpoint, code=STORAGE)
    part.write_bytes(whole)
    manifest = checkpoint / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace("import", "impart"))
    refused("manifest.json: checksum: expected", "show", checkpoint, code=STORAGE)
    assert "checksum" in answer("ls", checkpoint)["checkpoints"][0]["damage"]
    manifest.write_text(text)
    assert answer("verify", checkpoint)["whole"]


def check_lists(checkpoint: pathlib.Path, out: pathlib.Path) -> None:
    run_directory = out / "run"
    store = run_directory / "checkpoints"
    store.mkdir(parents=True)
    assert answer("ls", run_directory) == {"checkpoints": []}
    refused("is no checkpoint", "verify", run_directory, code=STORAGE)
    for name in ("step-00000000", "step-00000060.aside"):
        (store / name).symlink_to(checkpoint.resolve())
    (store / "step-00000080.partial").mkdir()
    listed = answer("ls", run_directory)["checkpoints"]
    names = [(pathlib.Path(one["path"]).name, one["state"]) for one in listed]
    assert names == [("step-00000080.partial", "partial"), ("step-00000060.aside", "set aside"),
                     ("step-00000000", "complete")], names
    said = run("show", run_directory)
    assert said.stderr.endswith("step-00000000\n") and "newest complete" in said.stderr, said
    for words in ("layout", "exp_avg_sq", "part-00000.safetensors", "parameters", "import"):
        assert words in said.stdout, (words, said.stdout)
    assert len(run("ls", store).stdout.splitlines()) == 4
    (store / "step-00000040").symlink_to(checkpoint.resolve())
    refused("step-00000040: holds the checkpoint of step 0", "show", run_directory, code=STORAGE)
    refused("not completed", "show", store / "step-00000080.partial", code=STORAGE)


def check_refusals(folder: pathlib.Path, checkpoint: pathlib.Path, other: pathlib.Path, out: pathlib.Path) -> None:
    refused("there is no such directory", "show", out / "absent")
    refused("is a file", "verify", checkpoint / "manifest.json")
    refused("--dtype = f8", "export", checkpoint, "--out", out / "x", "--dtype", "f8")
    refused("--shard-size = 0", "export", checkpoint, "--out", out / "x", "--shard-size", "0")
    refused("--out", "export", checkpoint)
    refused("--out", "import", folder)
    refused("--tokenizer", "export", checkpoint, "--out", out / "x", "--tokenizer", out / "absent.json")
    refused("no such file or directory", "import", out / "absent", "--out", out / "x")
    refused("is there already", "import", folder, "--out", checkpoint.parent)
    done = run("diff", checkpoint, other, code=USAGE)
    assert "transformer.wte.weight" in done.stderr or "model.embed_tokens.weight" in done.stderr, done
    shapes = {"transformer.wte.weight": [53, 24]}
    broken = out / "broken"
    broken.mkdir()
    (broken / "config.json").write_text(json.dumps(tensor_files.GPT2))
    refused("has neither model.safetensors", "import", broken, "--out", out / "x")
    tensor_files.write(broken / "model.safetensors", shapes, tensor_files.values(shapes, "F32"))
    refused("there is no tensor transformer.wpe.weight", "import", broken, "--out", out / "x")
    assert not (out / "x").exists()


def make_model(folder: pathlib.Path, config: dict, shapes: dict, tensors: dict, dtype: str) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    tensor_files.write(folder / "model.safetensors", shapes, tensors, dtype)


def main() -> None:
    cases = [("gpt2", tensor_files.GPT2, tensor_files.gpt2_shapes(tensor_files.GPT2), "F32"),
             ("llama", tensor_files.LLAMA, tensor_files.llama_shapes(tensor_files.LLAMA), "BF16")]
    with tempfile.TemporaryDirectory() as root:
        folder, made = pathlib.Path(root), []
        for name, config, shapes, dtype in cases:
            tensors = tensor_files.values(shapes, dtype)
            make_model(folder / name, config, shapes, tensors, dtype)
            report = answer("import", folder / name, "--out", folder / f"{name}-start")
            checkpoint = pathlib.Path(report["checkpoint"])
            assert checkpoint == folder / f"{name}-start" / "step-00000000", report
            check_contents(checkpoint, shapes, tensors, dtype)
            assert answer("verify", checkpoint)["whole"]
            assert "whole: 1 file" in run("verify", checkpoint.parent).stdout
            shown = answer("show", checkpoint)
            assert shown["progress"]["step"] == 0 and shown["reason"] == "import" and shown["run"] == {}, shown
            assert shown["parameters"] == sum(map(tensor_files.elements, shapes.values())), shown
            check_exports(checkpoint, shapes, tensors, dtype, folder / f"{name}-out")
            made.append(checkpoint)
        check_damage(made[0], folder)
        check_lists(made[0], folder)
        check_refusals(folder / "gpt2", made[0], made[1], folder)
    print("a checkpoint reads with Python alone")


if __name__ == "__main__":
    main()
