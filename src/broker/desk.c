/* desk.c - preparing messages outside the core: counting, checking, dressing them in the
 * properties that a stored message has.
 *
 * Each message's properties are written anew into the desk's text: the client's own, without those
 * that only the broker may set, then the broker's. Bodies are not touched but for their CRC.
 */
#include "broker/produce_int.h"

#include "base/crc32.h"

#include <stdlib.h>

#define MESSAGES_START 256
#define TEXT_START     (64u << 10)
#define KEEP_MESSAGES  8192 /* a desk that had to hold more shrinks again */
#define KEEP_TEXT      (8u << 20)
#define UNIQ_TEXT_MAX  (sizeof "UNIQ_KEY" + ID_TEXT_MAX)
#define GAP_TEXT       224 /* names and numbers of what gap_of is about, without texts */

enum err desk_open(struct broker *b, struct desk **out)
{
    struct desk *desk = calloc(1, sizeof *desk);
    if (!desk)
        return ERR_NO_MEMORY;
    desk->broker = b;
    room_enter(&b->room);
    uint64_t chance = dice_next(&b->dice); /* where Java has its pid and class loader */
    room_leave(&b->room);
    id_maker_init(&desk->ids, &b->set.host, (uint16_t)chance, (uint32_t)(chance >> 16));
    *out = desk;
    return OK;
}

void desk_close(struct desk *desk)
{
    if (!desk)
        return;
    free(desk->drafts);
    free(desk->stored);
    free(desk->text);
    notes_free(desk);
    free(desk);
}

const struct stored *desk_stored(const struct desk *desk)
{
    return desk->stored;
}

/* ---- room for all ---- */

/* What may have to be added to the properties of a message that goes elsewhere first, or to the
 * dead letters: produce.c knows when it has found the group. */
static size_t gap_of(const struct produce *r)
{
    bool of_group = bytes_start(r->topic, RETRY_PREFIX);
    return GAP_TEXT + r->topic.len + (of_group ? NAME_MAX_ANY + r->props.len : 0);
}

/* Counts the request's messages and the properties' bytes, and refuses what cannot be counted. */
static enum err request_measure(struct produce *r, size_t *messages, size_t *text)
{
    if (!r->batch) {
        *messages = 1;
        *text = r->props.len + gap_of(r);
        return OK;
    }
    struct rd rd = rd_over(r->body);
    struct batch_item item;
    size_t n = 0, props = 0;
    for (bool more;; n++) {
        if (batch_next(&rd, &item, &more))
            return fault_set(&r->why, ERR_MALFORMED, "message %zu of the batch is malformed", n);
        if (!more)
            break;
        props += item.props.len;
        if (n == BATCH_MAX)
            return fault_set(&r->why, ERR_TOO_BIG, "a batch of more than %d messages", BATCH_MAX);
    }
    if (n == 0)
        return fault_set(&r->why, ERR_MALFORMED, "a batch without messages");
    *messages = n;
    *text = props;
    return OK;
}

static bool messages_reserve(struct desk *desk, size_t n)
{
    if (n <= desk->cap && !(desk->cap > KEEP_MESSAGES && n <= KEEP_MESSAGES))
        return true;
    size_t cap = n < MESSAGES_START ? MESSAGES_START : n + n / 2;
    free(desk->drafts);
    free(desk->stored);
    desk->drafts = malloc(cap * sizeof *desk->drafts);
    desk->stored = malloc(cap * sizeof *desk->stored);
    desk->cap = desk->drafts && desk->stored ? cap : 0;
    return desk->cap > 0;
}

static bool text_reserve(struct desk *desk, size_t n)
{
    if (n <= desk->text_cap && !(desk->text_cap > KEEP_TEXT && n <= KEEP_TEXT))
        return true;
    size_t cap = n < TEXT_START ? TEXT_START : n + n / 2;
    free(desk->text);
    desk->text = malloc(cap);
    desk->text_cap = desk->text ? cap : 0;
    return desk->text_cap > 0;
}

bool desk_clear(struct desk *desk, size_t messages, size_t text)
{
    desk->n = desk->n_halves = 0;
    if (!messages_reserve(desk, messages) || !text_reserve(desk, text))
        return false;
    desk->w = wr_over(desk->text, desk->text_cap);
    desk->now_ms = clock_ms(desk->broker->clock);
    return true;
}

