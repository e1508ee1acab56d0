#!/bin/sh
# All style checks: formatting, the rules of tests/tidy/tidy.py, headers that compile alone, clang-tidy.
# Usage: tools/tidy.sh [FILE.cc...]   (clang-tidy on these files only; without arguments on all)
set -eu
cd "$(dirname "$0")/.."

sources=$(find src tests bench \( -name '*.h' -o -name '*.cc' \) 2> /dev/null | sort)
failed=0

echo "== clang-format"
clang-format --dry-run -Werror $sources || { failed=1; echo "(make format repairs these)"; }

echo "== tests/tidy/tidy.py"
python3 tests/tidy/tidy.py || failed=1

echo "== headers alone"
cmake --preset dev > /dev/null
cmake --build --preset dev --target all_verify_interface_header_sets --parallel "$(nproc)" || failed=1

echo "== clang-tidy"
# All that the dev build compiles, headers with them. Standard error only counts suppressed warnings.
compiled=$(sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' build/dev/compile_commands.json | grep -v "^$PWD/build/" | sort -u)
printf '%s\n' ${*:-$compiled} |
  xargs -P "$(nproc)" -n 1 clang-tidy-16 -p build/dev --quiet 2> build/dev/clang-tidy.log || failed=1

exit $failed
