#!/bin/sh
# Ten updates of each of three prices, sent twice, applied by a program that is killed with -9 in the middle of them. They
# are applied in order, each once, and an old one never overwrites a newer. README.md tells more.
set -eu
cd "$(dirname "$0")"
# shellcheck source=examples/stage.sh
. ../stage.sh

prices=$(program prices)
table=$home/prices.db

updates() { # product, first version, last version
    for version in $(seq "$2" "$3"); do
        echo "{\"product\":\"$1\",\"version\":$version,\"price\":$((version * 10 + 1))}"
    done
}

send_updates() { # first version, last version
    for product in coffee milk tea; do
        updates "$product" "$1" "$2" | send PriceUpdates --order "$product"
    done
}

versions() {
    "$prices" report "$table" | cut -d ' ' -f 2 | tr '\n' ' '
}

broker_start --clock system
say "A broker is running. Sending versions 1 to 10 of three prices, and versions 1 to 5 once more behind them."
send_updates 1 10
send_updates 1 5

for n in 1 4 2 7 5; do
    start "$prices" "$names" "$table"
    kill9_at "$log" 'half way' $(($(count "$log" 'half way') + n))
    say "Killed it with -9 in the middle of an update: the prices are in versions $(versions)"
done

say "All ten come once more, and then version 11."
send_updates 1 10
send_updates 11 11
finish prices "$prices" "$names" "$table"

say "Version and price of each, and the updates in the order in which they were applied:"
for product in coffee milk tea; do
    check "$product" "$("$prices" report "$table" | sed -n "s/^$product //p")" "11 111 1,2,3,4,5,6,7,8,9,10,11"
done
say "$(count "$log" 'before') updates came that were old, and changed nothing."
verdict "The program died $kills times; every update was applied once, in order."