/* One reservation for the whole turn, so that slices of the text stay where they are. */
static bool desk_reserve(struct desk *desk, struct produce *requests, size_t n)
{
    size_t messages = 0, text = 0;
    for (size_t i = 0; i < n; i++) {
        size_t m = 0, t = 0;
        if (requests[i].err)
            continue;
        requests[i].err = request_measure(&requests[i], &m, &t);
        if (requests[i].err)
            continue;
        requests[i].count = (uint32_t)m;
        messages += m;
        text += t + m * (desk->broker->added.len + UNIQ_TEXT_MAX + DEDUP_PLACE_TEXT + 1);
    }
    return desk_clear(desk, messages, text) && notes_clear(desk, messages);
}

/* ---- what a message asks for ---- */

#define IS(text, kind)                                                                             \
    if (memcmp(name.at, text, sizeof(text) - 1) == 0)                                              \
        return kind;

/* By length first: most names are none of these, and are done with at once. */
static enum prop_kind prop_kind(struct bytes name)
{
    switch (name.len) {
    case 4:
        IS("WAIT", KIND_WAIT)
        IS("TAGS", KIND_TAGS)
        IS("KEYS", KIND_KEYS)
        break;
    case 5:
        IS("DELAY", KIND_DELAY)
        break;
    case 6:
        IS("PGROUP", KIND_GROUP)
        IS("POP_CK", KIND_OURS)
        break;
    case 7:
        IS("CLUSTER", KIND_OURS)
        break;
    case 8:
        IS("UNIQ_KEY", KIND_UNIQ_KEY)
        IS("TRACE_ON", KIND_OURS)
        IS("TRAN_MSG", KIND_HALF)
        IS("REAL_QID", KIND_REAL)
        break;
    case 9:
        IS("INNER_NUM", KIND_INNER)
        break;
    case 10:
        IS("MSG_REGION", KIND_OURS)
        IS("REAL_TOPIC", KIND_REAL)
        break;
    case 11:
        IS("DEDUP_PLACE", KIND_OURS)
        break;
    case 12:
        IS("TIMER_OUT_MS", KIND_TIMED)
        break;
    case 14:
        IS("TIMER_DELAY_MS", KIND_TIMER)
        break;
    case 15:
        IS("TIMER_DELAY_SEC", KIND_TIMER)
        break;
    case 16:
        IS("TIMER_DELIVER_MS", KIND_TIMER)
        break;
    case 17:
        IS("__transactionId__", KIND_TXN)
        IS("TIMER_DEL_UNIQKEY", KIND_TIMER_DELETE)
        break;
    case 23:
        IS("TRANSACTION_CHECK_TIMES", KIND_TXN)
        break;
    case 26:
        IS("TRAN_PREPARED_QUEUE_OFFSET", KIND_TXN)
        break;
    case 30:
        IS("CHECK_IMMUNITY_TIME_IN_SECONDS", KIND_IMMUNITY)
        break;
    default:
        break;
    }
    return KIND_OTHER;
}
#undef IS

struct asks {
    uint32_t kinds;         /* that are there, a bit each … */
    struct bytes of[KINDS]; /* … and what they say; read by said() */
    struct bytes timer_sec, timer_ms, timer_at;
    struct bytes uniq_key; /* its own, or the one that it gets */
    size_t size;           /* of all that can be read, each with its end */
    int32_t level;         /* what KIND_DELAY says */
    bool is_half;          /* what KIND_HALF says */
    int64_t due_ms;        /* what the timer says; 0: now */
};

/* Empty: it is not there. */
static inline struct bytes said(const struct asks *asks, enum prop_kind kind)
{
    return asks->kinds >> kind & 1 ? asks->of[kind] : (struct bytes){0};
}

static void timer_scan(const struct prop *p, struct asks *asks)
{
    if (!(asks->kinds >> KIND_TIMER & 1))
        asks->timer_sec = asks->timer_ms = asks->timer_at = (struct bytes){0};
    *(p->name.len == sizeof "TIMER_DELAY_SEC" - 1  ? &asks->timer_sec
      : p->name.len == sizeof "TIMER_DELAY_MS" - 1 ? &asks->timer_ms
                                                   : &asks->timer_at) = p->value;
}

/* Of several with one name the last counts. */
static void props_scan(struct bytes props, struct asks *asks)
{
    struct props_walk walk = props_walk(props);
    struct prop p;
    asks->kinds = 0;
    asks->size = 0;
    asks->level = 0;
    asks->is_half = false;
    asks->due_ms = 0;
    while (props_next(&walk, &p)) {
        enum prop_kind kind = prop_kind(p.name);
        asks->size += p.name.len + p.value.len + 2;
        asks->of[kind] = p.value;
        if (kind == KIND_TIMER)
            timer_scan(&p, asks);
        asks->kinds |= 1u << kind;
    }
    asks->uniq_key = said(asks, KIND_UNIQ_KEY);
}

