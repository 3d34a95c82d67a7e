/* recall.c - a message that waits for its time is taken back.
 *
 * Who sends a timed message gets a handle for it: text that names the topic, the broker, the time
 * and the message. A recall stores a record of its own in the queue of timed messages, which gets a
 * unit in the same slot and says which message shall not come (TIMER_DEL_UNIQKEY). That record is
 * what lasts, also over a crash.
 *
 * Whether a recall came in time is decided in a room that deliveries enter as well. A recall looks
 * at the clock there, and stores its record and notes its key before it leaves; a delivery of
 * messages that are due leaves out those whose key it finds. So a recall that was accepted while
 * the message was not yet due is seen by the delivery, whichever way its record takes to the slot.
 *
 *     noted, fresh ──its record was taken──> far: forgotten here, its unit tells when the slot is
 * near └──> near: kept until the slot is over
 *
 * Witness for handle, record and refusals: RecallMessageProcessor and RecallMessageHandle of 5.5.0.
 */
#include "base/base64.h"
#include "broker/timer_int.h"

#include "base/crc32.h"

#include <stdio.h>
#include <stdlib.h>

#define KEY_MOST  1024
#define TEXT_MOST 4096
#define LATE_S    600

/* ---- handles ---- */

size_t broker_recall_handle(const struct broker *b, struct bytes topic, int64_t due_ms,
                            struct bytes uniq_key, char out[RECALL_HANDLE_MAX])
{
    char text[RECALL_HANDLE_MAX / 4 * 3];
    /* One more than TIMER_OUT_MS says, as Apache does it: then it goes to the same slot again. */
    int n = snprintf(text, sizeof text, "v1 %.*s %s %lld %.*s", BYTES_ARG(topic), b->set.name,
                     (long long)timer_time(due_ms) + 1, BYTES_ARG(uniq_key));
    if (n < 0 || (size_t)n >= sizeof text)
        return 0;
    return base64_write(BASE64_URL, bytes_of(text, (size_t)n), out);
}

struct recall_handle {
    struct bytes topic, broker, uniq_key;
    int64_t due_ms;
    uint8_t text[RECALL_HANDLE_MAX];
};

static bool recall_read(struct bytes in, struct recall_handle *out)
{
    size_t n;
    if (in.len == 0 || in.len > sizeof out->text || !base64_read(BASE64_URL, in, out->text, &n))
        return false;
    struct bytes parts[5];
    size_t count = 0, from = 0;
    for (size_t i = 0; i <= n && count < 5; i++) {
        if (i < n && out->text[i] != ' ')
            continue;
        parts[count++] = bytes_of(out->text + from, i - from);
        from = i + 1;
    }
    if (count < 5 || !bytes_equal(parts[0], BYTES("v1")) || parts[4].len == 0)
        return false;
    out->topic = parts[1];
    out->broker = parts[2];
    out->uniq_key = parts[4];
    if (!bytes_to_i64(parts[3], &out->due_ms))
        out->due_ms = -1; /* it is not in the future, then */
    for (size_t i = 0; i < parts[4].len; i++)
        if (parts[4].at[i] < ' ')
            return false; /* it would end a property */
    return true;
}

/* ---- what is recalled ---- */

static bool key_make(struct bytes topic, struct bytes uniq_key, char out[KEY_MOST], size_t *len)
{
    if (topic.len + 1 + uniq_key.len > KEY_MOST)
        return false;
    struct wr w = wr_over(out, KEY_MOST);
    wr_bytes_of(&w, topic);
    wr_u8(&w, '+');
    wr_bytes_of(&w, uniq_key);
    *len = wr_len(&w);
    return true;
}

/* Room: recall. */
static enum err entry_need(struct timers *t, struct bytes key, struct recall_entry **out)
{
    room_held(&t->room);
    *out = map_get(&t->recalls, key);
    if (*out)
        return OK;
    struct recall_entry *entry = malloc(sizeof *entry + key.len);
    if (!entry)
        return ERR_NO_MEMORY;
    *entry = (struct recall_entry){.fresh = -1, .len = key.len};
    memcpy(entry->key, key.at, key.len);
    enum err err = map_put(&t->recalls, bytes_of(entry->key, entry->len), entry);
    if (err)
        free(entry);
    else
        *out = entry;
    return err;
}

/* Room: recall. */
static void entry_remove(struct timers *t, struct bytes key)
{
    room_held(&t->room);
    free(map_remove(&t->recalls, key));
}

