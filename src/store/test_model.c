#include "store/test_model.h"

#include "base/crc32.h"

#include <stdio.h>
#include <stdlib.h>

#define BLANK_SIZE  8
#define RECORD_BARE 91 /* with addresses of version 4, without body, topic and properties */
#define V6_MORE     12
#define PROPS_LIMIT 32767
#define SCAN_UNITS  800
#define ROUND_MS    10000
#define ROUND_FILES 10

/* ---- life ---- */

void model_init(struct model *m, uint64_t seed)
{
    static const uint64_t log_files[] = {4096, 5000, 8192, 16384, 65536};
    static const uint32_t records[] = {1500, 4000, 12000};
    static const int64_t reserved[] = {0, 5000, 30000, 600000};
    struct dice dice = dice_seeded(~seed);
    *m = (struct model){.seed = seed, .delays_ms = {1000, 7000, 20000}};
    m->log_file_size = log_files[dice_below(&dice, 5)];
    m->record_max = records[dice_below(&dice, 3)];
    m->sync_flush = dice_below(&dice, 2);
    m->n_in_topic = 2;
    m->n_queues = 2 + (size_t)dice_below(&dice, 9);
    if (dice_below(&dice, 16) == 0)
        m->n_queues = MODEL_QUEUES_MAX; /* more than a turn brings, and than are synced singly */
    m->reserved_ms = reserved[dice_below(&dice, 4)];
    m->any_hour = dice_below(&dice, 2);
    m->used = 50;
}

void model_clear(struct model *m)
{
    for (size_t i = 0; i < m->n_queues; i++)
        free(m->queues[i].at);
    free(m->log);
}

static void *grown(void *old, size_t n, size_t *cap, size_t one)
{
    if (n < *cap)
        return old;
    *cap = *cap * 2 + 64;
    void *bigger = realloc(old, *cap * one);
    invariant(bigger);
    return bigger;
}

/* ---- messages ---- */

struct bytes model_topic(const struct model *m, uint32_t queue, char out[160])
{
    unsigned topic = queue / (unsigned)m->n_in_topic;
    int len;
    if (topic == 0)
        len = snprintf(out, 160, "SCHEDULE_TOPIC_XXXX");
    else if (topic == 1) /* so long that its length takes two bytes */
        len = snprintf(out, 160, "%%RETRY%%%0130d", 1);
    else
        len = snprintf(out, 160, "topic-%u", topic);
    return bytes_of(out, (size_t)len);
}

int32_t model_queue_id(const struct model *m, uint32_t queue)
{
    return (int32_t)(queue % m->n_in_topic);
}

struct bytes model_key(uint64_t key, char out[32])
{
    return bytes_of(out, (size_t)snprintf(out, 32, "key%u", (unsigned)key));
}

/* What decides about everything in a message. */
static struct dice dice_of(const struct model *m, uint64_t number)
{
    struct dice dice = dice_seeded(m->seed * 0x9e3779b97f4a7c15u + number);
    (void)dice_next(&dice);
    return dice;
}

/* The fate of a message, before its bytes are made. */
struct plan {
    size_t body_len;
    int32_t kind;
    unsigned tag, level; /* 0: none */
    uint64_t keys[MODEL_KEYS_MAX];
    size_t n_keys; /* the first one is the UNIQ_KEY, if `unique` */
    bool unique, long_props, born_v6, store_v6;
};

static struct plan plan_of(const struct model *m, uint64_t number)
{
    static const int32_t kinds[] = {0, SYS_TX_PREPARED, SYS_TX_COMMIT, SYS_TX_ROLLBACK};
    struct dice dice = dice_of(m, number);
    struct plan p = {.body_len = (size_t)dice_below(&dice, 300)};
    uint64_t chance = dice_below(&dice, 120);
    if (chance == 0)
        p.body_len = m->record_max - 200 + (size_t)dice_below(&dice, 300); /* about the limit */
    else if (chance < 12)
        p.body_len = (size_t)dice_below(&dice, 3000);
    p.long_props = chance == 12;
    p.kind = kinds[dice_below(&dice, 4) ? 0 : dice_below(&dice, 4)];
    p.tag = (unsigned)dice_below(&dice, 5);
    p.level = (unsigned)dice_below(&dice, MODEL_DELAYS + 2); /* the last is above the ladder */
    p.n_keys = (size_t)dice_below(&dice, MODEL_KEYS_MAX + 1);
    for (size_t i = 0; i < p.n_keys; i++)
        p.keys[i] = dice_below(&dice, MODEL_KEYS);
    p.unique = dice_below(&dice, 2);
    p.born_v6 = dice_below(&dice, 5) == 0;
    p.store_v6 = dice_below(&dice, 5) == 0;
    return p;
}

