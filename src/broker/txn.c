/* txn.c - transactions: messages that are delivered if their producer says so. The table of those
 * that are open.
 *
 * A producer sends a *half*: a whole message that nobody sees yet. It is stored in
 * RMQ_SYS_TRANS_HALF_TOPIC instead of where it belongs. Then the producer does its own work and
 * says commit or rollback. If it says nothing, the broker asks; any producer of the same group may
 * answer, since the one that sent the half may be gone.
 *
 *     half queue   … [h5] [h6] [h7] [h6'] …    h6' is h6 once more: it was asked for
 *     op queue     … "5,"  "6,"  …             5 has ended, 6 has a newer copy: 7 and 6' are open
 *
 * What is open is a matter of these two queues alone, in Apache's form, so that either opens the
 * other's folder: a half that no op record names. Each end is one append of two records, the
 * message where it belongs and then the op record, so that a torn log has the first without the
 * second and never the reverse. Each question stores the half anew, with its number of questions,
 * and an op record for the copy before; so questions survive a restart, and the beginning of the
 * queue can be forgotten.
 *
 * A transaction is known by the position of its first copy, its *root*. Later copies carry it in
 * the record's field for a prepared position, as -1 - root, where Apache's have 0. So an end by an
 * old copy's position, which a slow producer may send when it has been asked meanwhile, ends this
 * transaction and not a second one; with Apache the message would then be delivered twice.
 *
 * The table has one entry, under 100 bytes, for each open transaction, and there is a limit
 * (maxOpenTransactions): beyond it halves are refused as long as nobody ends some. What is not in
 * it has ended. At the start it is made from the two queues. Then a half may look open that is not:
 * a torn log, or Apache's op records, which come seconds after the end. So for those that were
 * found at the start the index is asked for the message before they are ended or asked for. Without
 * an index such a message comes twice, as with Apache.
 *
 * An entry is made before its half is stored, so that there is no moment in which a stored half has
 * none. Whoever ends or asks *takes* the entry first, goes to the log without any key, and then
 * removes it or puts it back.
 *
 * Saved is (config/consumerOffset.json, group CID_RMQ_SYS_TRANS) how far both queues need not be
 * read again: the first open half, and an op record before which nothing concerns what is behind
 * that. A *tide* is such a pair: at some moment the two queues ended there, and a half that came
 * later ends later, too. The table of offsets must not be ahead of the disk, or a power loss would
 * make an end undone that nobody would do again; so what is saved is a mark that was set earlier,
 * when the log has been flushed beyond it.
 */
#include "broker/txn_int.h"

#include "base/crc32.h"

#include <stdlib.h>

#define READ_BYTES     (1u << 20)
#define INDEX_GRAIN_MS 1000
#define BUCKETS_START  64

/* ---- the table ---- */

static size_t bucket_of(const struct txn *t, int64_t root)
{
    uint64_t mixed = (uint64_t)root * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(mixed >> 32) & (t->n_buckets - 1);
}

struct half *half_find(struct txn *t, int64_t root)
{
    struct half *half = t->n_buckets ? t->buckets[bucket_of(t, root)] : NULL;
    while (half && half->root != root)
        half = half->next;
    return half;
}

static bool buckets_grow(struct txn *t)
{
    size_t n = t->n_buckets ? t->n_buckets * 2 : BUCKETS_START;
    struct half **old = t->buckets, **made = calloc(n, sizeof(struct half *));
    size_t n_old = t->n_buckets;
    if (!made)
        return false;
    t->buckets = made;
    t->n_buckets = n;
    for (size_t i = 0; i < n_old; i++) {
        for (struct half *half = old[i], *next; half; half = next) {
            struct half **bucket = &made[bucket_of(t, half->root)];
            next = half->next;
            half->next = *bucket;
            *bucket = half;
        }
    }
    free(old);
    return true;
}

enum err half_make(struct txn *t, struct half **out)
{
    if (t->n + t->expected >= t->n_buckets && !buckets_grow(t))
        return ERR_NO_MEMORY;
    *out = calloc(1, sizeof **out);
    return *out ? OK : ERR_NO_MEMORY;
}

/* New ones mostly have the highest offset; two loops that store at once are a few apart. */
static void half_sort(struct txn *t, struct half *half)
{
    struct link *after = t->by_offset.head.prev;
    while (
        after != &t->by_offset.head &&
        (after == &t->cursor || list_entry(after, struct half, by_offset)->offset > half->offset))
        after = after->prev;
    half->by_offset.prev = after;
    half->by_offset.next = after->next;
    after->next->prev = &half->by_offset;
    after->next = &half->by_offset;
    if (half->offset >= t->next)
        t->next = half->offset + 1;
}