/* Room: recall. Nobody needs an entry that nothing says any more. */
static void entry_settle(struct timers *t, struct recall_entry *entry)
{
    if (entry && !entry->near && entry->fresh < 0)
        entry_remove(t, bytes_of(entry->key, entry->len));
}

/* What a record of the queue recalls. Apache names the message with its topic in front or without,
 * as it is set (appendTopicForTimerDeleteKey). */
static bool record_key(const struct record *record, char out[KEY_MOST], size_t *len)
{
    struct bytes topic, key;
    if (!props_get(record->props, PROP_REAL_TOPIC, &topic) ||
        !props_get(record->props, PROP_TIMER_DELETE, &key))
        return false;
    if (key.len > topic.len && bytes_start(key, topic) && key.at[topic.len] == '+')
        key = bytes_from(key, topic.len + 1);
    return key_make(topic, key, out, len);
}

/* One that is late is kept a while longer: what it recalls may be late as well, have to be put in
 * again, and so come into a later slot. */
enum err recall_note(struct broker *b, const struct record *record, int64_t second, bool near)
{
    struct timers *t = b->timer;
    int64_t now = clock_ms(b->clock) / TIMER_SECOND;
    if (second < now)
        second = now + LATE_S;
    char text[KEY_MOST];
    size_t len;
    if (!record_key(record, text, &len))
        return OK; /* it names nothing that could be */
    struct bytes key = bytes_of(text, len);
    enum err err = OK;
    room_enter(&t->room);
    struct recall_entry *entry = map_get(&t->recalls, key);
    if (near && !entry)
        err = entry_need(t, key, &entry);
    if (entry && record->position >= entry->fresh)
        entry->fresh = -1;
    if (entry && near) {
        entry->second = entry->near && entry->second > second ? entry->second : second;
        entry->near = true;
    }
    entry_settle(t, entry);
    room_leave(&t->room);
    return err;
}

bool recall_hits(struct timers *t, const struct record *record)
{
    room_held(&t->room);
    char text[KEY_MOST];
    size_t len;
    struct bytes topic, uniq_key;
    return props_get(record->props, PROP_REAL_TOPIC, &topic) &&
           props_get(record->props, PROP_UNIQ_KEY, &uniq_key) &&
           key_make(topic, uniq_key, text, &len) && map_get(&t->recalls, bytes_of(text, len));
}

void recalls_sweep(struct timers *t, int64_t second)
{
    struct recall_entry *over[64], *entry;
    size_t n;
    room_enter(&t->room);
    do {
        n = 0;
        for (size_t i = 0; n < 64 && (entry = map_next(&t->recalls, &i));)
            if (entry->near && entry->second < second)
                over[n++] = entry;
        for (size_t k = 0; k < n; k++) {
            over[k]->near = false;
            entry_settle(t, over[k]);
        }
    } while (n == 64);
    room_leave(&t->room);
}

void recalls_clear(struct timers *t)
{
    struct recall_entry *entry;
    for (size_t i = 0; (entry = map_next(&t->recalls, &i));)
        free(entry);
    map_clear(&t->recalls);
}

/* ---- the verb ---- */

/* Room: core. */
static enum err recall_allowed(struct broker *b, const struct recall *recall, struct fault *why)
{
    room_held(&b->room);
    if (!(b->set.perm & PERM_WRITE))
        return fault_set(why, ERR_READ_ONLY, "recall failed, broker service not available");
    if (!topic_find(b, recall->topic))
        return fault_set(why, ERR_UNKNOWN_TOPIC, "recall failed, the topic[%.*s] not exist",
                         BRIEF(recall->topic));
    return OK;
}

static enum err recall_check(struct broker *b, const struct recall *recall,
                             struct recall_handle *handle, struct fault *why)
{
    char key[KEY_MOST];
    size_t len;
    if (!recall_read(recall->handle, handle) ||
        !key_make(handle->topic, handle->uniq_key, key, &len))
        return fault_set(why, ERR_INVALID, "recall handle is invalid");
    if (!bytes_equal(handle->topic, recall->topic))
        return fault_set(why, ERR_INVALID, "recall failed, topic not match");
    if (!bytes_equal(handle->broker, bytes_str(b->set.name)))
        return fault_set(why, ERR_INVALID, "recall failed, broker service not available");
    return OK;
}

static void recall_props(const struct recall *recall, const struct recall_handle *handle,
                         int64_t now_ms, struct wr *w)
{
    props_add(w, PROP_TAGS, BYTES("_RECALL_TAG_"));
    props_add(w, PROP_TIMER_DELETE, handle->uniq_key);
    props_add(w, PROP_UNIQ_KEY, handle->uniq_key);
    props_add_int(w, PROP_TIMER_DELIVER, handle->due_ms);
    props_add_int(w, BYTES("BORN_TIMESTAMP"), now_ms);
    props_add(w, BYTES("PGROUP"), recall->group);
}

