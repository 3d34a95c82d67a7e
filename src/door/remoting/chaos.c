/* chaos.c - ONCE_CHAOS, a request of our own, and what a plan makes of the requests of others;
 * chaos_int.h has the model. */
#include "door/remoting/chaos_int.h"

#include "base/map.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A commit that was forgotten: the furthest of its group in this queue. */
struct held_commit {
    struct link link;
    int32_t queue_id;
    int64_t offset;
    struct bytes group, topic; /* in `text` */
    uint8_t text[];
};

enum err chaos_open(struct door *door, struct chaos **out)
{
    struct chaos *chaos = calloc(1, sizeof *chaos);
    if (!chaos)
        return ERR_NO_MEMORY;
    chaos->door = door;
    room_init(&chaos->room, "chaos", ROOM_LEAF);
    list_init(&chaos->held);
    enum err err = chaos_force_open(chaos);
    if (err) {
        room_clear(&chaos->room);
        free(chaos);
        return err;
    }
    *out = chaos;
    return OK;
}

void chaos_close(struct chaos *chaos)
{
    if (!chaos)
        return;
    for (size_t i = 0; i < chaos->n_sessions; i++)
        counted_drop(&chaos->sessions[i]->counted);
    for (struct link *k; (k = list_pop(&chaos->held));)
        free(list_entry(k, struct held_commit, link));
    chaos_seen_clear(&chaos->seen);
    chaos_force_close(chaos);
    room_clear(&chaos->room);
    free(chaos);
}

/* ---- the plan ---- */

bool chaos_now(struct chaos *chaos, struct chaos_plan *plan, uint64_t *number)
{
    if (!atomic_load_explicit(&chaos->on, memory_order_relaxed))
        return false;
    room_enter(&chaos->room);
    bool on = atomic_load(&chaos->on);
    *plan = chaos->plan;
    if (number)
        *number = chaos->number;
    room_leave(&chaos->room);
    return on;
}

void chaos_counted(struct chaos *chaos, enum chaos_kind kind)
{
    atomic_fetch_add_explicit(&chaos->counts[kind], 1, memory_order_relaxed);
}

bool chaos_strikes(struct chaos *chaos, const struct chaos_plan *plan, enum chaos_kind kind,
                   uint64_t what)
{
    if (!chaos_hits(plan, kind, what))
        return false;
    room_enter(&chaos->room);
    bool first = chaos_seen_add(&chaos->seen, chaos_number(plan, kind, what, UINT64_MAX));
    room_leave(&chaos->room);
    if (first)
        chaos_counted(chaos, kind);
    return first;
}

static void sessions_forget(struct chaos *chaos);

static void begin(struct chaos *chaos, const struct chaos_plan *plan)
{
    uint64_t now_ns = clock_ns(chaos->door->options.clock);
    room_enter(&chaos->room);
    chaos->plan = *plan;
    chaos->number++;
    chaos->began_ns = now_ns;
    for (size_t i = 0; i < CHAOS_KINDS; i++)
        atomic_store(&chaos->counts[i], 0);
    atomic_store(&chaos->left_out, 0);
    chaos_seen_clear(&chaos->seen);
    sessions_forget(chaos);
    atomic_store(&chaos->on, true);
    room_leave(&chaos->room);
}

/* What was told and forgotten counts now, unless the group has come further since. */
static void commit_made(struct chaos *chaos, const struct held_commit *held)
{
    struct fault why = {0};
    struct commit commit = {NULL,           held->group,  held->topic,
                            held->queue_id, held->offset, .forward = true};
    if (broker_offset_commit(chaos->door->broker, &commit, &why))
        log_event(chaos->door->log, LOG_WARN, "chaos: a commit is lost group=%s topic=%s reason=%s",
                  LOG_QUOTE(held->group), LOG_QUOTE(held->topic), LOG_QUOTE(bytes_str(why.text)));
}

bool chaos_end(struct chaos *chaos, uint64_t number)
{
    struct list held;
    list_init(&held);
    room_enter(&chaos->room);
    bool ends = atomic_load(&chaos->on) && (number == 0 || number == chaos->number);
    if (ends) {
        atomic_store(&chaos->on, false);
        list_append_all(&held, &chaos->held);
        chaos->n_held = 0;
    }
    room_leave(&chaos->room);
    for (struct link *k; (k = list_pop(&held));) {
        struct held_commit *one = list_entry(k, struct held_commit, link);
        commit_made(chaos, one);
        free(one);
    }
    return ends;
}