void props_keep(struct wr *w, struct bytes props, uint32_t drop)
{
    struct props_walk walk = props_walk(props);
    struct prop p;
    while (props_next(&walk, &p))
        if (!(drop & 1u << prop_kind(p.name)))
            props_add(w, p.name, p.value);
}

/* Copies the client's properties, without those to be dropped and those that nobody can read.
 * Nearly always that is all of them, and then they are copied at once. */
static void props_copy(struct wr *w, struct bytes props, const struct asks *asks, uint32_t drop)
{
    bool open_last = props.len > 0 && props.at[props.len - 1] != '\2'; /* as 4.9 clients send it */
    if ((asks->kinds & drop) || asks->size != props.len + open_last) {
        props_keep(w, props, drop);
        return;
    }
    wr_bytes_of(w, props);
    if (open_last)
        wr_u8(w, '\2');
}

/* Apache loses a half message with a delay: it becomes a delayed one for the topic of halves. One
 * of a batch it delivers at once. */
static enum err half_refuse(const struct broker *b, const struct asks *asks,
                            const struct produce *r, struct fault *why)
{
    if (!asks->is_half && (r->sys_flag & SYS_TX_MASK))
        return fault_set(why, ERR_MALFORMED,
                         "sysFlag says that the message is transactional, TRAN_MSG does not");
    if (!asks->is_half)
        return OK;
    if (b->set.txn_reject)
        return fault_set(why, ERR_DENIED, "the broker[%s] sending transaction message is forbidden",
                         b->set.name);
    if (r->batch)
        return fault_set(why, ERR_MALFORMED, "a message of a batch cannot be transactional");
    if (asks->level > 0 || asks->kinds & 1u << KIND_TIMER)
        return fault_set(why, ERR_MALFORMED, "a transactional message cannot be delayed");
    if (said(asks, KIND_GROUP).len == 0)
        return fault_set(why, ERR_MALFORMED,
                         "a transactional message without a producer group (PGROUP)");
    if (asks->uniq_key.len >= sizeof r->uniq_key)
        return fault_set(why, ERR_MALFORMED, "a UNIQ_KEY of %zu bytes, more than %zu",
                         asks->uniq_key.len, sizeof r->uniq_key - 1);
    return OK;
}

/* When a timed message shall come. Witness: HookUtils.transformTimerMessage of 5.5.0, also for what
 * it refuses; but it keeps only the full second. */
static enum err asks_time(const struct desk *desk, struct asks *asks, const struct produce *r,
                          struct fault *why)
{
    const struct broker_options *set = &desk->broker->set;
    if (!set->timers)
        return fault_set(why, ERR_UNSUPPORTED,
                         "timed messages are switched off (timerWheelEnable=false)");
    if (r->batch) /* as with a delay level */
        return fault_set(why, ERR_MALFORMED, "a message of a batch cannot be timed (TIMER_…)");
    struct bytes text = asks->timer_sec.at  ? asks->timer_sec
                        : asks->timer_ms.at ? asks->timer_ms
                                            : asks->timer_at;
    int64_t n, now_ms = desk->now_ms, most_s = set->timer_max_s;
    if (!bytes_to_i64(text, &n))
        return fault_set(why, ERR_MALFORMED, "the time of a timed message is not a number");
    bool in_seconds = asks->timer_sec.at, until = !in_seconds && !asks->timer_ms.at;
    int64_t limit = in_seconds ? INT64_MAX / 4000 : INT64_MAX / 4; /* further than any maximum */
    n = n > limit ? limit : n < -limit ? -limit : n;
    int64_t due_ms = until ? n : now_ms + (in_seconds ? n * 1000 : n);
    if (due_ms - now_ms > most_s * 1000)
        return fault_set(why, ERR_MALFORMED,
                         "timer message illegal, the delay time should not be bigger than the max "
                         "delay %lld s (timerMaxDelaySec)",
                         (long long)most_s);
    if (due_ms > now_ms)
        asks->due_ms = due_ms;
    else if (asks->kinds & 1u << KIND_TIMER_DELETE)
        return fault_set(why, ERR_MALFORMED, "a timed message to take back, but its time is over");
    return OK;
}

/* A message that is to come only if something else happens, or at a time that cannot be, must not
 * be delivered at once. */