/* After a crash, and a clock that went back as well, nobody remembers that the message has come;
 * but then its key is in its topic. */
static bool has_come(struct broker *b, const struct recall_handle *handle)
{
    struct store_query query = {.topic = handle->topic,
                                .key = handle->uniq_key,
                                .max = STORE_QUERY_MAX,
                                .end_ms = INT64_MAX};
    struct store_found found;
    bool come = false;
    if (atomic_load(&b->timer->doubt_position) == 0 || store_query(b->store, &query, &found))
        return false;
    for (size_t i = 0; !come && i < found.n; i++) {
        struct slice slice;
        struct record record;
        struct bytes key;
        if (store_read_at(b->store, found.positions[i], &slice))
            continue;
        come = !record_decode(slice.bytes, &record) && bytes_equal(record.topic, handle->topic) &&
               props_get(record.props, PROP_UNIQ_KEY, &key) && bytes_equal(key, handle->uniq_key);
        counted_drop(slice.owner);
    }
    return come;
}

/* Room: recall. Stores the record and notes the key, or neither. */
static enum err recall_store(struct broker *b, const struct recall_handle *handle,
                             struct draft *draft, uint64_t *end, struct fault *why)
{
    struct timers *t = b->timer;
    room_held(&t->room);
    int64_t now_ms = clock_ms(b->clock), left_ms = handle->due_ms - now_ms;
    if (handle->due_ms <= now_ms || handle->due_ms <= t->passed_ms ||
        left_ms >= b->set.timer_max_s * 1000)
        return fault_set(why, ERR_INVALID, "recall failed, timestamp invalid");
    if (t->recalls.n >= RECALLS_MAX)
        return fault_set(why, ERR_BUSY, "recall failed, too many at once");
    char text[KEY_MOST];
    size_t len;
    bool fits = key_make(handle->topic, handle->uniq_key, text, &len);
    invariant(fits); /* handle_check */
    struct bytes key = bytes_of(text, len);
    struct recall_entry *entry;
    enum err err = entry_need(t, key, &entry);
    if (err)
        return err;
    struct stored stored = {0};
    err = store_append(b->store, draft, 1, &stored, end);
    if (!err)
        err = stored.err;
    if (!err) {
        entry->fresh = stored.position;
        t->recall_end = *end;
        return OK;
    }
    entry_settle(t, entry);
    return fault_set(why, err, "recall failed, execute error: %s", err_text(err));
}

enum err broker_recall(struct broker *b, const struct recall *recall, struct recalled *out,
                       struct fault *why)
{
    if (!b->set.recalls)
        return fault_set(why, ERR_DENIED, "recall failed, operation is forbidden");
    room_enter(&b->room);
    enum err err = recall_allowed(b, recall, why);
    room_leave(&b->room);
    struct recall_handle handle;
    if (!err)
        err = recall_check(b, recall, &handle, why);
    if (!err && !b->set.timers)
        err =
            fault_set(why, ERR_UNSUPPORTED, "recall failed, execute error: timerWheelEnable=false");
    if (!err && has_come(b, &handle))
        err = fault_set(why, ERR_INVALID, "recall failed, timestamp invalid");
    if (err)
        return err;
    uint8_t text[TEXT_MOST];
    struct wr props = wr_over(text, sizeof text);
    struct draft draft = {
        .topic = handle.topic,
        .body = BYTES("0"),
        .body_crc = crc32_positive(BYTES("0")),
        .born_ms = clock_ms(b->clock),
        .born_host = recall->born_host,
        .store_host = b->set.host,
    };
    recall_props(recall, &handle, draft.born_ms, &props);
    timers_divert(b, &draft, handle.due_ms, &props);
    if (!draft.queue || props.full)
        return fault_set(why, draft.queue ? ERR_INVALID : ERR_NO_MEMORY,
                         "recall failed, execute error");
    draft.props = wr_bytes(&props);
    room_enter(&b->timer->room);
    err = recall_store(b, &handle, &draft, &out->end, why);
    room_leave(&b->timer->room);
    if (err)
        return err;
    out->uniq_key_len =
        handle.uniq_key.len < sizeof out->uniq_key ? handle.uniq_key.len : sizeof out->uniq_key;
    memcpy(out->uniq_key, handle.uniq_key.at, out->uniq_key_len);
    return OK;
}
