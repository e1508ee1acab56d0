"""Safetensors files with Python's standard library alone, and tiny Hugging Face models of both families made of them."""

import array
import json
import pathlib
import random
import struct

BYTES = {"F32": 4, "BF16": 2, "F16": 2}

GPT2 = {"model_type": "gpt2", "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 32, "vocab_size": 53,
        "tie_word_embeddings": True}
LLAMA = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64, "vocab_size": 53,
         "tie_word_embeddings": False}


def gpt2_shapes(c: dict) -> dict:
    d, shapes = c["n_embd"], {}
    shapes["transformer.wte.weight"] = [c["vocab_size"], d]
    shapes["transformer.wpe.weight"] = [c["n_positions"], d]
    for layer in range(c["n_layer"]):
        at = f"transformer.h.{layer}."
        for name, rows, columns in [("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d), ("mlp.c_fc", d, 4 * d),
                                    ("mlp.c_proj", 4 * d, d)]:
            shapes[f"{at}{name}.weight"], shapes[f"{at}{name}.bias"] = [rows, columns], [columns]
        for name in ("ln_1", "ln_2"):
            shapes[f"{at}{name}.weight"], shapes[f"{at}{name}.bias"] = [d], [d]
    shapes["transformer.ln_f.weight"], shapes["transformer.ln_f.bias"] = [d], [d]
    return shapes


def llama_shapes(c: dict) -> dict:
    d, ffn, shapes = c["hidden_size"], c["intermediate_size"], {}
    kv = d // c["num_attention_heads"] * c["num_key_value_heads"]
    shapes["model.embed_tokens.weight"] = [c["vocab_size"], d]
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, rows, columns in [("self_attn.q_proj", d, d), ("self_attn.k_proj", kv, d), ("self_attn.v_proj", kv, d),
                                    ("self_attn.o_proj", d, d), ("mlp.gate_proj", ffn, d), ("mlp.up_proj", ffn, d),
                                    ("mlp.down_proj", d, ffn)]:
            shapes[f"{at}{name}.weight"] = [rows, columns]
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{at}{name}.weight"] = [d]
    shapes["model.norm.weight"] = [d]
    shapes["lm_head.weight"] = [c["vocab_size"], d]
    return shapes


def elements(shape: list) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def values(shapes: dict, dtype: str, seed: int = 7) -> dict:
    """name -> raw bytes; numbers that a BF16 holds are of few bits, the others of all."""
    source, tensors = random.Random(seed), {}
    for name, shape in shapes.items():
        floats = array.array("f", (source.gauss(0, 0.5) for _ in range(elements(shape))))
        raw = floats.tobytes()
        tensors[name] = raw if dtype == "F32" else b"".join(raw[i + 2:i + 4] for i in range(0, len(raw), 4))
    return tensors


def write(path: pathlib.Path, shapes: dict, tensors: dict, dtype: str = "F32") -> None:
    header, at = {}, 0
    for name, raw in tensors.items():
        header[name] = {"dtype": dtype, "shape": shapes[name], "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors.values()))


def read(path: pathlib.Path) -> dict:
    """name -> (dtype, shape, raw bytes)."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length:]
    return {name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def as_f32(raw: bytes, dtype: str) -> bytes:
    """BF16 or F32 as F32, exactly."""
    return raw if dtype == "F32" else b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))


def as_bf16(raw: bytes) -> bytes:
    """F32 (finite) rounded to the nearest BF16, ties to even."""
    words = array.array("I", raw)
    return array.array("H", ((word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words)).tobytes()


def checkpoint_states(checkpoint: pathlib.Path) -> dict:
    """A checkpoint: (state, name) -> (shape, F32 bytes), put together of the manifest's slices."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    assert manifest["format"] == "trireme-checkpoint" and manifest["version"] in (1, 2)
    files = [read(checkpoint / file["name"]) for file in manifest["files"]]
    states = {}
    for tensor in manifest["tensors"]:
        shape = tensor["shape"]
        columns = shape[1] if len(shape) > 1 else 1
        whole, seen = bytearray(4 * elements(shape)), 0
        for file, box, _ in tensor["slices"]:
            first, last, left, right = box if len(shape) > 1 else [*box, 0, 1]
            key = f"{tensor['kind']}/{tensor['name']}/{first}:{last}" + (f",{left}:{right}" if len(shape) > 1 else "")
            dtype, _, raw = files[file][key]
            assert dtype == tensor["dtype"] == "F32", tensor
            width = 4 * (right - left)
            assert len(raw) == width * (last - first), key
            for row in range(first, last):
                to = 4 * (row * columns + left)
                whole[to:to + width] = raw[width * (row - first):width * (row - first + 1)]
            seen += (last - first) * (right - left)
        assert seen == elements(shape), tensor
        states[tensor["kind"], tensor["name"]] = (shape, bytes(whole))
    return states