static enum err asks_refuse(const struct desk *desk, struct asks *asks, const struct produce *r,
                            struct fault *why)
{
    struct bytes delay = said(asks, KIND_DELAY);
    if (delay.len > 0 && !bytes_to_i32(delay, &asks->level))
        return fault_set(why, ERR_MALFORMED, "the property DELAY is not a number");
    /* Clients before 4.6.1 leave TRAN_MSG in what they give back. */
    bool given_back = r->reconsume_times > 0 && asks->level > 0;
    asks->is_half = bytes_true(said(asks, KIND_HALF)) && !given_back;
    enum err err = given_back ? OK : half_refuse(desk->broker, asks, r, why);
    if (err)
        return err;
    if (r->batch && asks->level > 0) /* Apache's client refuses it, its broker forgets the delay */
        return fault_set(why, ERR_MALFORMED, "a message of a batch cannot be delayed (DELAY=%d)",
                         asks->level);
    bool timer = asks->kinds & 1u << KIND_TIMER, timed = asks->kinds & 1u << KIND_TIMED;
    if (timer && !timed && asks->level <= 0)
        err = asks_time(desk, asks, r, why);
    if (err)
        return err;
    if ((asks->kinds & 1u << KIND_INNER) || (r->sys_flag & SYS_INNER_BATCH))
        return fault_set(why, ERR_MALFORMED, "an inner batch, but the topic is not of that kind");
    return OK;
}

/* ---- one message, one request ---- */

static void uniq_key_note(struct produce *r, struct bytes key)
{
    size_t len = key.len < sizeof r->uniq_key ? key.len : sizeof r->uniq_key - 1;
    memcpy(r->uniq_key, key.at, len);
    r->uniq_key[len] = 0;
}

/* What is not copied. A message whose properties are finished later gets its DELAY and its real
 * place then; one with a level has no other timer (HookUtils.checkIfTimerMessage). */
static uint32_t drops(const struct asks *asks, bool open_end)
{
    uint32_t drop = 1u << KIND_OURS;
    if (open_end)
        drop |= 1u << KIND_DELAY;
    if (asks->level > 0 || asks->due_ms > 0)
        drop |= 1u << KIND_REAL;
    if (asks->level > 0)
        drop |= 1u << KIND_TIMER;
    if (asks->is_half)
        drop |= 1u << KIND_REAL | 1u << KIND_TXN;
    return drop;
}

static uint32_t immunity_of(const struct asks *asks)
{
    struct bytes immunity = said(asks, KIND_IMMUNITY);
    int64_t seconds;
    if (immunity.len == 0 || !bytes_to_i64(immunity, &seconds) || seconds < 0)
        return 0;
    return seconds < UINT32_MAX ? (uint32_t)seconds : UINT32_MAX;
}

struct wr desk_props(struct desk *desk, const struct produce *r)
{
    struct bytes props = desk->drafts[r->first].props;
    struct wr w = wr_over(desk->text + (props.at - desk->text), props.len + r->gap);
    w.at += props.len;
    return w;
}

/* What says that it is the copy of another is not recognised by its key. */
static void place_note(struct desk *desk, const struct produce *r, const struct asks *asks,
                       struct wr *props)
{
    bool a_copy = asks->kinds & (1u << KIND_REAL | 1u << KIND_TIMED) && asks->level <= 0;
    uint32_t place = note_key(desk, r, a_copy ? (struct bytes){0} : asks->uniq_key);
    if (place > 0)
        props_add_int(props, PROP_DEDUP_PLACE, place);
}

/* What a plain message's unit and keys are made of. The rest is finished later, and dispatch reads
 * it. */
static void marks_note(struct desk *desk, const struct produce *r, const struct asks *asks,
                       bool open_end, struct draft_marks *out)
{
    struct marks marks = {
        .unique = asks->uniq_key, .keys = said(asks, KIND_KEYS), .tags = said(asks, KIND_TAGS)};
    if (open_end || asks->kinds & 1u << KIND_DELAY)
        out->known = false;
    else
        draft_marks_of(&desk->key_topic, r->topic, &marks, out);
}

