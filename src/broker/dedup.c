/* dedup.c - messages that were stored before are not stored again: choosing, recognising,
 * answering. dedup_int.h tells the model.
 *
 * The way of a turn, inside the room: age the table; look for the name of each message; leave those
 * that are known, or that came earlier in this turn, out of the drafts. New names go into the table
 * with the number of their draft. When the drafts are stored these get their positions; if nothing
 * was stored they are taken back, so that nobody is ever told of a first one that is not there.
 */
#include "broker/admin_int.h"
#include "broker/dedup_int.h"

#include "base/reserve.h"

#include <stdlib.h>

#define TEND_STEPS    (1u << 12)
#define WARN_PAUSE_MS 60000
#define OFF           BYTES("OFF")

/* ---- opening, choosing ---- */

enum err dedup_open(struct broker *b)
{
    struct dedup *d = aligned_alloc(alignof(struct dedup), sizeof *d);
    if (!d)
        return ERR_NO_MEMORY;
    memset(d, 0, sizeof *d);
    room_init(&d->room, "dedup", ROOM_DEDUP);
    d->seed = dice_next(&b->dice);
    d->window_ms = (int64_t)b->set.dedup_window_ms;
    d->tick_ms = (d->window_ms + DEDUP_TICKS - 1) / DEDUP_TICKS;
    d->max_keys = b->set.dedup_max_keys < DEDUP_KEYS_MAX ? b->set.dedup_max_keys : DEDUP_KEYS_MAX;
    dedup_table_init(&d->table, d->max_keys);
    b->dedup = d;
    if (b->set.dedup_key[0])
        atomic_store_explicit(&b->dedup_used, true, memory_order_relaxed);
    return OK;
}

void dedup_close(struct broker *b)
{
    if (!b->dedup)
        return;
    dedup_table_close(&b->dedup->table);
    room_clear(&b->dedup->room);
    free(b->dedup);
}

/* Room: core. */
struct bytes dedup_by(struct broker *b, const struct topic *topic)
{
    struct bytes by = topic->dedup.len ? topic->dedup : bytes_str(b->set.dedup_key);
    return bytes_equal(by, OFF) ? (struct bytes){0} : by;
}

/* Room: core. */
struct bytes dedup_of_topic(struct broker *b, const struct topic_settings *set, struct arena *arena)
{
    room_held(&b->room);
    if (bytes_start(set->name, RETRY_PREFIX) || bytes_start(set->name, DLQ_PREFIX) ||
        topic_is_system(set->name))
        return OFF;
    struct bytes by = attribute_get(set->attributes, BYTES(DEDUP_ATTRIBUTE), arena);
    if (!prop_name_valid(by)) /* a file may say anything */
        return (struct bytes){0};
    if (!bytes_equal(by, OFF))
        atomic_store_explicit(&b->dedup_used, true, memory_order_relaxed);
    return by;
}

/* Room: core. */
void dedup_choose(struct desk *desk, struct produce *r, const struct topic *topic)
{
    bool tried_before = r->reconsume_times > 0; /* by a consumer: not a producer's own retry */
    if (tried_before || r->is_half || r->timer_due_ms > 0)
        return;
    if (topic != desk->chosen) {
        desk->chosen = topic;
        desk->chosen_by = dedup_by(desk->broker, topic);
        desk->chosen_dedup = desk->chosen_by.len == 0                      ? DEDUP_NONE
                             : bytes_equal(desk->chosen_by, PROP_UNIQ_KEY) ? DEDUP_UNIQ_KEY
                                                                           : DEDUP_PROPERTY;
    }
    r->dedup = desk->chosen_dedup;
    if (!r->dedup)
        return;
    desk->guarded = true;
    if (r->dedup == DEDUP_PROPERTY) {
        struct bytes by = desk->chosen_by;
        desk->by_property = true;
        memcpy(r->dedup_by, by.at, by.len);
        r->dedup_by[by.len] = 0;
    }
}

/* ---- names ---- */

uint64_t dedup_hash(const struct dedup *d, const struct dedup_name *name)
{
    return bytes_hash(name->key, bytes_hash(name->topic, d->seed) + name->place);
}

