/* core.c - the core room itself: opening, closing, and what happens after the key is given back. */
#include "broker/pop_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static enum err options_take(struct broker *b, const struct broker_options *options);
static enum err added_make(struct broker *b);
static void core_init(struct broker *b);
static enum err core_fill(struct broker *b, struct fault *why);
static void broker_free(struct broker *b);

enum err broker_open(const struct broker_options *options, struct broker **out, struct fault *why)
{
    struct broker *b = calloc(1, sizeof *b);
    if (!b)
        return ERR_NO_MEMORY;
    core_init(b);

    enum err err = options_take(b, options);
    if (!err)
        err = added_make(b);
    if (!err)
        err = b->vfs->calls->mkdir(b->vfs, "config", why);
    if (!err)
        err = core_fill(b, why);
    if (!err)
        err = dedup_load(b, why);
    if (!err)
        err = ledger_replay(b, why);
    if (err) {
        broker_free(b);
        return err;
    }
    *out = b;
    return OK;
}

enum err broker_close(struct broker *b, struct fault *why)
{
    /* The copies must be on the disk before the table may count them; if they cannot be brought
     * there, it says what is safe. */
    bool unsettled = delay_unsettled(b) || txn_unsettled(b) || pop_unsettled(b);
    if (unsettled && store_flush_all(b->store, NULL) == OK) {
        delay_settle(b);
        txn_settle_last(b);
        pop_settle_all(b);
    }
    timers_settle(b);
    enum err err = broker_save_turn(b, why);
    enum err ledger_err = ledger_save_last(b, err ? NULL : why);
    err = err ? err : ledger_err;
    broker_free(b);
    return err;
}

/* Services add theirs here. */
void broker_tune(struct broker *b, const struct broker_options *now)
{
    struct after after;
    after_init(&after);
    room_enter(&b->room);
    struct broker_options *set = &b->set;
    after.topics_changed = set->perm != now->perm; /* name servers are told it with the topics */
    if (after.topics_changed)
        table_changed(b, TABLE_TOPICS);
    set->perm = now->perm;
    set->auto_topics = now->auto_topics;
    set->auto_groups = now->auto_groups;
    set->trace_topic = now->trace_topic;
    set->dlq_perm = now->dlq_perm;
    set->long_polling = now->long_polling;
    set->short_polling_ms = now->short_polling_ms;
    set->client_side_reset = now->client_side_reset;
    set->max_message_size = now->max_message_size;
    set->recent_bytes = now->recent_bytes;
    set->client_expire_ms = now->client_expire_ms;
    set->lock_life_ms = now->lock_life_ms;
    set->max_holds = now->max_holds;
    set->max_topics = now->max_topics;
    set->max_groups = now->max_groups;
    set->max_clients = now->max_clients;
    set->recalls = now->recalls;
    set->timer_max_s = now->timer_max_s;
    b->filters.sql92 = now->sql92;
    set->reserved_ms = now->reserved_ms;
    set->txn_reject = now->txn_reject;
    set->txn_timeout_ms = now->txn_timeout_ms;
    set->txn_interval_ms = now->txn_interval_ms;
    set->txn_check_max = now->txn_check_max;
    set->ledger_max_keys = now->ledger_max_keys;
    set->ledger_grace_ms = now->ledger_grace_ms;
    set->max_pop_marks = now->max_pop_marks;
    set->max_pop_waiting = now->max_pop_waiting;
    set->server_balance = now->server_balance;
    set->default_pops = now->default_pops;
    set->default_share = now->default_share;
    set->pop_retry_chance = now->pop_retry_chance;
    set->pop_retry_v2 = now->pop_retry_v2;
    set->pop_retry_v1_too = now->pop_retry_v1_too;
    /* The template of automatic topics, or the one for traces, may be missing until now. Without
     * memory they still are. */
    size_t topics = b->topics.n;
    enum err ignored = topics_add_system(b);
    (void)ignored;
    after.topics_changed |= b->topics.n > topics;
    room_leave(&b->room);
    after_run(b, &after);
    ledger_room_tune(b, now);
}

const char *broker_note(const struct broker *b)
{
    return b->note;
}

/* ---- opening ---- */

static void core_init(struct broker *b)
{
    room_init(&b->room, "core", ROOM_CORE);
    b->added = buf_upto(4096);
    b->forbidden = buf_upto(16 << 20);
    list_init(&b->members_by_time);
    list_init(&b->locks_by_time);
    for (size_t i = 0; i < DELAY_LEVELS; i++)
        b->delay_saved[i] = -1;
    for (size_t i = 0; i < HOLD_SLOTS; i++)
        list_init(&b->hold_slots[i]);
}

static enum err options_take(struct broker *b, const struct broker_options *options)
{
    b->store = options->store;
    b->vfs = options->vfs;
    b->clock = options->clock;
    b->peer_clock = options->peer_clock ? options->peer_clock : options->clock;
    b->out = options->out;
    b->set = *options;
    b->filters.sql92 = options->sql92;
    enum { TEXTS = sizeof b->texts / sizeof *b->texts };
    const char **texts[TEXTS] = {&b->set.cluster, &b->set.name, &b->set.region,
                                 &b->set.trace_topic_name, &b->set.dedup_key};
    for (size_t i = 0; i < TEXTS; i++) {
        b->texts[i] = strdup(*texts[i] ? *texts[i] : "");
        if (!b->texts[i])
            return ERR_NO_MEMORY;
        *texts[i] = b->texts[i];
    }

