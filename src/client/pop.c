/* pop.c - consuming without queues of one's own: the broker keeps the accounts.
 *
 * Whoever pops gets messages of any queue, and they are his for a while (invisible_ms). What is
 * acknowledged in that time is done; what is not comes again, to anybody. So there is nothing to
 * share out and no offset to keep: one lane for each broker of a topic, with -1 for its queue.
 *
 * Every message has a handle, which the broker needs to find it again:
 *
 *     start offset, time of the pop, invisible time, revive queue,
 *     topic kind, broker, queue, offset
 *
 * eight words with blanks between them (remoting/body_pop.c). A message that comes again has its
 * handle among its properties (POP_CK); for others it is made from what the answer says about their
 * queue. The kind tells in which topic the message stands: 0 its own, 1 and 2 the group's retry
 * topic of it.
 *
 * A message that fails is made invisible for longer, on a ladder; after max_attempts it becomes a
 * dead letter and is acknowledged. One whose time is over is nobody's business here any more. One
 * that is to come later without an attempt waits here, if it is ours for long enough after that:
 * the broker would count an attempt. */
#include "client/consumer_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define POP_TIMEOUT_MS  30000
#define POP_POLL_MS     15000
#define POP_MOST        32
#define HANDLE_MAX      512
#define REST_FULL_MS    20
#define REST_TROUBLE_MS 1000
#define MARGIN_MS       500 /* of the invisible time, for the way there and back */

/* ---- handles ---- */

static char *handle_make(const struct lane *lane, const struct head *head,
                         const struct record *record)
{
    int64_t start, pop_time, invisible;
    int32_t revive;
    if (pop_start_find(head_field(head, BYTES("startOffsetInfo")), record->queue_id, &start) ||
        !bytes_to_i64(head_field(head, BYTES("popTime")), &pop_time) ||
        !bytes_to_i64(head_field(head, BYTES("invisibleTime")), &invisible) ||
        !bytes_to_i32(head_field(head, BYTES("reviveQid")), &revive))
        return NULL;
    char *text;
    if (asprintf(&text, "%" PRId64 " %" PRId64 " %" PRId64 " %d 0 %s %d %" PRId64, start, pop_time,
                 invisible, revive, lane->queue.broker, record->queue_id, record->queue_offset) < 0)
        return NULL;
    return text;
}

/* ---- popping ---- */

static void put_pop(const struct call *call, struct frame_out *f)
{
    const struct lane *lane = list_entry(call, struct lane, call);
    struct omq_consumer *consumer = lane->consumer;
    const struct omq_consumer_options *o = &consumer->options;
    const struct sub *sub = sub_find(consumer, lane->queue.topic);
    frame_put(f, BYTES("consumerGroup"), bytes_str(consumer->group));
    frame_put(f, BYTES("topic"), bytes_str(lane->queue.topic));
    frame_put_int(f, BYTES("queueId"), -1);
    frame_put_int(f, BYTES("maxMsgNums"), o->pull_batch < POP_MOST ? o->pull_batch : POP_MOST);
    frame_put_int(f, BYTES("invisibleTime"), o->invisible_ms);
    frame_put_int(f, BYTES("pollTime"), POP_POLL_MS);
    frame_put_int(f, BYTES("bornTime"), 0); /* the broker's clock counts, not ours */
    frame_put_int(f, BYTES("initMode"), o->start == OMQ_FROM_FIRST ? 0 : 1);
    frame_put(f, BYTES("expType"), sub && sub->sql ? BYTES("SQL92") : BYTES("TAG"));
    frame_put(f, BYTES("exp"), sub ? bytes_str(sub->expression) : BYTES("*"));
    frame_put_bool(f, BYTES("order"), false);
    frame_put(f, BYTES("bname"), bytes_str(lane->queue.broker));
}

/* False: it cannot be read. It comes again by itself. */
static bool popped_one(struct lane *lane, struct parcel *parcel, const struct record *record,
                       const struct head *head)
{
    struct held *held;
    if (held_make(parcel, record, &held))
        return false;
    const char *given = omq_delivery_property(&held->delivery, "POP_CK");
    held->handle = given ? strdup(given) : handle_make(lane, head, record);
    struct pop_place place;
    if (!held->handle || strlen(held->handle) > HANDLE_MAX ||
        pop_place_read(bytes_str(held->handle), &place)) {
        held_free(held);
        return false;
    }
    const struct omq_consumer *consumer = lane->consumer;
    held->damaged = record->body.len > 0 && !record_body_intact(record);
    held->delivery.queue.id = record->queue_id;
    held->until_ns = clock_ns(consumer->client->clock) +
                     (uint64_t)(consumer->options.invisible_ms - MARGIN_MS) * 1000000;
    const struct sub *sub = sub_find(lane->consumer, lane->queue.topic);
    bool wanted = place.kind != 0 || !sub || sub_wants(sub, held->delivery.tag);
    if (wanted) {
        held_add(lane, held);
    } else { /* another tag with the same hash */
        held->done = true;
        pop_over(lane, held, true);
    }
    return true;
}