void half_add(struct txn *t, struct half *half)
{
    struct half **bucket = &t->buckets[bucket_of(t, half->root)];
    half->next = *bucket;
    *bucket = half;
    half_sort(t, half);
    t->n++;
}

void half_place(struct txn *t, struct half *half, int64_t position, int64_t offset, int64_t now_ms)
{
    list_remove(&half->by_offset);
    half->position = position;
    half->offset = offset;
    half->copied_ms = now_ms;
    half_sort(t, half);
}

void half_end(struct txn *t, struct half *half)
{
    struct half **at = &t->buckets[bucket_of(t, half->root)];
    while (*at != half)
        at = &(*at)->next;
    *at = half->next;
    list_remove(&half->by_offset);
    t->n--;
    free(half);
}

/* ---- records ---- */

int64_t record_root(const struct record *record)
{
    return record->prepared_position < 0 ? -1 - record->prepared_position : record->position;
}

bool record_is_half(const struct record *record)
{
    return bytes_equal(record->topic, HALF_TOPIC) && record->queue_id == 0;
}

static int64_t number_of(const struct record *record, struct bytes name, int64_t max)
{
    struct bytes text;
    int64_t number;
    if (!props_get(record->props, name, &text) || !bytes_to_i64(text, &number) || number < 0)
        return 0;
    return number < max ? number : max;
}

/* A first copy is as old as it has been here: its birth is the producer's clock, which may be
 * wrong. A later one says only the birth. */
void half_read(const struct record *record, struct half *out)
{
    out->root = record_root(record);
    out->position = record->position;
    out->offset = record->queue_offset;
    out->copied_ms = record->store_ms;
    out->immunity_s = (uint32_t)number_of(record, PROP_IMMUNITY, UINT32_MAX);
    out->checks = (int32_t)number_of(record, PROP_CHECK_TIMES, INT32_MAX);
    bool first = out->root == record->position && out->checks == 0;
    out->first_ms =
        first || record->born_ms > record->store_ms ? record->store_ms : record->born_ms;
    out->first_ms = out->first_ms > 0 ? out->first_ms : 0;
}

int64_t half_immunity_ms(const struct broker *b, const struct half *half)
{
    int64_t own_ms = (int64_t)half->immunity_s * 1000;
    return own_ms > b->set.txn_timeout_ms ? own_ms : b->set.txn_timeout_ms;
}

bool ops_next(struct bytes *rest, int64_t *out)
{
    while (rest->len > 0) {
        const uint8_t *comma = memchr(rest->at, ',', rest->len);
        size_t len = comma ? (size_t)(comma - rest->at) : rest->len;
        struct bytes item = {rest->at, len};
        *rest = bytes_from(*rest, comma ? len + 1 : len);
        if (bytes_to_i64(item, out) && *out >= 0)
            return true;
    }
    return false;
}

void ops_add(struct wr *w, int64_t offset)
{
    wr_i64(w, offset);
    wr_u8(w, ',');
}

void op_draft(struct broker *b, struct bytes offsets, struct draft *out)
{
    *out = (struct draft){
        .queue = store_queue(b->store, OP_TOPIC, 0),
        .topic = OP_TOPIC,
        .body = offsets,
        .props = BYTES("TAGS\1d\2WAIT\1true\2"),
        .body_crc = crc32_positive(offsets),
        .born_ms = clock_ms(b->clock),
        .born_host = b->set.host,
        .store_host = b->set.host,
    };
}

static enum err draft_check(struct broker *b, const struct draft *draft, struct fault *why)
{
    if (!draft->queue)
        return fault_set(why, ERR_NO_MEMORY, "queue %d of topic[%.*s] cannot be opened",
                         draft->queue_id, BRIEF(draft->topic));
    if (!store_fits(b->store, draft))
        return fault_set(why, ERR_TOO_BIG,
                         "a half message for topic[%.*s] with %zu bytes is too big now "
                         "(maxMessageSize)",
                         BRIEF(draft->topic), draft->body.len);
    return OK;
}