bool dedup_waits_there(struct bytes topic)
{
    return bytes_equal(topic, SCHEDULE_TOPIC);
}

/* What a record tells of itself, found in one walk. */
struct telling {
    struct bytes key, place, real_topic, real_queue;
    bool timed; /* it had a time of its own */
};

static struct telling record_tells(const struct record *record, struct bytes by)
{
    struct telling t = {0};
    struct props_walk walk = props_walk(record->props);
    struct prop p;
    while (props_next(&walk, &p)) {
        if (bytes_equal(p.name, by))
            t.key = p.value;
        if (bytes_equal(p.name, PROP_DEDUP_PLACE))
            t.place = p.value;
        else if (bytes_equal(p.name, PROP_REAL_TOPIC))
            t.real_topic = p.value;
        else if (bytes_equal(p.name, PROP_REAL_QID))
            t.real_queue = p.value;
        t.timed = t.timed || bytes_equal(p.name, PROP_TIMER_OUT);
    }
    return t;
}

/* Nothing that has a name: a message that was delivered late, came back, is part of a transaction,
 * or had a time of its own. */
static bool is_nameless(const struct record *record, const struct telling *t)
{
    return record->reconsume_times > 0 || (record->sys_flag & SYS_TX_MASK) || t->timed ||
           (t->real_topic.len > 0) != dedup_waits_there(record->topic);
}

bool dedup_name_of(const struct record *record, struct bytes by, struct dedup_name *out)
{
    struct telling t = record_tells(record, by);
    struct dedup_name name = {record->topic, t.key, 0, record->queue_id};
    if (t.key.len == 0 || is_nameless(record, &t))
        return false;
    if (t.real_topic.len) {
        name.topic = t.real_topic;
        if (!bytes_to_i32(t.real_queue, &name.queue_id))
            return false;
    }
    int32_t place = 0;
    if (bytes_equal(by, PROP_UNIQ_KEY) && t.place.len && !bytes_to_i32(t.place, &place))
        return false;
    name.place = (uint32_t)place;
    *out = name;
    return true;
}

/* Whether the record at a position has this name, and then its answer. ERR_NOT_FOUND: it has not,
 * or is there no more. Anything else: nobody can say now. */
static enum err record_compare(struct broker *b, uint64_t position, struct bytes by,
                               const struct dedup_name *name, struct dedup_note *note,
                               struct stored *first)
{
    struct slice slice;
    enum err err = store_peek_at(b->store, (int64_t)position, &slice);
    if (err)
        return err == ERR_DAMAGED ? ERR_NOT_FOUND : err;
    struct record record;
    struct dedup_name there;
    bool same = record_decode(slice.bytes, &record) == OK && dedup_name_of(&record, by, &there) &&
                there.place == name->place && bytes_equal(there.topic, name->topic) &&
                bytes_equal(there.key, name->key);
    if (same) {
        *first =
            (struct stored){OK, record.position, record.queue_offset, record.store_ms, record.size};
        note->queue_id = there.queue_id;
    }
    counted_drop(slice.owner);
    return same ? OK : ERR_NOT_FOUND;
}

/* ---- a turn: before the log ---- */

static struct bytes recognised_by(const struct produce *r)
{
    return r->dedup == DEDUP_UNIQ_KEY ? PROP_UNIQ_KEY : bytes_str(r->dedup_by);
}

/* One turn inside the room. */
struct turn {
    struct desk *desk;
    struct produce *requests;
    struct dedup *d;
    uint64_t since; /* slots from here on are of this turn, and say which draft */
    size_t known;   /* messages that were stored before, or came earlier in this turn */
};

static struct dedup_name name_on_desk(const struct turn *t, size_t i)
{
    const struct dedup_note *note = &t->desk->notes[i];
    return (struct dedup_name){t->requests[note->request].topic, note->key, note->place, 0};
}