/* ---- the request ---- */

static void tell(struct chaos *chaos, struct request *rq)
{
    static const char *const names[CHAOS_KINDS] = {
        [CHAOS_TWICE] = "twice",           [CHAOS_LATER] = "twiceLater",
        [CHAOS_ANSWERS] = "dropResponses", [CHAOS_ACKS] = "dropAcks",
        [CHAOS_DELAYS] = "delayed",        [CHAOS_KILLS] = "kills",
        [CHAOS_REBALANCES] = "rebalances"};
    room_enter(&chaos->room);
    uint64_t number = chaos->number;
    bool on = atomic_load(&chaos->on);
    room_leave(&chaos->room);
    struct return_address to = return_address_of(rq);
    struct reply r;
    if (!reply_begin(&r, &to, RES_SUCCESS, (struct bytes){0}, 0))
        return;
    frame_put_int(&r.frame, BYTES("plan"), (int64_t)number);
    frame_put_bool(&r.frame, BYTES("on"), on);
    for (size_t i = 0; i < CHAOS_KINDS; i++)
        frame_put_int(&r.frame, bytes_str(names[i]), (int64_t)atomic_load(&chaos->counts[i]));
    frame_put_int(&r.frame, BYTES("leftOut"), (int64_t)atomic_load(&chaos->left_out));
    frame_put_int(&r.frame, BYTES("waiting"), (int64_t)atomic_load(&chaos->waiting));
    reply_end(&r, 0);
}

static enum err set(struct chaos *chaos, const struct chaos_fields *f, struct fault *why)
{
    struct chaos_plan plan;
    enum err err = chaos_plan_read(f, &plan, why);
    if (err)
        return err;
    (void)chaos_end(chaos, 0);
    begin(chaos, &plan);
    log_event(chaos->door->log, LOG_WARN,
              "chaos: faults from now on topic=%s group=%s seed=%" PRIu64 " for_ms=%u",
              LOG_QUOTE(bytes_str(plan.topic)), LOG_QUOTE(bytes_str(plan.group)), plan.seed,
              plan.life_ms);
    return OK;
}

void chaos_request(struct door *door, struct request *rq)
{
    struct chaos_fields f = {0};
    if (!request_fields(rq, &chaos_table, &f))
        return;
    if (!door->chaos) {
        answer(rq, RES_NO_PERMISSION,
               "this daemon makes no faults on request; one for tests is started with --chaos");
        return;
    }
    struct fault why = {0};
    enum err err = OK;
    if (bytes_equal(f.action, BYTES("set")))
        err = set(door->chaos, &f, &why);
    else if (bytes_equal(f.action, BYTES("clear"))) {
        if (chaos_end(door->chaos, (uint64_t)f.plan))
            log_event(door->log, LOG_INFO, "chaos: no more faults");
    } else if (!bytes_equal(f.action, BYTES("read")))
        err = fault_set(&why, ERR_INVALID, "action: set, read or clear");
    if (err)
        answer(rq, RES_INVALID_PARAMETER, fault_remark(err, &why));
    else
        tell(door->chaos, rq);
}

/* ---- connections that take part ---- */

static void take_part(struct chaos *chaos, struct session *session, uint64_t plan)
{
    if (session->chaos_plan == plan)
        return;
    session->chaos_plan = plan;
    room_enter(&chaos->room);
    if (plan == chaos->number && session->chaos_at == 0 && chaos->n_sessions < CHAOS_SESSIONS_MAX) {
        chaos->sessions[chaos->n_sessions++] = session;
        session->chaos_at = chaos->n_sessions;
        counted_hold(&session->counted);
    }
    room_leave(&chaos->room);
}

void chaos_session_closed(struct chaos *chaos, struct session *session)
{
    room_enter(&chaos->room);
    size_t at = session->chaos_at;
    if (at > 0) {
        invariant(chaos->sessions[at - 1] == session);
        chaos->sessions[at - 1] = chaos->sessions[--chaos->n_sessions];
        chaos->sessions[at - 1]->chaos_at = at;
        session->chaos_at = 0;
    }
    room_leave(&chaos->room);
    if (at > 0)
        counted_drop(&session->counted);
}

