#!/bin/sh
# The demo: a small llama learns English prose, from a real text to text of its own. Needs build/release/trireme.
set -eu
cd "$(dirname "$0")/.."
trireme=build/release/trireme
demo=build/demo

if [ ! -s "$demo/text.txt" ]; then
  echo "demo: fetching the text (1.6 MB): Jane Austen's novels" >&2
  python3 tools/demo_text.py "$demo/text.txt"
fi
if [ ! -s "$demo/data/data.json" ]; then
  "$trireme" data tokenize "$demo/text.txt" --out "$demo/data"
fi
"$trireme" data inspect "$demo/data"
echo
"$trireme" train examples/runs/demo.toml --out "$demo/run" --overwrite "$@"

echo
echo "What it writes, from 'It is a truth':"
"$trireme" sample "$demo/run/model" --prompt "It is a truth" --tokens 400 --context 128 --temperature 0.7
cat << END

The text, its tokens, the run and the model lie in $demo. Go on with:
  $trireme sample $demo/run/model --prompt "She " --seed 2
  $trireme train examples/runs/demo.toml --dry-run
  $trireme model examples/models/llama-3-8b
END
