/* settings.h - everything that can be set about a daemon, in one struct and one table.
 *
 * Keys are Apache RocketMQ's where it has them, so that an existing broker.conf works as it is.
 * `oncemqd --print-config` and docs/configuration.md are made from the same table.
 */
#ifndef DAEMON_SETTINGS_H
#define DAEMON_SETTINGS_H

#include "base/conf.h"

enum flush_type { FLUSH_ASYNC, FLUSH_SYNC };
enum tls_mode { TLS_DISABLED, TLS_PERMISSIVE, TLS_ENFORCING };
enum broker_role { ROLE_ASYNC_MASTER, ROLE_SYNC_MASTER, ROLE_SLAVE };

struct settings {
    /* network */
    char bind_address[CONF_TEXT_MAX];
    int64_t listen_port, names_port, http_port, io_threads, max_connections, idle_seconds;
    int64_t out_high_bytes, out_max_bytes;
    /* TLS */
    int tls_mode, tls_client_auth;
    bool tls_test, tls_auth_client;
    char tls_cert[CONF_TEXT_MAX], tls_key[CONF_TEXT_MAX], tls_trust[CONF_TEXT_MAX];
    bool tls_enable, tls_auth_server; /* when we register with name servers */
    char tls_own_cert[CONF_TEXT_MAX], tls_own_key[CONF_TEXT_MAX], tls_own_trust[CONF_TEXT_MAX];
    /* who we are */
    char names_addr[CONF_TEXT_MAX], cluster[CONF_TEXT_MAX], broker_name[CONF_TEXT_MAX],
        broker_ip1[CONF_TEXT_MAX];
    char region[CONF_TEXT_MAX], trace_topic_name[CONF_TEXT_MAX];
    int64_t broker_id, register_period_ms;
    int broker_role;
    /* topics and groups */
    bool auto_topics, auto_groups, trace_on, trace_topic, store_replies, server_side_reset;
    int64_t default_queues, recent_ratio, broker_perm, dlq_perm, max_topics, max_groups,
        max_clients, client_expire_ms, lock_life_ms;
    /* messages */
    int64_t max_message_size, max_holds, short_polling_ms;
    bool long_polling, fast_failure, sql92;
    /* POP */
    int64_t max_pop_marks, max_pop_waiting, pop_retry_chance, max_invisible_sec, pop_share;
    int request_mode;
    bool server_balance, pop_retry_v2, pop_retry_v1_too;
    int64_t max_sends_waiting, max_send_wait_ms;
    char delay_levels[CONF_TEXT_MAX];
    bool txn_reject;
    int64_t txn_timeout_ms, txn_interval_ms, txn_check_max, max_halves;
    char dedup_key[CONF_TEXT_MAX];
    int64_t dedup_window_seconds, dedup_max_keys;
    bool ledger;
    int64_t ledger_max_keys, ledger_grace_ms;
    bool timers, recalls;
    int64_t timer_max_s, timer_window_s;
    /* store */
    char data[CONF_TEXT_MAX];
    int flush_type;
    int64_t log_file_size, queue_file_size;
    bool index_enable;
    int64_t index_slots, index_entries;
    int64_t flush_interval_ms, flush_least_pages, flush_thorough_interval_ms,
        queue_flush_interval_ms;
    int64_t save_offsets_ms;
    int64_t reserved_hours;
    char delete_when[CONF_TEXT_MAX];
    int64_t disk_max_used, disk_forced, disk_warning;
    /* name server */
    bool order_enable, acting_master;
    /* log */
    int log_level;
};

extern const struct conf_table settings_table;
#define SETTINGS_MAX 256 /* keys, at most */

/* The hours that deleteWhen names, bit h for hour h. */
uint32_t settings_delete_hours(const struct settings *settings);

/* The delay ladder in ms, level 1 first; how many levels it has. */
#define DELAY_LEVELS_MAX 64
size_t settings_delays(const struct settings *settings, int64_t out[DELAY_LEVELS_MAX]);

/* Whether TLS is offered to whoever connects. */
bool settings_offer_tls(const struct settings *settings);

/* What no key can be refused for alone. */
must_check enum err settings_check(const struct settings *settings, struct fault *why);

#endif