/* Room: chaos. Those of an earlier plan; all of them are open, so none ends here. */
static void sessions_forget(struct chaos *chaos)
{
    room_held(&chaos->room);
    while (chaos->n_sessions > 0) {
        struct session *session = chaos->sessions[--chaos->n_sessions];
        session->chaos_at = 0;
        counted_drop(&session->counted);
    }
}

/* ---- what is done to requests ---- */

/* Room: chaos. Keeps the furthest commit of the queue. False: no room. */
static bool commit_hold(struct chaos *chaos, const struct offset_fields *f)
{
    room_held(&chaos->room);
    list_each(k, &chaos->held) {
        struct held_commit *held = list_entry(k, struct held_commit, link);
        if (held->queue_id != f->queue_id || !bytes_equal(held->group, f->group) ||
            !bytes_equal(held->topic, f->topic))
            continue;
        if (f->commit_offset > held->offset)
            held->offset = f->commit_offset;
        return true;
    }
    struct held_commit *held = NULL;
    if (chaos->n_held < CHAOS_HELD_MAX && f->group.len <= CHAOS_NAME_MAX &&
        f->topic.len <= CHAOS_NAME_MAX)
        held = calloc(1, sizeof *held + f->group.len + f->topic.len);
    if (!held)
        return false;
    uint8_t *room = held->text;
    held->queue_id = f->queue_id;
    held->offset = f->commit_offset;
    held->group = keep_text(&room, f->group);
    held->topic = keep_text(&room, f->topic);
    list_add_tail(&chaos->held, &held->link);
    chaos->n_held++;
    return true;
}

/* Whether this commit is to be forgotten. It is made when the plan ends. */
static bool commit_forgotten(struct chaos *chaos, const struct chaos_plan *plan,
                             const struct offset_fields *f)
{
    uint64_t what = chaos_place(f->group, f->topic, f->queue_id, f->commit_offset);
    if (f->commit_offset < 0 || !chaos_hits(plan, CHAOS_ACKS, what))
        return false;
    room_enter(&chaos->room);
    bool kept = atomic_load(&chaos->on) &&
                chaos_seen_add(&chaos->seen, chaos_number(plan, CHAOS_ACKS, what, UINT64_MAX)) &&
                commit_hold(chaos, f);
    room_leave(&chaos->room);
    if (kept)
        chaos_counted(chaos, CHAOS_ACKS);
    return kept;
}

/* A pull carries a commit along: it goes on without. */
static void pull_robbed(struct chaos *chaos, const struct chaos_plan *plan, struct head *head,
                        struct arena *arena)
{
    struct pull_fields f = {0};
    char *text = NULL;
    if (fields_read(&pull_fields_table, head, &f, NULL) || !(f.sys_flag & PULL_COMMIT) ||
        !(text = arena_alloc(arena, 12)))
        return;
    struct offset_fields commit = {.group = f.group,
                                   .topic = f.topic,
                                   .queue_id = f.queue_id,
                                   .commit_offset = f.commit_offset};
    if (!commit_forgotten(chaos, plan, &commit))
        return;
    int n = snprintf(text, 12, "%d", (int)(f.sys_flag & ~PULL_COMMIT));
    for (size_t i = 0; i < head->n_fields; i++)
        if (bytes_equal(head->fields[i].name, BYTES("sysFlag")))
            head_alter(head, i, bytes_of(text, (size_t)n));
}

/* A message that keeps its row stays in its queue, as official clients have it. */
static int32_t copy_queue(const struct produce *p)
{
    struct bytes key;
    bool in_row = !p->batch && props_get(p->props, BYTES("__SHARDINGKEY"), &key);
    return in_row ? p->queue_id : -1;
}

