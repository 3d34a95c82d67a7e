#!/bin/sh
# Installs the Debian packages that a make target needs and that are not there yet.
#
#     tools/setup.sh build test        groups: build, test, lint, fuzz, profile
#
# Silent and quick when nothing is missing. Uses apt-get as root or through sudo. On a system without apt-get, or
# without the right to use it, it names what is needed; `SETUP=no make …` skips this step altogether.
set -eu

[ "${SETUP:-yes}" = no ] && exit 0

packages_of() {
    case $1 in
    build) echo gcc libc6-dev meson ninja-build pkg-config libuv1-dev libdeflate-dev libisal-dev liblz4-dev libzstd-dev libssl-dev libsqlite3-dev libhiredis-dev libpq-dev libmariadb-dev libcurl4-openssl-dev libmicrohttpd-dev ;;
    test) echo libcmocka-dev libjansson-dev python3 curl openssl valgrind redis-server postgresql mariadb-server zsh ;;
    lint) echo clang-format clang-tidy shellcheck python3 ;;
    fuzz) echo clang libclang-rt-dev ;;
    profile) echo python3 valgrind linux-perf strace ;;
    *) echo "setup: no such group: $1 (build, test, lint, fuzz, profile)" >&2 && return 2 ;;
    esac
}

# What to look for where there is no dpkg to ask.
commands_of() {
    case $1 in
    build) echo cc meson ninja pkg-config ;;
    test) echo python3 valgrind ;;
    lint) echo clang-format clang-tidy shellcheck ;;
    fuzz) echo clang ;;
    profile) echo python3 valgrind ;; # perf is used where it works
    esac
}

wanted='' commands=''
for group in "$@"; do
    wanted="$wanted $(packages_of "$group")"
    commands="$commands $(commands_of "$group")"
done

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    missing=''
    for command in $commands; do
        command -v "$command" >/dev/null || missing="$missing $command"
    done
    [ -z "$missing" ] && exit 0
    echo "setup: not found:$missing" >&2
    echo "setup: this is not a Debian system; please install what these Debian packages hold, then try again:" >&2
    echo "   $wanted" >&2
    exit 1
fi

# shellcheck disable=SC2086,SC2016 # a list of words; the ${…} belong to dpkg-query
present=$(dpkg-query -W -f '|${db:Status-Status} ${Package}|' $wanted 2>/dev/null) || true
missing=''
for package in $wanted; do
    case " $missing " in *" $package "*) continue ;; esac
    case $present in
    *"|installed $package|"*) ;;
    *) missing="$missing $package" ;;
    esac
done
[ -z "$missing" ] && exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=''
elif command -v sudo >/dev/null; then
    as_root=sudo
else
    echo "setup: packages are missing, and installing them needs root or sudo. Please run as root:" >&2
    echo "    apt-get install$missing" >&2
    exit 1
fi

# shellcheck disable=SC2086 # lists of words
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 $missing >/dev/null
}

echo "setup: installing$missing"
# shellcheck disable=SC2086
if ! apt-get install -s $missing >/dev/null 2>&1; then # a fresh machine has no package lists yet
    $as_root apt-get update -qq
fi
install || { $as_root apt-get update -qq && install; } # lists that are too old name files that are gone
