#!/bin/sh
# Writes docs/configuration.md from the daemon's own table of settings, so that the page cannot disagree with it.
#
#     tools/docs.sh build/oncemqd
set -eu
cd "$(dirname "$0")/.."
{
    cat docs/configuration.head.md
    "$1" --print-config=md
} >docs/configuration.md
