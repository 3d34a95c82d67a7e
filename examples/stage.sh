#!/bin/sh
# What the kill-it-yourself scripts share: each reads this file with `.` from its own folder. It gives them a temporary
# folder ($home), a daemon of their own, stores of their own, and words for starting and killing. At the end, however it
# comes, everything that was started is ended and the folder is removed (KEEP=yes keeps it).
#
#     program NAME                a program of this folder
#     broker_start OPTION…        oncemqd on free ports of loopback, its data in $home; $names is where it is
#     broker_kill                 … and kill -9
#     redis_start                 sets $redis; fails if there is no redis-server
#     postgresql_start            sets $postgresql; fails if there is no PostgreSQL
#     send TOPIC [OPTION…]        each line of standard input is a message
#     finish GROUP COMMAND…       lets a consumer run, and ends it when its group has taken everything
#     start COMMAND…              in the background; its output goes to $log
#     await FILE WORD N           waits until so many lines of a file have this word
#     await_value WORDS COMMAND…  waits until a command says this
#     kill9_at FILE WORD N        kill -9 to what was started, at the moment when there are so many
#     kill9, stop                 ends it: now with -9, or with a word of farewell
#     say, check, verdict         tells the story; compares; says how it ended
#
# Programs are looked for in the build folder that BUILD names, then here and on the PATH, then in ../../build. ONCEMQD
# and ONCEMQ name another daemon and another command line.
set -eu

WAIT_SECONDS=${WAIT_SECONDS:-60}
home=$(mktemp -d "${TMPDIR:-/tmp}/oncemq-example-XXXXXX")
log=$home/log
started='' database='' waiting_for=$$ faults=0 kills=0
: >"$log"

say() {
    printf '%s\n' "$*"
}

give_up() {
    say "This went wrong: $*" >&2
    for file in "$log" "$home"/*.err; do
        if [ -s "$file" ]; then
            say "--- the end of $file:" >&2
            tail -n 20 "$file" >&2
        fi
    done
    exit 1
}

# ---- finding things ----

first_of() { # what is looked for, then where
    what=$1
    shift
    for place in "$@"; do
        if [ -n "$place" ] && [ -x "$place" ] && [ ! -d "$place" ]; then
            echo "$place"
            return
        fi
    done
    say "$what was not found. \`make build\` at the top of the source tree builds all that is needed." >&2
    exit 1
}

program() {
    first_of "$1" "${BUILD:+$BUILD/examples/${PWD##*/}/$1}" "./$1" "../../build/examples/${PWD##*/}/$1"
}

# ---- starting and ending ----

# What is started here dies with this script, even if the script itself is killed with -9.
leash() {
    if command -v setpriv >/dev/null; then
        exec setpriv --pdeathsig KILL -- "$@"
    fi
    exec "$@"
}

# The servers refuse to run as root, so root runs them as the user their package made.
as_user() { # user, command…
    user=$1
    shift
    if [ "$(id -u)" = 0 ]; then
        exec setpriv --reuid "$user" --regid "$user" --clear-groups --pdeathsig KILL -- "$@"
    fi
    leash "$@"
}

ended() { # process
    waiting_for=$$
    started=$(printf ' %s ' "$started" | sed "s/ $1 / /")
    wait "$1" 2>/dev/null
}

clean_up() {
    trap - EXIT INT TERM HUP
    if [ -n "$database" ]; then # killed with -9 it would leave shared memory behind
        kill -QUIT "$database" 2>/dev/null || true
        ended "$database" || true
    fi
    for process in $started; do
        kill -9 "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    if [ "${KEEP:-no}" = yes ]; then
        say "Everything is in $home."
    else
        rm -rf "$home"
    fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

remember() { # what was started last: it is ended at the end, and nobody waits for it when it is dead
    waiting_for=$!
    started="$started $!"
}

start() {
    leash "$@" >>"$log" 2>&1 &
    running=$!
    remember
}

kill9() {
    kill -9 "$running" 2>/dev/null || true
    status=0
    ended "$running" || status=$?
    case $status in
    137) kills=$((kills + 1)) ;;
    0) say "(This machine was slow: it was through with its work before it could be killed.)" ;;
    *) give_up "it had ended by itself, with status $status" ;;
    esac
}

stop() {
    kill -TERM "$running" 2>/dev/null || true
    status=0
    ended "$running" || status=$?
    case $status in
    0 | 143) ;; # on a slow machine it was told before it had begun
    *) give_up "it did not end well: status $status" ;;
    esac
}

count() { # file, word: lines that have it
    if [ -e "$1" ]; then
        grep -c -e "$2" "$1" || true
    else
        echo 0
    fi
}

come() { # file, word, lines, patience in fiftieths of a second: are they there?
    tries=0
    while [ "$(count "$1" "$2")" -lt "$3" ]; do
        tries=$((tries + 1))
        [ "$tries" -le "$4" ] || return 1
        kill -0 "$waiting_for" 2>/dev/null || return 1
        sleep 0.02
    done
}