static void send_met(struct chaos *chaos, const struct chaos_plan *plan, struct request *rq,
                     struct head *head)
{
    bool in_words = head->code == REQ_SEND_MESSAGE;
    struct send_fields f = {.max_reconsume_times = NO_MAX_RECONSUME};
    if (fields_read(in_words ? &send_fields_long : &send_fields_letters, head, &f, NULL))
        return; /* whoever reads it next says so */
    uint64_t what = chaos_message(f.props, rq->body);
    struct produce copy = {0};
    produce_fill(&copy, rq, &f);
    copy.queue_id = copy_queue(&copy);
    struct seat *seat = rq->session->seat;
    if (chaos_strikes(chaos, plan, CHAOS_TWICE, what))
        (void)chaos_copy(chaos, seat, &copy, 0);
    if (chaos_strikes(chaos, plan, CHAOS_LATER, what))
        (void)chaos_copy(chaos, seat, &copy,
                         1 + chaos_number(plan, CHAOS_LATER, what + 1, plan->later_ms + 1));
    if (!(head->flag & FLAG_ONEWAY) && chaos_strikes(chaos, plan, CHAOS_ANSWERS, what))
        head->flag |= FLAG_ONEWAY;
}

static bool ack_forgotten(struct chaos *chaos, const struct chaos_plan *plan,
                          const struct head *head, struct bytes body)
{
    struct ack_fields f = {0};
    uint64_t what = chaos_message((struct bytes){0}, body); /* of many: what they are is there */
    if (head->code == REQ_ACK_MESSAGE) {
        if (fields_read(&ack_message_table, head, &f, NULL))
            return false;
        what = chaos_place(f.group, f.topic, f.queue_id, f.offset);
    }
    return chaos_strikes(chaos, plan, CHAOS_ACKS, what);
}

/* True: it is answered, and nothing is done. */
static bool read_met(struct chaos *chaos, const struct chaos_plan *plan, struct request *rq,
                     struct head *head)
{
    struct offset_fields commit = {0};
    struct send_back_fields back = {0};
    switch (head->code) {
    case REQ_PULL_MESSAGE:
    case REQ_LITE_PULL_MESSAGE:
        pull_robbed(chaos, plan, head, rq->arena);
        return false;
    case REQ_UPDATE_CONSUMER_OFFSET:
        return !fields_read(&update_offset_table, head, &commit, NULL) &&
               commit_forgotten(chaos, plan, &commit);
    case REQ_ACK_MESSAGE:
    case REQ_BATCH_ACK_MESSAGE:
        return ack_forgotten(chaos, plan, head, rq->body);
    case REQ_CONSUMER_SEND_MSG_BACK:
        if (!(head->flag & FLAG_ONEWAY) && !fields_read(&send_back_table, head, &back, NULL) &&
            chaos_strikes(chaos, plan, CHAOS_ACKS,
                          chaos_place(back.group, (struct bytes){0}, 0, back.position)))
            head->flag |= FLAG_ONEWAY;
        return false;
    default:
        return false;
    }
}

/* ---- requests as they come ---- */

enum part { PART_NONE, PART_SEND, PART_READ };

/* Whether a request speaks of what the plan is about. */
static enum part part_of(const struct chaos_plan *plan, const struct head *head)
{
    struct bytes topic = head_field(head, BYTES("topic"));
    struct bytes group = head_field(head, BYTES("consumerGroup"));
    switch (head->code) {
    case REQ_SEND_MESSAGE:
        return chaos_sends_to(plan, topic) ? PART_SEND : PART_NONE;
    case REQ_SEND_MESSAGE_V2:
    case REQ_SEND_BATCH_MESSAGE:
        return chaos_sends_to(plan, head_field(head, BYTES("b"))) ? PART_SEND : PART_NONE;
    case REQ_CONSUMER_SEND_MSG_BACK:
        group = head_field(head, BYTES("group"));
        topic = head_field(head, BYTES("originTopic"));
        return chaos_reads(plan, group, topic.len ? topic : bytes_str(plan->topic)) ? PART_READ
                                                                                    : PART_NONE;
    case REQ_BATCH_ACK_MESSAGE: /* its groups are in its body: whoever has popped is meant */
        return PART_READ;
    case REQ_PULL_MESSAGE:
    case REQ_LITE_PULL_MESSAGE:
    case REQ_POP_MESSAGE:
    case REQ_UPDATE_CONSUMER_OFFSET:
    case REQ_ACK_MESSAGE:
    case REQ_CHANGE_MESSAGE_INVISIBLETIME:
        return chaos_reads(plan, group, topic) ? PART_READ : PART_NONE;
    default:
        return PART_NONE;
    }
}

