#!/bin/sh
# Ten orders go through four services each, and the process that leads them is killed with -9 between the services and
# right after one has acted. No service does anything twice. README.md tells more.
set -eu
cd "$(dirname "$0")"
# shellcheck source=examples/stage.sh
. ../stage.sh

flow=$(program flow)
services=$home/services
: >"$services"

orders() {
    for n in $(seq 1 10); do
        echo "{\"orderId\":\"order-$n\"}"
    done
}

broker_start --clock system
say "A broker is running. Sending 10 orders, and all of them again."
orders | send NewOrders
orders | send NewOrders

for moment in 'reserve-stock 1' 'charge-card 2' 'book-courier 3' 'charge-card 6' 'send-mail 5' 'book-courier 9'; do
    service=${moment% *}
    start "$flow" "$names" "$services"
    kill9_at "$services" "^$service " "${moment#* }"
    say "Killed it with -9 right after $service had acted; $(count "$services" .) of 40 steps are done."
done

say "Sending all orders a third time, and starting it once more."
orders | send NewOrders
finish order-flow "$flow" "$names" "$services"

say "What the services did:"
for service in reserve-stock charge-card book-courier send-mail; do
    check "$service" "$(count "$services" "^$service ") times, for $(grep "^$service " "$services" | cut -d ' ' -f 3 |
        sort -u | wc -l) orders" "10 times, for 10 orders"
done
say "Of the steps that were under way when it was killed, $(count "$log" 'asked again') were asked for again, under the same key."
verdict "Each order came three times or more, the process died $kills times, and every service did its work once."
