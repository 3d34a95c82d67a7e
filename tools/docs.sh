#!/bin/sh
# Writes the pages that are made from tables of the programs themselves, so that they cannot disagree with them:
# docs/configuration.md from the daemon's settings, docs/cli.md from the commands of the command line.
#
#     tools/docs.sh build/oncemqd build/oncemq
set -eu
cd "$(dirname "$0")/.."
{
    cat docs/configuration.head.md
    "$1" --print-config=md
} >docs/configuration.md
"$2" help markdown >docs/cli.md