/* Looks for message i among those before it. OK: the note says what it is. */
static enum err name_look(struct turn *t, size_t i, struct bytes by)
{
    struct dedup_note *note = &t->desk->notes[i];
    struct dedup_table *table = &t->d->table;
    struct dedup_name name = name_on_desk(t, i);
    uint64_t hash = t->desk->hashes[i];
    for (uint64_t at = 0; (at = dedup_table_find(table, hash, at));) {
        if (at >= t->since) {
            uint32_t twin = (uint32_t)dedup_table_value(table, at);
            struct dedup_name other = name_on_desk(t, twin);
            if (other.place == name.place && bytes_equal(other.topic, name.topic) &&
                bytes_equal(other.key, name.key)) {
                note->fate = NOTE_TWIN;
                t->known++;
                note->twin = twin;
                return OK;
            }
            continue;
        }
        enum err err = record_compare(t->desk->broker, dedup_table_position(table, at), by, &name,
                                      note, &t->desk->firsts[i]);
        if (err == ERR_NOT_FOUND)
            continue;
        note->fate = err ? NOTE_NEW : NOTE_KNOWN;
        t->known += !err;
        return err;
    }
    note->number = dedup_table_add(table, hash, i);
    return OK;
}

static enum err request_look(struct turn *t, struct produce *r)
{
    for (size_t i = r->first; i < r->first + r->count; i++) {
        struct dedup_note *note = &t->desk->notes[i];
        if (note->key.len == 0)
            continue;
        note->number = dedup_table_add_new(&t->d->table, t->desk->hashes[i], i);
        enum err err = note->number ? OK : name_look(t, i, recognised_by(r));
        if (err)
            return fault_set(&r->why, err,
                             "the message was not stored: whether it was before cannot be found "
                             "out: %s",
                             err_text(err));
    }
    return OK;
}

/* No key held: whoever is inside keeps others waiting. Those that a topic recognises by a property
 * of its own learn only now what that is. */
static void properties_look(struct desk *desk, const struct produce *requests, size_t n)
{
    const struct dedup *d = desk->broker->dedup;
    for (size_t k = 0; k < n; k++) {
        const struct produce *r = &requests[k];
        if (r->err || r->dedup != DEDUP_PROPERTY)
            continue;
        for (size_t i = r->first; i < r->first + r->count; i++) {
            struct dedup_name name = {.topic = r->topic};
            (void)props_get(desk->drafts[i].props, bytes_str(r->dedup_by), &name.key);
            desk->notes[i].key = name.key;
            desk->notes[i].place = 0;
            desk->hashes[i] = dedup_hash(d, &name);
            dedup_hint_fetch(&d->hint, desk->hashes[i]);
        }
    }
}

/* Takes a request's slots back that others stand behind: they are found no more. */
static void request_withdraw(struct turn *t, const struct produce *r)
{
    for (size_t i = r->first; i < r->first + r->count; i++)
        if (t->desk->notes[i].number)
            dedup_table_void(&t->d->table, t->desk->notes[i].number);
}

/* Puts those drafts of a request that are new behind the `kept` ones. */
static size_t request_keep(struct desk *desk, const struct produce *r, size_t kept)
{
    size_t from = kept;
    for (size_t i = r->first; i < r->first + r->count; i++) {
        if (desk->notes[i].fate != NOTE_NEW)
            continue;
        if (kept != i)
            desk->drafts[kept] = desk->drafts[i];
        kept++;
    }
    if (kept > from)
        desk->drafts[kept - 1].with_next = false;
    return kept;
}

static void end_raise(const struct desk *desk, const struct produce *r, uint64_t *end)
{
    for (size_t i = r->first; i < r->first + r->count; i++) {
        const struct dedup_note *note = &desk->notes[i];
        if (note->fate != NOTE_KNOWN)
            continue;
        uint64_t record_end = (uint64_t)desk->firsts[i].position + desk->firsts[i].size;
        *end = record_end > *end ? record_end : *end;
    }
}

