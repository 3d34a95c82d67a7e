#!/bin/sh
# Twelve coupon tasks, each sent twice; the consumer is killed with -9 again and again in the middle of them. At the end
# every user has one coupon. README.md tells more.
set -eu
cd "$(dirname "$0")"
# shellcheck source=examples/stage.sh
. ../stage.sh

coupons=$(program coupons)
ledger=$home/ledger
: >"$ledger"

tasks() {
    for task in 01 02 03 04 05 06 07 08 09 10 11 45; do
        echo "{\"taskId\":\"task123$task\",\"users\":5}"
    done
}

broker_start --clock system
store=${STORE:-broker:}
if [ "$store" = broker: ]; then
    say "A broker is running, and nothing else: it keeps the state locks, too."
elif [ "$store" = redis ]; then
    redis_start || give_up "there is no redis-server"
    store=$redis
    say "A broker and a Redis of our own are running; the state locks are in the Redis."
else
    say "A broker is running; the state locks are in $store, as you wish."
fi

say "Sending 12 tasks of 5 coupons, and all of them again, as a producer does that got no answer."
tasks | send CouponTasks
tasks | send CouponTasks

for coupon in 1 6 15 16 20 31 44; do
    start "$coupons" "$names" "$ledger" "$store"
    kill9_at "$ledger" user "$coupon"
    say "Killed the consumer with -9: $(count "$ledger" user) coupons are handed out, $(count "$log" 'done') tasks done."
done

say "Sending all of them a third time, and starting the consumer once more."
tasks | send CouponTasks
finish coupons "$coupons" "$names" "$ledger" "$store"
say "Since then $(awk '/copies had no effect/ { sum += $9 } END { print sum }' "$log") copies had no effect."

say "What was handed out:"
check "coupons handed out" "$(count "$ledger" user)" 60
check "different coupons among them" "$(sort -u "$ledger" | grep -c user)" 60
check "users with a coupon of task12345" "$(count "$ledger" '^coupon_task_execute:idempotent:task12345 ')" 5

if [ "$store" = "${redis:-none}" ] && command -v redis-cli >/dev/null; then
    lock=coupon_task_execute:idempotent:
    say "Other programs share the lock in its plain form: one of them has done task777, another is just at work on task778."
    redis-cli -s "$home/redis.sock" set "${lock}task777" 1 ex 3600 >>"$log"
    redis-cli -s "$home/redis.sock" set "${lock}task778" 0 px 1000 >>"$log"
    tasks | head -n 3 | sed 's/task12301/task777/; s/task12302/task778/; s/task12303/task779/' | send CouponTasks
    start "$coupons" "$names" "$ledger" "$store" plain
    await "$log" 'task77. done' 2
    stop
    check "coupons of task777" "$(count "$ledger" 'task777 ')" 0
    check "coupons of task778, whose lock was free after a second" "$(count "$ledger" 'task778 ')" 5
    check "GET ${lock}task779" "$(redis-cli -s "$home/redis.sock" get "${lock}task779")" 1
fi
verdict "Each message came three times or more, the consumer died $kills times, and nobody has two coupons."
