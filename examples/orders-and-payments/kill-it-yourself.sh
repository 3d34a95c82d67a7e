#!/bin/sh
# Twenty orders and their payments, each sent twice, booked in a database by a consumer that is killed with -9 in the
# middle of its transactions. At the end the books are right to the last coin. README.md tells more.
set -eu
cd "$(dirname "$0")"
# shellcheck source=examples/stage.sh
. ../stage.sh

orders() {
    for n in $(seq 1 20); do
        echo "{\"id\":\"order-$n\",\"amount\":$((n * 10))}"
    done
}

payments() {
    for n in $(seq 1 20); do
        echo "{\"id\":\"payment-$n\",\"order\":\"order-$n\",\"amount\":$((n * 10))}"
    done
}

report() { # which of its columns: orders, paid orders, owed, paid, to give back
    "$shop" report "$store" | cut -d ' ' -f "$1"
}

kill_in_the_middle() { # words of the line after which to do it, how many of them
    start "$shop" "$names" "$store"
    kill9_at "$log" "$1" $(($(count "$log" "$1") + $2))
    say "Killed the consumer with -9 in the middle of a transaction: $(report 1) orders, $(report 2) of them paid."
}

broker_start --clock system
if [ "${STORE:-postgresql}" = postgresql ] && postgresql_start; then
    store=$postgresql
    shop=$(program shop-postgresql)
    say "A broker and a PostgreSQL of our own are running."
else
    store=sqlite:$home/shop.db
    shop=$(program shop-sqlite)
    say "No PostgreSQL is installed here (or STORE=sqlite was wanted): the books are in SQLite. A broker is running."
fi

say "Sending 20 orders, and all of them again."
orders | send Orders
orders | send Orders
for n in 1 2 5 7; do
    kill_in_the_middle 'half done' "$n"
done

say "When all orders are there, their payments are sent, and all of them again."
start "$shop" "$names" "$store"
await_value 20 report 1
kill9
payments | send Payments
payments | send Payments
for n in 1 3 2 6; do
    kill_in_the_middle 'half paid' "$n"
done

say "Everything comes once more, and somebody pays order-1 for a second time."
orders | send Orders
payments | send Payments
echo '{"id":"payment-21","order":"order-1","amount":10}' | send Payments
finish shop "$shop" "$names" "$store"

say "What the books say:"
check "orders" "$(report 1)" 20
check "orders that are paid" "$(report 2)" 20
check "owed" "$(report 3)" 2100
check "paid" "$(report 4)" 2100
check "to be given back, since it was paid twice" "$(report 5)" 10
verdict "Each message came three times or more, the consumer died $kills times, and not a coin is missing or too many."