/* What is known is left out of the drafts; those of refused requests as well. */
static void turn_look(struct turn *t, size_t n, enum err full, uint64_t *end)
{
    struct desk *desk = t->desk;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        struct produce *r = &t->requests[i];
        if (r->err)
            continue;
        size_t known = t->known;
        if (r->dedup)
            r->err = full ? fault_set(&r->why, full, "no memory to remember the message by its key")
                          : request_look(t, r);
        if (r->err) {
            request_withdraw(t, r);
            continue;
        }
        if (t->known == known && kept == r->first) {
            kept += r->count;
            continue;
        }
        kept = request_keep(desk, r, kept);
        end_raise(desk, r, end);
    }
    desk->n = kept;
}

void dedup_begin(struct desk *desk, struct produce *requests, size_t n, uint64_t *end)
{
    struct dedup *d = desk->broker->dedup;
    struct turn t = {.desk = desk, .requests = requests, .d = d};
    if (desk->by_property)
        properties_look(desk, requests, n);
    room_enter_soon(&d->room); /* it is held over the append, so as long as the tail's key */
    d->now_ms = dedup_now_ms(desk->broker);
    dedup_age(d, d->now_ms);
    enum err full = dedup_table_reserve(&d->table, desk->n);
    t.since = d->table.next;
    dedup_mark(d, d->now_ms);
    desk->n_noted = desk->n;
    turn_look(&t, n, full, end);
    desk->all_new = desk->n == desk->n_noted && d->table.next - t.since == desk->n;
}

/* ---- a turn: after the log ---- */

/* Nothing was stored, so nothing is remembered. */
static void turn_undo(struct desk *desk, struct dedup *d)
{
    for (size_t i = desk->n_noted; i-- > 0;)
        if (desk->notes[i].number)
            dedup_table_take_back(&d->table, desk->hashes[i]);
}

/* The answers stand without gaps behind each other: each goes to its message, from behind. */
static void answers_spread(struct desk *desk, const struct produce *requests, size_t n, bool stored)
{
    size_t from = desk->n;
    for (size_t k = n; k-- > 0;) {
        const struct produce *r = &requests[k];
        for (size_t i = r->first + r->count; !r->err && i-- > r->first;) {
            const struct dedup_note *note = &desk->notes[i];
            if (note->fate == NOTE_KNOWN)
                desk->stored[i] = desk->firsts[i];
            else if (note->fate == NOTE_NEW && stored && --from != i)
                desk->stored[i] = desk->stored[from];
        }
    }
    invariant(!stored || from == 0);
}

static void position_learn(struct dedup *d, uint64_t number, const struct stored *stored)
{
    if (stored->err)
        dedup_table_void(&d->table, number);
    else
        dedup_table_set(&d->table, number, (uint64_t)stored->position);
}

/* New ones are remembered; the others are counted, and answered as the first one was. */
static void request_end(struct desk *desk, struct dedup *d, struct produce *r, bool stored)
{
    for (size_t i = r->first; i < r->first + r->count; i++) {
        struct dedup_note *note = &desk->notes[i];
        if (note->fate == NOTE_NEW) {
            note->queue_id = r->stored_queue_id;
            if (stored && note->number)
                position_learn(d, note->number, &desk->stored[i]);
            continue;
        }
        if (note->fate == NOTE_TWIN) {
            if (!stored)
                continue;
            desk->stored[i] = desk->stored[note->twin];
            note->queue_id = desk->notes[note->twin].queue_id;
        }
        r->known += !desk->stored[i].err;
    }
    r->stored_queue_id = desk->notes[r->first].queue_id;
    d->duplicates += r->known;
}

static void turn_end(struct desk *desk, struct dedup *d, struct produce *requests, size_t n,
                     enum err err)
{
    answers_spread(desk, requests, n, !err);
    if (err)
        turn_undo(desk, d);
    for (size_t i = 0; i < n; i++)
        if (!requests[i].err && requests[i].dedup)
            request_end(desk, d, &requests[i], !err);
}