static void popped_all(struct lane *lane, const struct answer *answer)
{
    struct parcel *parcel = parcel_make(answer->body, &lane->queue);
    if (!parcel)
        return;
    struct bytes rest = {parcel->bytes, parcel->len};
    bool good = true;
    while (good && rest.len > 0) {
        struct record record;
        good =
            record_decode(rest, &record) == OK && popped_one(lane, parcel, &record, answer->head);
        if (good)
            rest = bytes_from(rest, record.size);
    }
    if (!good)
        client_log(lane->consumer->client, OMQ_ERROR,
                   "a message of topic %s on %s cannot be read; it comes again", lane->queue.topic,
                   lane->queue.broker);
    counted_drop(&parcel->counted);
}

static void popped(struct call *call, const struct answer *answer)
{
    struct lane *lane = list_entry(call, struct lane, call);
    struct omq_client *client = lane->consumer->client;
    lane->calling = false;
    if (lane->state == LANE_DROPPED) {
        lane_let_go(lane);
        return;
    }
    if (answer->err) {
        lane_rest(lane, answer->err == ERR_TIMEOUT ? 0 : REST_TROUBLE_MS);
        return;
    }
    switch (answer->head->code) {
    case RES_SUCCESS:
        popped_all(lane, answer);
        work_give(lane);
        if (lane->state != LANE_DROPPED)
            lane_go(lane);
        return;
    case RES_POLLING_TIMEOUT:
    case RES_PULL_NOT_FOUND:
    case RES_PULL_RETRY_IMMEDIATELY:
        lane_rest(lane, REST_FULL_MS);
        return;
    default:
        client_log(client, OMQ_WARN, "a pop from %s of topic %s is refused: %.*s (code %d)",
                   lane->queue.broker, lane->queue.topic, BYTES_ARG(answer->head->remark),
                   answer->head->code);
        lane_rest(lane, REST_TROUBLE_MS);
        return;
    }
}

/* No more than the hands can begin soon: everybody else could have them meanwhile. */
bool pop_full(const struct lane *lane)
{
    const struct omq_consumer_options *o = &lane->consumer->options;
    size_t soon = 2 * (size_t)o->threads * (size_t)o->batch + POP_MOST;
    size_t most = soon < (size_t)o->max_messages ? soon : (size_t)o->max_messages;
    return lane->n_held >= most;
}

void pop_go(struct lane *lane)
{
    struct omq_consumer *consumer = lane->consumer;
    struct omq_client *client = consumer->client;
    lane->started = true; /* wherever: that is the broker's affair */
    const struct sub *sub = sub_find(consumer, lane->queue.topic);
    struct topic_route *route;
    struct bytes address = lane_broker(lane, true, &route);
    if (address.len) {
        lane->state = LANE_PULLING;
        lane->calling = true;
        lane->pulled_ms = clock_ms(client->clock);
        lane->call = (struct call){
            .code = REQ_POP_MESSAGE,
            .put = put_pop,
            .room = strlen(consumer->group) + strlen(lane->queue.topic) +
                    strlen(lane->queue.broker) + (sub ? strlen(sub->expression) : 1),
            .done = popped,
        };
        call_start(client, address, &lane->call, POP_TIMEOUT_MS);
    } else {
        lane_rest(lane, REST_TROUBLE_MS);
    }
    if (route)
        counted_drop(&route->counted);
}

/* ---- done, or not ---- */

/* A word to the broker about one message. */
struct word {
    struct call call;
    struct lane *lane;
    char *handle, *topic;
    int64_t offset, invisible_ms;
    int32_t queue;
};

static void put_word(const struct call *call, struct frame_out *f)
{
    const struct word *word = list_entry(call, struct word, call);
    frame_put(f, BYTES("consumerGroup"), bytes_str(word->lane->consumer->group));
    frame_put(f, BYTES("topic"), bytes_str(word->topic));
    frame_put_int(f, BYTES("queueId"), word->queue);
    frame_put(f, BYTES("extraInfo"), bytes_str(word->handle));
    frame_put_int(f, BYTES("offset"), word->offset);
    if (call->code == REQ_CHANGE_MESSAGE_INVISIBLETIME)
        frame_put_int(f, BYTES("invisibleTime"), word->invisible_ms);
    frame_put(f, BYTES("bname"), bytes_str(word->lane->queue.broker));
}