/* Where a half belongs. */
static bool real_place(const struct record *half, struct bytes *topic, int32_t *queue_id)
{
    struct bytes text;
    return props_get(half->props, PROP_REAL_TOPIC, topic) &&
           props_get(half->props, PROP_REAL_QID, &text) && bytes_to_i32(text, queue_id) &&
           *queue_id >= 0 && *queue_id < QUEUES_MAX && !bytes_equal(*topic, HALF_TOPIC) &&
           !bytes_equal(*topic, SCHEDULE_TOPIC);
}

/* Witness: EndTransactionProcessor.endMessageTransaction, and what 5.5.0 was seen to store. */
enum err commit_draft(struct broker *b, const struct record *half, struct wr *props,
                      struct draft *out, struct fault *why)
{
    struct bytes topic;
    int32_t queue_id;
    if (!real_place(half, &topic, &queue_id))
        return fault_set(why, ERR_DAMAGED, "the half message does not say where it belongs");
    copy_draft(b, half, topic, queue_id, out);
    props_keep(props, half->props, 1u << KIND_REAL);
    out->props = wr_bytes(props);
    out->sys_flag = (out->sys_flag & ~SYS_TX_MASK) | SYS_TX_COMMIT;
    out->prepared_position = half->position;
    return draft_check(b, out, why);
}

enum err half_draft(struct broker *b, const struct record *half, struct bytes topic, int32_t checks,
                    struct wr *props, struct draft *out, struct fault *why)
{
    copy_draft(b, half, topic, 0, out);
    props_add_all_but(props, half->props, PROP_CHECK_TIMES);
    if (checks > 0)
        props_add_int(props, PROP_CHECK_TIMES, checks);
    out->prepared_position = -1 - record_root(half);
    enum err err = draft_props(out, props, why);
    return err ? err : draft_check(b, out, why);
}

/* By whichever copy it was committed, and by whichever broker. */
static bool is_commit_of(const struct record *found, const struct record *half,
                         const struct store_query *query)
{
    struct bytes key;
    return (found->sys_flag & SYS_TX_MASK) == SYS_TX_COMMIT &&
           bytes_equal(found->topic, query->topic) && found->born_ms == half->born_ms &&
           found->body_crc == half->body_crc && found->body.len == half->body.len &&
           props_get(found->props, PROP_UNIQ_KEY, &key) && bytes_equal(key, query->key);
}

bool half_committed(struct broker *b, const struct record *half)
{
    int32_t queue_id;
    bool first = record_root(half) == half->position && !number_of(half, PROP_CHECK_TIMES, 1);
    struct store_query query = {
        .max = STORE_QUERY_MAX,
        .begin_ms = first ? half->store_ms - INDEX_GRAIN_MS : 0,
        .end_ms = INT64_MAX,
    };
    struct store_found found;
    if (!real_place(half, &query.topic, &queue_id) ||
        !props_get(half->props, PROP_UNIQ_KEY, &query.key) || store_query(b->store, &query, &found))
        return false;
    bool there = false;
    for (size_t i = 0; !there && i < found.n; i++) {
        struct slice slice;
        struct record record;
        if (store_read_at(b->store, found.positions[i], &slice))
            continue;
        there = !record_decode(slice.bytes, &record) && is_commit_of(&record, half, &query);
        counted_drop(slice.owner);
    }
    return there;
}

void txn_stored(struct txn *t, const struct stored *op, uint64_t end)
{
    if (op->queue_offset >= t->next_op)
        t->next_op = op->queue_offset + 1;
    if (end > t->end)
        t->end = end;
}

/* ---- in ---- */

/* Room: core. */
enum err txn_divert(struct broker *b, struct produce *r, struct draft *draft, struct wr *props)
{
    room_held(&b->room);
    struct txn *t = b->txn;
    if (t->n + t->expected >= b->set.max_halves)
        return fault_set(&r->why, ERR_BUSY,
                         "the message was not stored: %zu transactions are open "
                         "(maxOpenTransactions); end some, and try again",
                         t->n + t->expected);
    enum err err = half_make(t, &r->half);
    if (err)
        return fault_set(&r->why, err, "no memory for another open transaction");
    if (t->expected++ == 0)
        t->expected_from = t->next;
    props_add(props, PROP_TXN_ID, bytes_str(r->uniq_key));
    props_add(props, PROP_REAL_TOPIC, draft->topic);
    props_add_int(props, PROP_REAL_QID, draft->queue_id);
    r->half->immunity_s = r->immunity_s;
    draft->topic = HALF_TOPIC;
    draft->queue_id = 0;
    draft->queue = store_queue(b->store, HALF_TOPIC, 0);
    return OK;
}