static struct bytes props_of(const struct plan *p, char out[MODEL_PROPS_MAX])
{
    char key[32];
    struct wr w = wr_over(out, MODEL_PROPS_MAX);
    if (p->tag) {
        char tag = (char)('0' + p->tag);
        props_add(&w, PROP_TAGS, bytes_of(&tag, 1));
    }
    if (p->level) {
        char level = (char)('0' + p->level);
        props_add(&w, PROP_DELAY, bytes_of(&level, 1));
    }
    size_t first = p->unique && p->n_keys ? 1 : 0;
    if (first)
        props_add(&w, PROP_UNIQ_KEY, model_key(p->keys[0], key));
    if (p->n_keys > first) {
        char words[MODEL_KEYS_MAX * 32];
        struct wr words_wr = wr_over(words, sizeof words);
        for (size_t i = first; i < p->n_keys; i++) {
            wr_bytes_of(&words_wr, model_key(p->keys[i], key));
            wr_u8(&words_wr, ' ');
        }
        props_add(&w, PROP_KEYS, wr_bytes(&words_wr));
    }
    if (p->long_props) {
        static char filling[PROPS_LIMIT];
        memset(filling, 'x', sizeof filling);
        props_add(&w, BYTES("filling"), bytes_of(filling, sizeof filling));
    }
    return wr_bytes(&w);
}

struct draft model_draft(const struct model *m, uint64_t number, uint32_t queue,
                         struct model_room *room)
{
    struct plan p = plan_of(m, number);
    struct dice dice = dice_of(m, ~number);
    for (size_t i = 0; i < p.body_len; i++)
        room->body[i] = (uint8_t)(dice.state >> (i % 8 * 8)) ^ (uint8_t)(i >> 3);
    struct draft d = {
        .topic = model_topic(m, queue, room->topic),
        .queue_id = model_queue_id(m, queue),
        .flag = (int32_t)number,
        .sys_flag = p.kind,
        .reconsume_times = (int32_t)(number % 7),
        .born_ms = 1600000000000 + (int64_t)number,
        .prepared_position = (int64_t)number * 3,
        .born_host = {.ip = {10, 0, 0, 1}, .ip_len = p.born_v6 ? 16 : 4, .port = 1234},
        .store_host = {.ip = {10, 0, 0, 2}, .ip_len = p.store_v6 ? 16 : 4, .port = 10911},
        .body = bytes_of(room->body, p.body_len),
    };
    d.props = props_of(&p, room->props);
    d.body_crc = crc32_positive(d.body);
    struct marks marks = props_marks(d.props);
    struct key_topic topic = {0};
    if (number % 5 < 4 && (p.kind & SYS_TX_MASK) == 0 && marks.delay.len == 0)
        draft_marks_of(&topic, d.topic, &marks, &d.marks);
    return d;
}

/* Java's hash of a text in ASCII, going on from `hash`. */
static uint32_t java_hash(uint32_t hash, struct bytes text)
{
    for (size_t i = 0; i < text.len; i++)
        hash = hash * 31 + text.at[i];
    return hash;
}

static uint32_t key_hash(struct bytes topic, struct bytes key)
{
    uint32_t hash = java_hash(java_hash(java_hash(0, topic), BYTES("#")), key);
    int64_t with_sign = (int32_t)hash;
    return (uint32_t)(with_sign < 0 ? -with_sign : with_sign) & INT32_MAX;
}

static bool in_queue(int32_t sys_flag)
{
    int32_t kind = sys_flag & SYS_TX_MASK;
    return kind == 0 || kind == SYS_TX_COMMIT;
}

/* What follows from the number, the queue and the time of a message. */
static void entry_derive(const struct model *m, struct model_entry *e)
{
    char topic[160], key[32];
    struct plan p = plan_of(m, e->number);
    struct bytes name = model_topic(m, e->queue, topic);
    e->tags = p.tag ? '0' + (int64_t)p.tag : 0;
    if (e->queue < m->n_in_topic && p.level)
        e->tags = e->store_ms + m->delays_ms[p.level > MODEL_DELAYS ? 2 : p.level - 1];
    e->n_hashes = p.kind == SYS_TX_ROLLBACK ? 0 : p.n_keys;
    for (size_t i = 0; i < e->n_hashes; i++)
        e->hashes[i] = key_hash(name, model_key(p.keys[i], key));
}