void dedup_end(struct desk *desk, struct produce *requests, size_t n, enum err err)
{
    struct broker *b = desk->broker;
    struct dedup *d = b->dedup;
    room_held(&d->room);
    if (desk->all_new && !err) { /* nearly always: then every answer has its place already */
        uint64_t since = d->table.next - desk->n;
        for (size_t i = 0; i < desk->n; i++)
            position_learn(d, since + i, &desk->stored[i]);
    } else {
        turn_end(desk, d, requests, n, err);
    }
    struct fault warning;
    bool warn = dedup_fit(d, d->now_ms, &warning);
    dedup_hint_show(&d->hint, &d->table);
    room_leave(&d->room);
    if (warn && b->out && b->out->warn)
        b->out->warn(b->out->user, warning.text);
}

/* ---- time and space ---- */

int64_t dedup_now_ms(struct broker *b)
{
    return (int64_t)(clock_ns(b->clock) / 1000000);
}

/* Slots from a mark up to the next came within a tick. */
void dedup_mark(struct dedup *d, int64_t now_ms)
{
    if (d->n_marks > 0 && now_ms - d->marks[d->n_marks - 1].ms < d->tick_ms)
        return;
    invariant(d->n_marks < DEDUP_MARKS); /* dedup_age keeps those of a window and a tick */
    d->marks[d->n_marks++] = (struct dedup_mark){now_ms, d->table.next};
}

void dedup_age(struct dedup *d, int64_t now_ms)
{
    size_t old = 0;
    while (old < d->n_marks && now_ms - d->marks[old].ms >= d->window_ms + d->tick_ms)
        old++;
    if (old == 0)
        return;
    d->n_marks -= old;
    memmove(d->marks, d->marks + old, d->n_marks * sizeof *d->marks);
    dedup_table_forget(&d->table, d->n_marks > 0 ? d->marks[0].number : d->table.next);
}

/* How long ago the oldest one came, about. */
static int64_t oldest_ms(const struct dedup *d, int64_t now_ms)
{
    size_t i = 0;
    while (i + 1 < d->n_marks && d->marks[i + 1].number <= d->table.first)
        i++;
    return d->n_marks ? now_ms - d->marks[i].ms : 0;
}

bool dedup_fit(struct dedup *d, int64_t now_ms, struct fault *warning)
{
    uint64_t n = dedup_table_count(&d->table);
    if (n > d->max_keys) {
        d->displaced += n - d->max_keys;
        dedup_table_forget(&d->table, d->table.next - d->max_keys);
    }
    dedup_table_tend(&d->table, TEND_STEPS);
    if (d->displaced == d->displaced_told ||
        (d->displaced_told && now_ms - d->warned_ms < WARN_PAUSE_MS))
        return false;
    (void)fault_set(warning, ERR_BUSY,
                    "%llu keys of messages were forgotten before their time, so duplicates may be "
                    "stored: dedupMaxKeys=%llu are enough for the last %lld s, "
                    "dedupWindowSeconds=%lld",
                    (unsigned long long)(d->displaced - d->displaced_told),
                    (unsigned long long)d->max_keys, (long long)(oldest_ms(d, now_ms) / 1000),
                    (long long)(d->window_ms / 1000));
    d->displaced_told = d->displaced;
    d->warned_ms = now_ms;
    return true;
}

void broker_dedup_turn(struct broker *b)
{
    struct dedup *d = b->dedup;
    if (!atomic_load_explicit(&b->dedup_used, memory_order_relaxed))
        return;
    room_enter(&d->room);
    dedup_age(d, dedup_now_ms(b));
    dedup_table_tend(&d->table, TEND_STEPS);
    dedup_hint_show(&d->hint, &d->table);
    size_t full = dedup_table_full(&d->table);
    void *heads = d->table.heads;
    room_leave(&d->room);
    if (full > d->firm)
        reserve_firm(heads, d->firm, full); /* they stay where they are, so without the room */
    d->firm = full;
}

void dedup_numbers(struct broker *b, struct broker_numbers *out)
{
    struct dedup *d = b->dedup;
    room_enter(&d->room);
    out->duplicates = d->duplicates;
    out->keys = dedup_table_count(&d->table);
    out->keys_bytes = d->table.bytes;
    out->keys_displaced = d->displaced;
    room_leave(&d->room);
}