/* Room: core. */
void txn_arrived(struct broker *b, struct produce *r, const struct stored *stored)
{
    room_held(&b->room);
    struct txn *t = b->txn;
    struct half *half = take(&r->half);
    t->expected--;
    if (!stored) {
        free(half);
        return;
    }
    half->root = half->position = stored->position;
    half->offset = stored->queue_offset;
    half->first_ms = half->copied_ms = stored->store_ms;
    half_add(t, half);
}

/* ---- saving ---- */

int64_t half_of(const struct link *link)
{
    return list_entry(link, struct half, by_offset)->offset;
}

/* The first offset that has to be read again after a stop. */
static int64_t txn_floor(const struct txn *t)
{
    int64_t floor = t->expected ? t->expected_from : t->next;
    const struct link *first = t->by_offset.head.next;
    if (first == &t->cursor)
        first = first->next;
    if (first != &t->by_offset.head && half_of(first) < floor)
        floor = half_of(first);
    return floor;
}

/* Notes how far both queues have come. What has no entry yet cannot have ended, so its end comes
 * behind all ends that are known. */
static void tide_note(struct txn *t)
{
    struct tide now = {t->next, t->next_op};
    const struct tide *last = &t->tides[t->n_tides - 1];
    if (now.half == last->half && now.op == last->op)
        return;
    if (t->n_tides == TIDES) { /* every second one will do as well */
        for (size_t i = 1; i < TIDES / 2; i++)
            t->tides[i] = t->tides[i * 2];
        t->n_tides = TIDES / 2;
    }
    t->tides[t->n_tides++] = now;
}

/* The latest tide that is not behind the offset; earlier ones are not needed any more. */
static struct tide tide_at(struct txn *t, int64_t floor)
{
    size_t at = 0;
    while (at + 1 < t->n_tides && t->tides[at + 1].half <= floor)
        at++;
    memmove(t->tides, t->tides + at, (t->n_tides - at) * sizeof t->tides[0]);
    t->n_tides -= at;
    return (struct tide){floor, t->tides[0].op};
}

static void offset_save(struct broker *b, struct bytes topic, int64_t offset)
{
    struct commit commit = {.group = TXN_GROUP, .topic = topic, .offset = offset};
    if (offset <= 0 || progress_get(b, TXN_GROUP, topic, 0) == offset)
        return;
    enum err ignored = progress_set(b, &commit); /* no memory: the next one will do */
    (void)ignored;
}

/* Room: core. */
void txn_settle(struct broker *b)
{
    room_held(&b->room);
    struct txn *t = b->txn;
    tide_note(t);
    if (store_flushed(b->store) < t->mark_end)
        return;
    offset_save(b, HALF_TOPIC, t->mark.half);
    offset_save(b, OP_TOPIC, t->mark.op);
    t->mark = tide_at(t, txn_floor(t));
    t->mark_end = t->end;
}

bool txn_unsettled(const struct broker *b)
{
    return b->txn->end > 0;
}

void txn_settle_last(struct broker *b)
{
    room_enter(&b->room);
    txn_settle(b); /* the mark that was on its way … */
    txn_settle(b); /* … and what came after it */
    room_leave(&b->room);
}

void txn_numbers(const struct txn *t, struct broker_numbers *out)
{
    out->txn_open = t->n;
    out->txn_committed = t->committed;
    out->txn_rolled_back = t->rolled_back;
    out->txn_checks = t->checks;
    out->txn_given_up = t->given_up;
}

/* ---- opening and closing ---- */

/* The halves that were found to have ended, a bit each from the first offset on. */
struct ended {
    int64_t first, n;
    uint8_t *bits;
};

typedef enum err each_record(struct broker *b, const struct record *record, struct ended *ended);

/* Shows the records of a queue from an offset on. What cannot be read is passed over. */
static enum err queue_walk(struct broker *b, struct queue *queue, int64_t from, each_record *each,
                           struct ended *ended)
{
    enum err err = OK;
    while (!err && from < queue_max(queue)) {
        struct read_request request = {
            .offset = from, .max_count = READ_BYTES, .max_bytes = READ_BYTES};
        struct read_result read;
        store_read(b->store, queue, &request, &read);
        if (read.status != READ_FOUND)
            read.n_slices = 0;
        for (size_t i = 0; i < read.n_slices; i++) {
            struct bytes rest = read.slices[i].bytes;
            struct record record;
            while (!err && rest.len > 0 && record_decode(rest, &record) == OK) {
                rest = bytes_from(rest, record.size);
                err = each(b, &record, ended);
            }
            counted_drop(read.slices[i].owner);
        }
        if (!err && read.next <= from)
            err = ERR_IO; /* it is there, and cannot be read just now */
        from = read.next;
    }
    return err;
}