/* ---- storing ---- */

static uint64_t size_of(const struct draft *d)
{
    if (d->props.len > PROPS_LIMIT)
        return UINT32_MAX; /* not at all */
    return RECORD_BARE + d->body.len + d->topic.len + d->props.len + (d->topic.len > 127 ? 1 : 0) +
           (d->born_host.ip_len == 16 ? V6_MORE : 0) + (d->store_host.ip_len == 16 ? V6_MORE : 0);
}

static void entry_add(struct model *m, const struct draft *d, uint32_t queue, uint64_t number,
                      struct stored *out)
{
    struct model_queue *q = &m->queues[queue];
    struct model_entry e = {.number = number, .queue = queue, .size = (uint32_t)size_of(d)};
    e.position = (int64_t)m->written;
    e.store_ms = m->last_ms;
    entry_derive(m, &e);
    if (in_queue(d->sys_flag)) {
        size_t cap = (size_t)q->cap;
        q->at = grown(q->at, (size_t)q->n, &cap, sizeof *q->at);
        q->cap = (int64_t)cap;
        q->at[q->n] = (uint32_t)m->n;
        e.offset = q->n++;
    }
    m->log = grown(m->log, m->n, &m->cap, sizeof *m->log);
    m->log[m->n++] = e;
    m->written += e.size;
    *out = (struct stored){OK, e.position, e.offset, e.store_ms, e.size};
}

/* Drafts that are tied together; they have the numbers from `number` on. */
static void chain_add(struct model *m, const struct draft *drafts, const uint32_t *queues, size_t n,
                      uint64_t number, struct stored *out)
{
    uint64_t size = 0, limit = m->log_file_size - BLANK_SIZE;
    for (size_t i = 0; i < n; i++)
        size += size_of(&drafts[i]);
    if (size > limit || size > m->record_max) {
        for (size_t i = 0; i < n; i++)
            out[i] = (struct stored){.err = ERR_TOO_BIG};
        return;
    }
    uint64_t left = m->log_file_size - m->written % m->log_file_size;
    if (size + BLANK_SIZE > left)
        m->written += left;
    for (size_t i = 0; i < n; i++)
        entry_add(m, &drafts[i], queues[i], number + i, &out[i]);
}

void model_append(struct model *m, const struct draft *drafts, const uint32_t *queues, size_t n,
                  int64_t now_ms, struct stored *out)
{
    int64_t before_ms = m->last_ms;
    size_t before = m->n;
    m->last_ms = now_ms > m->last_ms ? now_ms : m->last_ms;
    for (size_t i = 0, count; i < n; i += count) {
        for (count = 1; drafts[i + count - 1].with_next && i + count < n;)
            count++;
        chain_add(m, drafts + i, queues + i, count, m->next_number + i, out + i);
    }
    m->next_number += n;
    if (m->n == before)
        m->last_ms = before_ms;
    if (!m->sync_flush)
        m->confirmed = m->written;
}

uint64_t model_dispatch(struct model *m)
{
    uint64_t news = 0;
    m->dispatched = m->confirmed;
    for (size_t i = 0; i < m->n_queues; i++) {
        struct model_queue *q = &m->queues[i];
        while (q->max < q->n && m->log[q->at[q->max]].position < (int64_t)m->dispatched) {
            q->max++;
            news++;
        }
    }
    return news;
}

static void minima_raise(struct model *m)
{
    for (size_t i = 0; i < m->n_queues; i++) {
        struct model_queue *q = &m->queues[i];
        while (q->min < q->max && m->log[q->at[q->min]].position < (int64_t)m->first)
            q->min++;
    }
}

void model_reopen(struct model *m, int64_t mono_ms)
{
    m->flushed = m->confirmed = m->written;
    (void)model_dispatch(m);
    m->round = mono_ms;
    m->manual = 0;
    m->full = false;
}

/* ---- retention ---- */

static int64_t time_from(const struct model *m, uint64_t position)
{
    size_t i = 0;
    while (i < m->n && m->log[i].position < (int64_t)position)
        i++;
    return i < m->n ? m->log[i].store_ms : m->last_ms;
}

void model_clean(struct model *m, int64_t now_ms, int64_t mono_ms)
{
    if (mono_ms - m->round < ROUND_MS)
        return;
    m->round = mono_ms;
    m->full = m->used > 90 || (m->full && m->used > 85);
    bool manual = m->manual > 0, at_once = m->used > 85;
    m->manual -= manual;
    if (!manual && !m->any_hour && m->used <= 75)
        return;
    for (int files = 0; files < ROUND_FILES; files++) {
        uint64_t end = m->first + m->log_file_size;
        if (end > m->flushed || end > m->dispatched)
            break;
        if (!at_once && time_from(m, end) + m->reserved_ms >= now_ms)
            break;
        m->first = end;
    }
    minima_raise(m);
}