static enum err message_prepare(struct desk *desk, struct produce *r, const struct batch_item *item,
                                struct asks *asks)
{
    struct broker *b = desk->broker;
    struct wr props = wr_over(desk->w.at, wr_room(&desk->w));
    props_scan(item->props, asks);
    enum err err = asks_refuse(desk, asks, r, &r->why);
    if (err)
        return err;
    bool open_end = !r->batch && (asks->level > 0 || asks->due_ms > 0 || asks->is_half ||
                                  bytes_start(r->topic, RETRY_PREFIX));
    props_copy(&props, item->props, asks, drops(asks, open_end));
    if (desk->noting)
        place_note(desk, r, asks, &props);
    char made[ID_TEXT_MAX];
    if (asks->uniq_key.len == 0) {
        size_t len = id_make(&desk->ids, desk->now_ms, made);
        props_add(&props, PROP_UNIQ_KEY, bytes_of(made, len));
        asks->uniq_key = bytes_of(props.at - 1 - len, len);
    }
    wr_bytes_of(&props, buf_bytes(&b->added));
    invariant(!props.full); /* desk_reserve made room */
    if (wr_len(&props) > RECORD_PROPS_MAX)
        return fault_set(&r->why, ERR_TOO_BIG, "the properties have %zu bytes, more than %d",
                         wr_len(&props), RECORD_PROPS_MAX);

    r->gap = open_end ? gap_of(r) : 0;
    r->delay_level = asks->level;
    r->delay_given = asks->kinds & 1u << KIND_DELAY;
    r->is_half = asks->is_half;
    r->immunity_s = immunity_of(asks);
    r->timer_due_ms = asks->due_ms;
    desk->w.at = props.at + r->gap;
    struct draft *draft = &desk->drafts[desk->n++];
    draft->queue = NULL;
    draft->topic = r->topic;
    draft->body = item->body;
    draft->props = wr_bytes(&props);
    draft->body_crc = crc32_positive(item->body);
    draft->queue_id = 0;
    draft->flag = item->flag;
    draft->sys_flag = r->sys_flag & ~(SYS_BORN_V6 | SYS_STORE_V6 | SYS_TX_MASK);
    draft->reconsume_times = r->reconsume_times;
    draft->born_ms = r->born_ms;
    draft->prepared_position = 0;
    draft->born_host = r->born_host;
    draft->store_host = b->set.host;
    draft->with_next = false;
    marks_note(desk, r, asks, open_end, &draft->marks);
    return OK;
}

static bool waits(const struct asks *asks)
{
    struct bytes wait = said(asks, KIND_WAIT);
    return wait.len == 0 || bytes_true(wait);
}

/* The batch's own properties say whether to wait and name it; the messages keep theirs. Witness:
 * before Apache's #9416 the batch's UNIQ_KEY was put on every message, and consumers saw
 * duplicates. */
static enum err batch_prepare(struct desk *desk, struct produce *r, struct asks *asks)
{
    props_scan(r->props, asks);
    enum err refused = asks_refuse(desk, asks, r, &r->why);
    if (refused)
        return refused;
    struct bytes key = asks->uniq_key;
    r->wait = waits(asks);
    struct rd rd = rd_over(r->body);
    struct batch_item item;
    for (bool more;;) {
        enum err err = batch_next(&rd, &item, &more);
        if (err || !more)
            break; /* the measuring has seen that it is well-formed */
        err = message_prepare(desk, r, &item, asks);
        if (err)
            return err;
        if (desk->n - 1 == r->first)
            uniq_key_note(r, asks->uniq_key);
        desk->drafts[desk->n - 1].with_next = true;
    }
    desk->drafts[desk->n - 1].with_next = false;

    if (key.len > 0)
        uniq_key_note(r, key);
    return OK;
}

static enum err request_prepare(struct desk *desk, struct produce *r)
{
    size_t first = desk->n;
    uint8_t *text = desk->w.at;
    struct asks asks;
    struct batch_item whole = {r->flag, r->body, r->props};
    r->first = (uint32_t)first;
    enum err err =
        r->batch ? batch_prepare(desk, r, &asks) : message_prepare(desk, r, &whole, &asks);
    if (err) {
        desk->n = first;
        desk->w.at = text;
        return err;
    }
    if (!r->batch) {
        uniq_key_note(r, asks.uniq_key);
        r->wait = waits(&asks);
    }
    r->count = (uint32_t)(desk->n - first);
    return OK;
}

void desk_prepare(struct desk *desk, struct produce *requests, size_t n)
{
    bool fits = desk_reserve(desk, requests, n);
    for (size_t i = 0; i < n; i++) {
        struct produce *r = &requests[i];
        if (!r->err && !fits)
            r->err = fault_set(&r->why, ERR_NO_MEMORY, "no memory to prepare the message");
        if (!r->err && desk->noting)
            notes_request(desk, r, i);
        if (!r->err)
            r->err = request_prepare(desk, r);
    }
}