await() { # file, word, lines
    come "$1" "$2" "$3" $((WAIT_SECONDS * 50)) ||
        give_up "in $WAIT_SECONDS seconds, or before it ended, there were not $3 lines with '$2' in $1"
}

await_value() { # what a command is to say, the command
    wanted=$1
    shift
    tries=0
    while [ "$("$@")" != "$wanted" ]; do
        tries=$((tries + 1))
        [ "$tries" -le $((WAIT_SECONDS * 10)) ] || give_up "in $WAIT_SECONDS seconds '$*' did not say '$wanted'"
        kill -0 "$waiting_for" 2>/dev/null || give_up "it ended by itself"
        sleep 0.1
    done
}

# On a slow machine a kill may come so late that less than that is left to do: then it is killed while it waits.
kill9_at() { # file, word, lines
    come "$1" "$2" "$3" 100 || true
    kill9
}

# ---- servers ----

oncemqd=$(first_of oncemqd "${ONCEMQD:-}" "${BUILD:+$BUILD/src/daemon/oncemqd}" "$(command -v oncemqd || true)" \
    ../../build/src/daemon/oncemqd)

broker_start() {
    : >"$home/ready"
    leash "$oncemqd" --data "$home/data" --set listenPort=0 --set namesrvListenPort=0 "$@" \
        >"$home/ready" 2>>"$home/oncemqd.err" &
    broker=$!
    remember
    await "$home/ready" '^ready: ' 1
    names=$(sed -n 's/^ready: .*names \([^,]*\),.*/\1/p' "$home/ready")
}

broker_kill() {
    kill -9 "$broker"
    ended "$broker" || true
}

redis_start() {
    redis_server=${REDIS_SERVER:-redis-server}
    command -v "$redis_server" >/dev/null || return 1
    leash "$redis_server" --port 0 --unixsocket "$home/redis.sock" --dir "$home" --appendonly yes \
        >"$home/redis.out" 2>&1 &
    remember
    await "$home/redis.out" 'ready to accept connections' 1
    # shellcheck disable=SC2034 # for the script
    redis=redis+unix://$home/redis.sock
}

postgresql_start() {
    # Debian keeps the server's programs out of the PATH, in a folder for each version.
    bin=$(find /usr/lib/postgresql/*/bin -name initdb 2>/dev/null | sort -V | tail -n 1)
    bin=$(dirname "${bin:-$(command -v initdb || true)}")
    [ -x "$bin/postgres" ] && [ -x "$bin/initdb" ] || return 1
    mkdir "$home/postgresql"
    if [ "$(id -u)" = 0 ]; then
        chmod 755 "$home"
        chown postgres "$home/postgresql"
    fi
    (as_user postgres "$bin/initdb" -D "$home/postgresql/data" -U shop --auth trust --no-sync --encoding UTF8 \
        --locale C) >"$home/initdb.out" 2>&1 || give_up "initdb: $(cat "$home/initdb.out")"
    chmod 700 "$home/postgresql"
    as_user postgres "$bin/postgres" -D "$home/postgresql/data" -c listen_addresses= \
        -c unix_socket_directories="$home/postgresql" -c dynamic_shared_memory_type=mmap \
        >"$home/postgresql.out" 2>&1 &
    database=$!
    remember
    await "$home/postgresql.out" 'ready to accept connections' 1
    # shellcheck disable=SC2034 # for the script
    postgresql="postgresql:///postgres?host=$home/postgresql&user=shop"
}

# ---- messages ----

oncemq=$(first_of oncemq "${ONCEMQ:-}" "${BUILD:+$BUILD/src/cli/oncemq}" "$(command -v oncemq || true)" \
    ../../build/src/cli/oncemq)

send() {
    "$oncemq" --names "$names" --quiet send --lines "$@" >>"$home/sent" 2>>"$log" || give_up "sending to $1"
}

# A consumer tells its broker now and then how far it came, and for sure when it is stopped.
finish() { # group, then the command of its consumer
    group=$1
    shift
    rounds=0
    while :; do
        start "$@"
        sleep 1
        stop
        lag=$("$oncemq" --names "$names" lag --group "$group" --json 2>>"$log") || true
        case $lag in
        *'"lag":'[1-9]*) ;;
        *"\"group\":\"$group\""*) return ;;
        esac
        rounds=$((rounds + 1))
        [ "$rounds" -le "$WAIT_SECONDS" ] || give_up "$group does not come to an end: $lag"
    done
}

# ---- how it ended ----

check() { # what, found, wanted
    if [ "$2" = "$3" ]; then
        say "  ok: $1: $2"
    else
        say "  NOT SO: $1: $2, should be $3"
        faults=$((faults + 1))
    fi
}

verdict() { # the sentence for a good end
    if [ "$faults" -gt 0 ]; then
        say "$faults of these facts are not as promised."
        exit 1
    fi
    say "$*"
}