/* ---- asking ---- */

/* False: the answer is over. */
static bool read_take(const struct model *m, const struct model_entry *e,
                      const struct read_request *request, struct read_result *out, int64_t *end)
{
    uint64_t last_file = ((uint64_t)*end - 1) / m->log_file_size;
    bool joined =
        out->count > 0 && *end == e->position && last_file == (uint64_t)*end / m->log_file_size;
    if (out->count >= request->max_count ||
        (out->count > 0 && out->size + e->size > request->max_bytes) ||
        (!joined && out->n_slices == READ_SLICES_MAX))
        return false;
    out->n_slices += !joined;
    out->count++;
    out->size += e->size;
    *end = e->position + e->size;
    return true;
}

void model_read(const struct model *m, uint32_t queue, const struct read_request *request,
                struct read_result *out, uint32_t *picked)
{
    const struct model_queue *q = &m->queues[queue];
    int64_t at = request->offset, end = 0;
    int64_t scan = request->max_count > SCAN_UNITS ? request->max_count : SCAN_UNITS;
    out->min = q->min;
    out->max = q->max;
    out->count = 0;
    out->size = 0;
    out->n_slices = 0;
    out->status = READ_NONE_MATCHED;
    if (q->max == 0)
        out->status = READ_EMPTY, at = 0;
    else if (at < q->min)
        out->status = READ_TOO_SMALL, at = q->min;
    else if (at == q->max)
        out->status = READ_AT_END;
    else if (at > q->max)
        out->status = READ_TOO_LARGE, at = q->max;
    for (; out->status == READ_NONE_MATCHED && at < q->max && at - request->offset < scan; at++) {
        const struct model_entry *e = &m->log[q->at[at]];
        if (request->wants && !request->wants(request->user, e->tags))
            continue;
        if (!read_take(m, e, request, out, &end))
            break;
        picked[out->count - 1] = q->at[at];
    }
    out->next = at;
    if (out->count > 0)
        out->status = READ_FOUND;
}

int64_t model_store_time(const struct model *m, uint32_t queue, int64_t offset)
{
    const struct model_queue *q = &m->queues[queue];
    return offset < q->min || offset >= q->max ? -1 : m->log[q->at[offset]].store_ms;
}

int64_t model_search_time(const struct model *m, uint32_t queue, int64_t ts)
{
    const struct model_queue *q = &m->queues[queue];
    int64_t at = q->min;
    while (at < q->max && m->log[q->at[at]].store_ms < ts)
        at++;
    return at;
}

size_t model_query(const struct model *m, struct bytes topic, struct bytes key, int64_t begin_ms,
                   int64_t end_ms, size_t max, int64_t *out)
{
    uint32_t hash = key_hash(topic, key);
    size_t n = 0;
    for (size_t i = m->n; i-- > 0 && m->log[i].position >= (int64_t)m->first;) {
        const struct model_entry *e = &m->log[i];
        if (e->position >= (int64_t)m->dispatched || e->store_ms < begin_ms || e->store_ms > end_ms)
            continue;
        for (size_t k = 0; k < e->n_hashes; k++)
            if (e->hashes[k] == hash && n < max)
                out[n++] = e->position;
    }
    for (size_t i = 0; i < n / 2; i++) {
        int64_t swapped = out[i];
        out[i] = out[n - 1 - i];
        out[n - 1 - i] = swapped;
    }
    return n;
}

const struct model_entry *model_at(const struct model *m, int64_t position)
{
    if (position < (int64_t)m->first)
        return NULL;
    for (size_t i = m->n; i-- > 0 && m->log[i].position >= position;)
        if (m->log[i].position == position)
            return position < (int64_t)m->confirmed ? &m->log[i] : NULL;
    return NULL;
}

size_t model_log_count(const struct model *m)
{
    size_t i = m->n;
    while (i > 0 && m->log[i - 1].position >= (int64_t)m->first)
        i--;
    return m->n - i;
}

uint64_t model_units(const struct model *m)
{
    uint64_t units = 0;
    for (size_t i = 0; i < m->n_queues; i++)
        units += (uint64_t)(m->queues[i].max - m->queues[i].min);
    return units;
}
