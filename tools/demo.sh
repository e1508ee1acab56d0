#!/bin/sh
# The demo: a small model learns English prose, from a real text to a falling loss. Needs build/release/trireme.
set -eu
cd "$(dirname "$0")/.."

text=build/demo/text.txt
if [ ! -s "$text" ]; then
  echo "demo: fetching the text (1.6 MB)" >&2
  python3 tools/demo_text.py "$text"
fi
exec build/release/trireme train examples/runs/demo.toml --data.text "$text" --out build/demo/run "$@"
