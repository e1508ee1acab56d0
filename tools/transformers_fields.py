#!/usr/bin/env python3
"""The fields of transformers' configurations of the families that are read here, as tests/model/transformers_fields.tsv
has them.

    transformers_fields.py PYTHON... [--check]

Each PYTHON has another version of transformers installed (4 and 5; PyTorch is not needed). The columns that people
write (other value, class, beside) are kept from the file as it is; a field that is new there has the class "?", which
the test of the file refuses. --check writes nothing and fails where the file would change.
"""

import json
import pathlib
import subprocess
import sys

FILE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "model" / "transformers_fields.tsv"
FAMILIES = ["gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma", "olmo2", "phi3"]
# What earlier versions wrote.
OLD = {"torch_dtype": "float32", "output_past": True, "gradient_checkpointing": False, "_num_labels": 1}

# Run by each PYTHON: every field that a configuration has as an attribute, takes as an argument or writes; those of the
# base class; those of generation, which files of old versions hold; those of the rotary parameters' object.
ASK = """
import inspect, json, sys, transformers
from transformers import AutoConfig, GenerationConfig, PretrainedConfig
from transformers import modeling_rope_utils as rope

def taken(function):
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {n: p.default for n, p in inspect.signature(function).parameters.items() if p.kind not in kinds and n != "self"}

def plain(value):
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        return None

def fields(family):
    config = AutoConfig.for_model(family)
    names = set(config.to_dict()) | set(taken(type(config).__init__)) | set(type(config).attribute_map)
    names |= {n for n in vars(config) if not n.startswith("_")} | set(taken(PretrainedConfig.__init__))
    generation = GenerationConfig().to_dict()
    if hasattr(PretrainedConfig, "_get_global_generation_defaults"):
        generation.update(PretrainedConfig._get_global_generation_defaults())
    generation.update(vars(GenerationConfig()))
    found = {n: plain(getattr(config, n, generation.get(n))) for n in names}
    for n, value in generation.items():
        found.setdefault(n, plain(value))
    found.pop("rope_validation", None)
    return found

inside = list(getattr(getattr(rope, "RopeParameters", None), "__annotations__", {}))
json.dump({"version": transformers.__version__, "fields": {f: fields(f) for f in sys.argv[1:]}, "rope": inside},
          sys.stdout)
"""


def ask(python: str) -> dict:
    ran = subprocess.run([python, "-c", ASK, *FAMILIES], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(ran.stdout)


def other_than(value):
    """A guess at a value that a reader would have to notice."""
    if value is None or isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value * 2 or 1
    return "other" if isinstance(value, str) else [1] if isinstance(value, list) else {"other": 1}


def text(value) -> str:
    shown = json.dumps(value)
    return shown if len(shown) < 200 else "null"  # a list of every layer; the field is left out by default


def kept_columns() -> dict:
    if not FILE.exists():
        return {}
    rows = [line.split("\t") for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    return {(row[0], row[1]): row[3:] for row in rows}


def lines_of(answers: list[dict]) -> list[str]:
    kept = kept_columns()
    defaults: dict[tuple[str, str], object] = {(f, name): value for f in FAMILIES for name, value in OLD.items()}
    for answer in answers:  # of two versions the newer's
        for family, fields in answer["fields"].items():
            for name, value in fields.items():
                defaults[(family, name)] = value
    everywhere = {name for _, name in defaults if len({text(defaults.get((f, name), "none")) for f in FAMILIES}) == 1}
    rows = {("*" if name in everywhere else family, name): value for (family, name), value in defaults.items()}
    rows.update({("rope", name): None for answer in answers for name in answer["rope"]})
    lines = []
    for (family, name), value in sorted(rows.items()):
        columns = kept.get((family, name), [text(other_than(value)), "?", ""])
        lines.append("\t".join([family, name, text(value), *columns]))
    return lines


def main() -> int:
    pythons = [argument for argument in sys.argv[1:] if argument != "--check"]
    if not pythons:
        print(__doc__, file=sys.stderr)
        return 2
    answers = [ask(python) for python in pythons]
    versions = ", ".join(answer["version"] for answer in answers)
    head = [f"# Made by tools/transformers_fields.py from transformers {versions}.",
            "# family (*: each; rope: inside rope_parameters), field, default, other value, class, beside.",
            "# Classes: read (the two values are not the same to a reader), passed over (no value matters), computing (the",
            "# other value is counted, and refused to whoever computes), refused (the other value, to all).",
            "# beside: members that both values are tried with; null: left out."]
    new = "\n".join(head + lines_of(answers)) + "\n"
    if "--check" in sys.argv:
        return 0 if FILE.exists() and new == FILE.read_text() else 1
    FILE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
