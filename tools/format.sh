#!/bin/sh
# Brings all C of ours into the form of .clang-format; with --check only says what is not, and fails.
set -eu
cd "$(dirname "$0")/.."

if [ "${1:-}" = --check ]; then
    set -- --dry-run --Werror
else
    set -- -i
fi
for folder in include src tests bench examples; do
    [ -d "$folder" ] && find "$folder" -name '*.[ch]' -print0
done | xargs -0 -r -n 16 -P "$(nproc)" clang-format "$@"