static uint64_t delay_of(struct chaos *chaos, const struct chaos_plan *plan,
                         const struct head *head, struct bytes body)
{
    if (plan->delay_max_ms == 0)
        return 0;
    static const char *const places[] = {"queueId", "queueOffset", "commitOffset", "offset"};
    uint64_t what = chaos_message(head_field(head, BYTES("i")), body);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        what = bytes_hash(head_field(head, bytes_str(places[i])), what);
    uint64_t ms = plan->delay_min_ms + chaos_number(plan, CHAOS_DELAYS, what,
                                                    plan->delay_max_ms - plan->delay_min_ms + 1);
    if (ms > 0)
        chaos_counted(chaos, CHAOS_DELAYS);
    return ms;
}

/* True: it is answered. False: go on. */
static bool met(struct chaos *chaos, const struct chaos_plan *plan, enum part part,
                struct request *rq, struct head *head)
{
    if (part == PART_SEND)
        send_met(chaos, plan, rq, head);
    if (part != PART_READ || !read_met(chaos, plan, rq, head))
        return false;
    answer(rq, RES_SUCCESS, NULL);
    return true;
}

bool chaos_meets(struct chaos *chaos, struct request *rq, struct head *head,
                 const struct frame *frame)
{
    struct session *session = rq->session;
    struct chaos_plan plan;
    uint64_t number = 0, delay_ms = 0;
    enum part part = chaos_now(chaos, &plan, &number) ? part_of(&plan, head) : PART_NONE;
    if (head->code == REQ_BATCH_ACK_MESSAGE && session->chaos_plan != number)
        part = PART_NONE; /* it has popped for somebody else */
    if (part != PART_NONE)
        take_part(chaos, session, number);
    if (part != PART_NONE && frame)
        delay_ms = delay_of(chaos, &plan, head, rq->body);
    /* Those before it come first. */
    bool waits = frame && (delay_ms > 0 || session->chaos_waiting > 0);
    if (waits && chaos_wait(chaos, session, frame, delay_ms))
        return true;
    return met(chaos, &plan, part, rq, head);
}

/* ---- messages as they are given ---- */

#define RETRY_NAME_MAX (CHAOS_NAME_MAX + 16)

static void again(struct chaos *chaos, struct seat *seat, const struct chaos_plan *plan,
                  const struct record *record)
{
    uint64_t what = chaos_message(record->props, record->body);
    bool twice = chaos_strikes(chaos, plan, CHAOS_TWICE, what);
    bool later = chaos_strikes(chaos, plan, CHAOS_LATER, what);
    if (!twice && !later)
        return;
    char topic[RETRY_NAME_MAX], props[RECORD_PROPS_MAX + 512];
    int n = snprintf(topic, sizeof topic, "%%RETRY%%%s", plan->group);
    struct wr w = wr_over(props, sizeof props);
    props_add_all_but(&w, record->props, PROP_DELAY);
    if (!bytes_start(record->topic, RETRY_PREFIX))
        props_add(&w, PROP_RETRY_TOPIC, record->topic);
    struct produce copy = {
        .group = bytes_str(plan->group),
        .topic = bytes_of(topic, (size_t)n),
        .body = record->body,
        .props = wr_bytes(&w),
        .queue_id = -1,
        .sys_flag = record->sys_flag & ~(SYS_TX_MASK | SYS_BORN_V6 | SYS_STORE_V6),
        .flag = record->flag,
        .reconsume_times = record->reconsume_times + 1,
        .born_ms = record->born_ms,
        .born_host = record->born_host,
    };
    if (w.full || record->reconsume_times == INT32_MAX)
        return;
    if (twice)
        (void)chaos_copy(chaos, seat, &copy, 0);
    if (later)
        (void)chaos_copy(chaos, seat, &copy,
                         1 + chaos_number(plan, CHAOS_LATER, what + 1, plan->later_ms + 1));
}

void chaos_given(struct chaos *chaos, struct seat *seat, const struct pull *pull,
                 const struct read_result *read)
{
    struct chaos_plan plan;
    if (!chaos_now(chaos, &plan, NULL) || plan.topic[0] ||
        !chaos_reads(&plan, pull->group, pull->topic) ||
        broker_is_ordered(chaos->door->broker, pull->group))
        return;
    for (size_t i = 0; i < read->n_slices; i++) {
        struct bytes left = read->slices[i].bytes;
        struct record record;
        while (left.len > 0 && !record_decode(left, &record)) {
            again(chaos, seat, &plan, &record);
            left = bytes_from(left, record.size);
        }
    }
}
