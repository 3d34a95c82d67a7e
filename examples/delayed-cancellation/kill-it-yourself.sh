#!/bin/sh
# Ten orders, four of them paid; half an hour later the others are cancelled, by a program that is killed with -9 in the
# middle of it, as are the shop and the broker. Nothing is cancelled twice, and nothing that was paid. The broker's clock
# is put forward, so all of this takes seconds. README.md tells more.
set -eu
cd "$(dirname "$0")"
# shellcheck source=examples/stage.sh
. ../stage.sh

shop=$(program shop)
cancel=$(program cancel)
books=$home/books.db

report() { # which of its columns: unpaid, paid, cancelled, pieces in stock
    "$shop" - "$books" report | cut -d ' ' -f "$1"
}

broker_start --clock virtual --set recallMessageEnable=true
say "A broker is running. There are $(report 4) pieces in stock."

say "Placing 10 orders, each of which is to be cancelled in half an hour."
for moment in 'its message 2' 'placed 3' 'its message 9'; do
    # shellcheck disable=SC2046 # a list of orders
    start "$shop" "$names" "$books" place $(seq -f order-%.0f 1 9)
    kill9_at "$log" "${moment% *}" "${moment##* }"
    say "Killed the shop with -9 after '$(tail -n 1 "$log")'; $(report 1) orders are placed. It is told all of them again."
done
# shellcheck disable=SC2046
"$shop" "$names" "$books" place $(seq -f order-%.0f 1 10) >>"$log"
say "Now $(report 1) are placed, and $(report 4) pieces are left."

say "Orders 2, 4, 6 and 10 are paid."
start "$shop" "$names" "$books" pay order-2 order-4
kill9_at "$log" 'order-4 paid' 1
say "Killed the shop with -9 when it had the money and had not yet taken back the message. It goes on:"
"$shop" "$names" "$books" pay order-2 order-4 order-6 order-10 | tee -a "$log" | sed 's/^/  /'

broker_kill
say "Killed the broker with -9. It comes back, and half an hour has passed."
broker_start --clock virtual+1860000 --set recallMessageEnable=true

for n in 1 1 2; do
    start "$cancel" "$names" "$books"
    kill9_at "$log" 'half cancelled' $(($(count "$log" 'half cancelled') + n))
    say "Killed it with -9 in the middle of a cancellation: $(report 3) are cancelled, $(report 4) pieces are in stock."
done

say "Somebody sends cancellations of orders 1 to 9 once more, those of the paid ones too."
for n in 1 2 3 4 5 6 7 8 9; do
    echo "{\"orderId\":\"order-$n\"}"
done | send Cancellations
start "$cancel" "$names" "$books"
await_value 6 report 3
stop
finish cancel "$cancel" "$names" "$books"

say "What the books say:"
check "orders that wait for their money" "$(report 1)" 0
check "paid orders" "$(report 2)" 4
check "cancelled orders" "$(report 3)" 6
check "pieces in stock, 100 less those that are paid" "$(report 4)" 96
check "messages that came for order-10, which was paid in time" "$(count "$log" '^order-10 \(is\|half\) ')" 0
verdict "$kills programs and a broker were killed, messages came twice and more: each order was paid or cancelled, and once."
