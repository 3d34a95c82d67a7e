#!/bin/sh
# Runs the tests of a build folder that is up to date, and closes with the summary per test case.
#
#     tools/test.sh build-test [arguments for `meson test`]
set -eu

folder=$1
shift
log=$folder/meson-logs/testlog.json
rm -f "$log"

# A sanitizer's word is final, and it says where.
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}"
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}"

# Many tests mostly wait, for another's timer or for a Java server to start: half as many again as there are cores.
cores=$(nproc)
status=0
meson test -C "$folder" --no-rebuild --num-processes $((cores + (cores + 1) / 2)) "$@" || status=$?
exec python3 "$(dirname "$0")/summary.py" "$log" "$status"
