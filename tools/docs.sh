#!/bin/sh
# Writes the pages that are made from the source, so that they cannot disagree with it: docs/configuration.md from the
# daemon's settings, docs/cli.md from the commands of the command line, docs/api from the public headers, docs/protocol.md
# from the door's table of requests.
#
#     tools/docs.sh build/oncemqd build/oncemq
set -eu
cd "$(dirname "$0")/.."
{
    cat docs/configuration.head.md
    "$1" --print-config=md
} >docs/configuration.md
"$2" help markdown >docs/cli.md
python3 tools/api.py
python3 tools/protocol.py