    b->dice = dice_seeded(options->seed);
    enum { MAPS = 12 };
    struct map *maps[MAPS] = {&b->topics,      &b->groups,  &b->progress, &b->consumers,
                              &b->producers,   &b->members, &b->visitors, &b->waiting,
                              &b->lock_groups, &b->tombs,   &b->callers,  &b->modes};
    for (size_t i = 0; i < MAPS; i++)
        map_init(maps[i], dice_next(&b->dice));
    enum err err = pop_init(b);
    if (err)
        return err;
    numbers_init(b);
    b->hold_tick = clock_ns(b->clock) / HOLD_SLOT_NS;
    err = dedup_open(b);
    return err ? err : ledger_room_open(b);
}

/* MSG_REGION, TRACE_ON and CLUSTER are the same for every message, so their text is made once. */
static enum err added_make(struct broker *b)
{
    uint8_t text[4096];
    struct wr w = wr_over(text, sizeof text);
    props_add(&w, PROP_MSG_REGION, bytes_str(b->set.region));
    props_add(&w, PROP_TRACE_ON, b->set.trace_on ? BYTES("true") : BYTES("false"));
    props_add(&w, PROP_CLUSTER, bytes_str(b->set.cluster));
    if (w.full)
        return ERR_TOO_BIG;
    buf_add(&b->added, wr_bytes(&w));
    return b->added.err;
}

/* What the files say comes first; what every broker has and what only the log knows is added where
 * it is missing. */
static enum err core_fill(struct broker *b, struct fault *why)
{
    room_enter(&b->room);
    for (size_t i = 0; i < TABLES; i++)
        b->tables[i].version.timestamp = clock_ms(b->clock);
    enum err err = tables_load(b, why);
    if (!err)
        err = topics_add_system(b);
    if (!err)
        err = topics_add_stored(b);
    if (!err)
        err = groups_add_system(b);
    if (!err)
        err = delay_open(b);
    if (!err)
        err = txn_open(b);
    if (!err)
        err = pop_open(b, why);
    room_leave(&b->room);
    return err ? err : timers_open(b, why);
}

static void broker_free(struct broker *b)
{
    size_t i;
    void *each;
    clients_clear(b);
    locks_clear(b);
    tombs_clear(b);
    numbers_clear(b);
    for (i = 0; (each = map_next(&b->topics, &i));)
        topic_free(each);
    for (i = 0; (each = map_next(&b->groups, &i));)
        free(each);
    for (i = 0; (each = map_next(&b->progress, &i));)
        progress_free(each);
    for (i = 0; (each = map_next(&b->waiting, &i));)
        free(each);
    delay_free(b->delay);
    txn_free(b->txn);
    dedup_close(b);
    ledger_room_close(b);
    pop_free(b);
    modes_clear(b);
    timers_free(b->timer);
    map_clear(&b->topics);
    map_clear(&b->groups);
    map_clear(&b->progress);
    map_clear(&b->waiting);
    buf_clear(&b->added);
    buf_clear(&b->forbidden);
    for (i = 0; i < sizeof b->texts / sizeof *b->texts; i++)
        free(b->texts[i]);
    room_clear(&b->room);
    free(b);
}

/* ---- afterwards ---- */

void after_init(struct after *after)
{
    *after = (struct after){0};
    list_init(&after->gone);
    list_init(&after->woken);
}

static void notice_send(struct broker *b, struct notice *notice)
{
    struct bytes group = bytes_of(notice->group, notice->group_len);
    for (size_t i = 0; i < notice->n; i++) {
        if (b->out && b->out->group_changed)
            b->out->group_changed(notice->sessions[i], group);
        counted_drop(notice->sessions[i]);
    }
}

void after_warn(struct after *after, const char *format, ...)
{
    struct warning *warning = calloc(1, sizeof *warning);
    if (!warning)
        return;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(warning->text, sizeof warning->text, format, args);
    va_end(args);
    for (char *at = warning->text; *at; at++) /* names come from strangers, and this is one line */
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
    warning->next = after->warnings;
    after->warnings = warning;
}

void after_run(struct broker *b, struct after *after)
{
    while (after->warnings) {
        struct warning *warning = after->warnings;
        after->warnings = warning->next;
        if (b->out && b->out->warn)
            b->out->warn(b->out->user, warning->text);
        free(warning);
    }
    while (after->notices) {
        struct notice *notice = after->notices;
        after->notices = notice->next;
        notice_send(b, notice);
        free(notice->sessions);
        free(notice);
    }
    for (struct link *k; (k = list_pop(&after->gone));) {
        struct member *member = list_entry(k, struct member, by_time);
        if (member->expired && b->out && b->out->session_expired)
            b->out->session_expired(member->session);
        counted_drop(member->session);
        free(member->id);
        free(member);
    }
    holds_wake(&after->woken);
    if (after->topics_changed && b->out && b->out->topics_changed)
        b->out->topics_changed(b->out->user);
    if (after->tables_changed && b->out && b->out->tables_changed)
        b->out->tables_changed(b->out->user);
}
