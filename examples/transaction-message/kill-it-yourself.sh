#!/bin/sh
# Ten pieces, twelve orders. The shop is killed with -9 before its own transaction and between that and its decision; the
# broker asks, and the next shop answers. What is shipped is what was sold. README.md tells more.
set -eu
cd "$(dirname "$0")"
# shellcheck source=examples/stage.sh
. ../stage.sh

sell=$(program sell)
ship=$(program ship)

report() { # shipments, different orders among them
    "$ship" report "$home/ship.db"
}

broker_start --set transactionTimeOut=1000 --set transactionCheckInterval=200
say "A broker is running, which asks for a decision that it did not get within a second."

for moment in 'half 1' 'in the books 2' 'half 5' 'in the books 5' 'in the books 7'; do
    # shellcheck disable=SC2046 # a list of orders
    start "$sell" "$names" "$home/shop.db" $(seq -f order-%.0f 1 12)
    kill9_at "$log" "${moment% *}" "${moment##* }"
    say "Killed the shop with -9 after '$(tail -n 1 "$log")'. It is told all twelve again."
done
# shellcheck disable=SC2046
start "$sell" "$names" "$home/shop.db" $(seq -f order-%.0f 1 12)
shop=$running
await "$log" 'everything is sold' 1

for n in 1 2; do
    start "$ship" "$names" "$home/ship.db"
    kill9_at "$log" 'half shipped' $(($(count "$log" 'half shipped') + n))
    say "Killed those who ship with -9: $(report | cut -d ' ' -f 1) shipments so far."
done

say "Somebody sends the message about order-1 once more, by hand."
echo '{"orderId":"order-1"}' | send Sales
start "$ship" "$names" "$home/ship.db"
await_value '10 10' report
stop
finish ship "$ship" "$names" "$home/ship.db"
running=$shop
stop

say "The broker asked $(count "$log" 'asked for: commit') times about an order that was sold, and" \
    "$(count "$log" 'asked for: rollback') times about one that was not."
say "Ten pieces were there:"
check "orders that were not to be had" "$(grep 'not sold' "$log" | sort -u | wc -l)" 2
check "shipments, and orders among them" "$(report)" "10 10"
verdict "The shop and those who ship were killed $kills times: what was sold was shipped, once, and nothing else."
