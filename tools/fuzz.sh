#!/bin/sh
# Runs the libFuzzer targets of a build folder, as many at a time as there are cores.
#
#     tools/fuzz.sh build-fuzz SECONDS KEEP [target …]
#
# Each target runs for SECONDS. It starts from tests/fuzz/corpus/TARGET and puts what it finds new into the build folder;
# with KEEP=yes the smallest set that reaches the same code is then added to tests/fuzz/corpus. A crash is shown with
# the file that causes it.
set -eu
cd "$(dirname "$0")/.."
folder=$1 seconds=$2 keep=$3
shift 3

run_one() {
    target=$1
    program=$folder/tests/fuzz/fuzz_$target
    given=tests/fuzz/corpus/$target
    found=$folder/corpus/$target
    crashes=$folder/crashes/$target-
    log=$folder/fuzz-$target.log
    mkdir -p "$found" "$folder/crashes"
    [ -d "$given" ] || given=''

    if ! "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="$crashes" "$found" ${given:+"$given"} >"$log" 2>&1; then
        echo "fuzz $target: FAILED; from $log:"
        grep -E -m 1 -A 24 'ERROR: |runtime error: |invariant|not found' "$log" | sed 's/^/    /'
        file=$(sed -n 's/^.*Test unit written to //p' "$log" | tail -n 1)
        echo "fuzz $target: the input that does it: ${file:-none was written}"
        [ -n "$file" ] && echo "fuzz $target: again: $program $file   (once mended, keep it: cp $file tests/fuzz/corpus/$target/)"
        return 1
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    fresh=$(sed -n 's/^stat::new_units_added: *//p' "$log")
    if [ "$keep" = yes ]; then
        mkdir -p "tests/fuzz/corpus/$target"
        "$program" -merge=1 "tests/fuzz/corpus/$target" "$found" >>"$log" 2>&1
    fi
    echo "fuzz $target: $runs runs in $seconds s, $fresh new inputs, no crash"
}

if [ "${FUZZ_ONE:-}" ]; then
    run_one "$FUZZ_ONE"
    exit
fi

if [ $# = 0 ]; then
    for program in "$folder"/tests/fuzz/fuzz_*; do
        [ -f "$program" ] && [ -x "$program" ] && set -- "$@" "${program##*/fuzz_}"
    done
fi
[ $# = 0 ] && echo "fuzz: there are no targets in $folder/tests/fuzz" >&2 && exit 1

echo "fuzz: $# targets, $seconds s each, $(nproc) at a time: $*"
printf '%s\n' "$@" | xargs -P "$(nproc)" -I NAME env FUZZ_ONE=NAME "$0" "$folder" "$seconds" "$keep"
