#!/bin/sh
# Everything a script can check about our sources. Goes on after a finding, so that one run shows all of them.
#
#     tools/lint.sh build-test         a configured build folder, for its compile_commands.json
set -u
cd "$(dirname "$0")/.." || exit
folder=$1
cores=$(nproc)
bad=0

report() { # what was checked, and how that ended
    if [ "$2" = 0 ]; then
        echo "lint: $1: clean"
    else
        echo "lint: $1: please look at the lines above"
        bad=1
    fi
}

all_files() {
    git ls-files -co --exclude-standard -z -- "$@"
}

python3 tools/tidy.py
report 'layers, sizes, words (tools/tidy.py)' $?

tools/format.sh --check
report 'form of the C (clang-format)' $?

all_files ':!*.md' | xargs -0 grep -lE --null '^#!(/usr)?/bin/(env )?(ba)?sh' | xargs -0 -r shellcheck
report 'shell scripts (shellcheck)' $?

all_files '*.py' | xargs -0 -r python3 -c '
import ast, sys
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as source:
        ast.parse(source.read(), path)'
report 'Python syntax' $?

# A source that several programs are made of is looked at once, in its first form.
mkdir -p "$folder/lint" && python3 - "$folder" <<'END'
import json, sys
with open(sys.argv[1] + "/compile_commands.json", encoding="utf-8") as file:
    commands = {entry["file"]: entry for entry in reversed(json.load(file))}
with open(sys.argv[1] + "/lint/compile_commands.json", "w", encoding="utf-8") as file:
    json.dump(list(commands.values()), file)
END

# The build folder was made for gcc: warning names that clang does not know are no news, and clang calls a local unused
# that is there for its cleanup.
all_files '*.c' | xargs -0 -r -n 2 -P "$cores" \
    clang-tidy --quiet -p "$folder/lint" --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unused-variable 2>"$folder/clang-tidy.log"
report 'clang-tidy' $?

exit $bad