static enum err op_seen(struct broker *b, const struct record *record, struct ended *ended)
{
    (void)b;
    struct bytes rest = record->body, tag;
    if (!props_get(record->props, PROP_TAGS, &tag) || !bytes_equal(tag, BYTES("d")))
        return OK;
    for (int64_t offset; ops_next(&rest, &offset);)
        if (offset >= ended->first && offset - ended->first < ended->n)
            ended->bits[(offset - ended->first) / 8] |=
                (uint8_t)(1u << (offset - ended->first) % 8);
    return OK;
}

/* A birth by which it would be given up at once is not believed while the first copy is in the log,
 * which says since when it is here. */
static void half_age(struct broker *b, struct half *half)
{
    struct slice slice;
    struct record root;
    bool old = clock_ms(b->clock) - half->first_ms > b->set.reserved_ms;
    if (!old || half->root == half->position || store_read_at(b->store, half->root, &slice))
        return;
    if (!record_decode(slice.bytes, &root) && record_is_half(&root))
        half->first_ms = root.store_ms;
    counted_drop(slice.owner);
}

/* A later copy stands for its transaction, ended or open, whatever is said of earlier ones: the op
 * record that comes with it may have been torn off. */
static enum err half_seen(struct broker *b, const struct record *record, struct ended *ended)
{
    struct txn *t = b->txn;
    int64_t at = record->queue_offset - ended->first;
    bool over = at < 0 || at >= ended->n || ended->bits[at / 8] & 1u << at % 8;
    struct half *half = half_find(t, record_root(record));
    if (over && half)
        half_end(t, half);
    if (over)
        return OK;
    if (half) {
        half->checks = (int32_t)number_of(record, PROP_CHECK_TIMES, INT32_MAX);
        half_place(t, half, record->position, record->queue_offset, record->store_ms);
        return OK;
    }
    enum err err = half_make(t, &half);
    if (err)
        return err;
    half_read(record, half);
    half_age(b, half);
    half->maybe_ended = true;
    half_add(t, half);
    return OK;
}

static int64_t saved_offset(struct broker *b, struct bytes topic, struct queue *queue)
{
    int64_t saved = progress_get(b, TXN_GROUP, topic, 0);
    int64_t min = queue ? queue_min(b->store, queue) : 0, max = queue ? queue_max(queue) : 0;
    return saved < min ? min : saved > max ? max : saved;
}

/* Room: core, when the tables have been loaded. */
enum err txn_open(struct broker *b)
{
    room_held(&b->room);
    struct txn *t = calloc(1, sizeof *t);
    if (!t)
        return ERR_NO_MEMORY;
    b->txn = t;
    list_init(&t->by_offset);
    struct queue *halves = store_queue_find(b->store, HALF_TOPIC, 0);
    struct queue *ops = store_queue_find(b->store, OP_TOPIC, 0);
    struct tide saved = {saved_offset(b, HALF_TOPIC, halves), saved_offset(b, OP_TOPIC, ops)};
    t->tides[t->n_tides++] = t->mark = saved;
    t->next = halves ? queue_max(halves) : 0;
    t->next_op = ops ? queue_max(ops) : 0;
    t->next_round_ns = clock_ns(b->clock) + (uint64_t)b->set.txn_interval_ms * 1000000;
    if (saved.half == t->next)
        return OK;

    struct ended ended = {.first = saved.half, .n = t->next - saved.half};
    cleanup(free_at) uint8_t *bits = ended.bits = calloc(1, (size_t)ended.n / 8 + 1);
    if (!bits)
        return ERR_NO_MEMORY;
    enum err err = ops ? queue_walk(b, ops, saved.op, op_seen, &ended) : OK;
    return err ? err : queue_walk(b, halves, saved.half, half_seen, &ended);
}

void txn_free(struct txn *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_buckets; i++)
        for (struct half *half = t->buckets[i], *next; half; half = next) {
            next = half->next;
            free(half);
        }
    free(t->buckets);
    desk_close(t->desk);
    free(t);
}