static void word_free(struct word *word)
{
    if (!word)
        return;
    free(word->handle);
    free(word->topic);
    free(word);
}

static void word_done(struct call *call, const struct answer *answer)
{
    struct word *word = list_entry(call, struct word, call);
    struct lane *lane = word->lane;
    struct omq_consumer *consumer = lane->consumer;
    if (answer->err || answer->head->code != RES_SUCCESS)
        client_log(consumer->client, OMQ_WARN,
                   "a message of topic %s on %s comes again: the broker did not hear what became "
                   "of it",
                   lane->queue.topic, lane->queue.broker);
    word_free(word);
    lane->out--;
    lane_idle(lane);
    consumer->running--;
    consumer_calm(consumer);
}

static struct word *word_make(struct lane *lane, const struct held *held)
{
    struct pop_place place;
    struct word *word = calloc(1, sizeof *word);
    if (!word || pop_place_read(bytes_str(held->handle), &place)) {
        free(word);
        return NULL;
    }
    const char *group = lane->consumer->group, *topic = lane->queue.topic;
    word->lane = lane;
    word->queue = place.queue_id;
    word->offset = place.offset;
    word->handle = strdup(held->handle);
    if (!place.kind)
        word->topic = strdup(topic);
    else if (asprintf(&word->topic, "%%RETRY%%%s%c%s", group, place.kind == 1 ? '_' : '+', topic) <
             0)
        word->topic = NULL;
    if (!word->handle || !word->topic) {
        word_free(word);
        return NULL;
    }
    return word;
}

static void word_say(struct lane *lane, const struct held *held, int32_t code, int64_t invisible_ms)
{
    struct omq_client *client = lane->consumer->client;
    struct topic_route *route;
    struct bytes address = lane_broker(lane, true, &route);
    struct word *word = address.len ? word_make(lane, held) : NULL;
    if (word) {
        word->invisible_ms = invisible_ms;
        word->call = (struct call){
            .code = code,
            .put = put_word,
            .room = strlen(lane->consumer->group) + strlen(word->topic) + strlen(word->handle) +
                    strlen(lane->queue.broker),
            .done = word_done,
        };
        lane->out++;
        lane->consumer->running++;
        call_start(client, address, &word->call, (uint64_t)client->options.timeout_ms);
    }
    if (route)
        counted_drop(&route->counted);
}

int64_t ladder_ms(int32_t reconsumed)
{
    static const int seconds[] = {10,  30,  60,  120, 180,  240,  300,  360,
                                  420, 480, 540, 600, 1200, 1800, 3600, 7200};
    int32_t last = (int32_t)(sizeof seconds / sizeof seconds[0]) - 1;
    return 1000LL * seconds[reconsumed < 0 ? 0 : reconsumed < last ? reconsumed : last];
}

/* How long nobody shall see it. */
static int64_t hidden_ms(const struct held *held, uint64_t now_ns, bool failed)
{
    int64_t rest_ms = held->rest_ns > now_ns ? (int64_t)((held->rest_ns - now_ns) / 1000000) : 0;
    return failed ? ladder_ms(held->reconsumed) : rest_ms > 1000 ? rest_ms : 1000;
}

/* Half of its time shall be left for the handler. */
static bool waits_here(const struct lane *lane, const struct held *held)
{
    uint64_t half_ns = (uint64_t)lane->consumer->options.invisible_ms * 500000;
    return !held->done && lane->state != LANE_DROPPED && !lane->consumer->closing &&
           held->rest_ns + half_ns < held->until_ns;
}

void pop_over(struct lane *lane, struct held *held, int outcome)
{
    uint64_t now_ns = clock_ns(lane->consumer->client->clock);
    bool ours = now_ns < held->until_ns;
    bool failed = outcome == OUTCOME_FAILED;
    bool dead =
        outcome == OUTCOME_DEAD ||
        (failed && (held->damaged || held->reconsumed >= lane->consumer->options.max_attempts));
    if (ours && dead && work_bury(lane, held))
        return; /* acknowledged when it is a dead letter */
    if (outcome == OUTCOME_LATER && waits_here(lane, held)) {
        held_wait(lane, held);
        return;
    }
    if (ours && outcome == OUTCOME_DONE)
        word_say(lane, held, REQ_ACK_MESSAGE, 0);
    else if (ours)
        word_say(lane, held, REQ_CHANGE_MESSAGE_INVISIBLETIME, hidden_ms(held, now_ns, failed));
    held_finish(lane, held);
}
