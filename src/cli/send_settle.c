/* send_settle.c - the end of a send: what is unsure is looked for, and all is accounted for. */
#include "cli/send_int.h"

#include <inttypes.h>

#define ROUTE_LOOK_MS 10

/* Where a message stands that is not delivered yet. */
static const char *const waiting_topics[] = {"rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"};

static bool look_in(struct omq_client *client, const char *topic, struct landed *l)
{
    struct omq_query query = {.topic = topic, .id = l->receipt.id};
    struct omq_found found;
    struct omq_error why;
    int code = omq_query(client, &query, &found, &why);
    if (code == OMQ_NO_TOPIC)
        return false; /* then it is not stored there */
    if (code) {
        l->fate = FATE_UNSURE;
        l->why = why;
        return false;
    }
    bool there = found.n > 0;
    if (there) {
        const struct omq_delivery *d = found.messages[0];
        struct omq_receipt *r = &l->receipt;
        l->fate = FATE_STORED;
        (void)snprintf(r->broker, sizeof r->broker, "%s", d->queue.broker);
        (void)snprintf(r->offset_id, sizeof r->offset_id, "%s", d->offset_id);
        r->queue_id = d->queue.id;
        r->queue_offset = d->offset;
        r->stored = OMQ_STORED;
    }
    omq_found_free(&found);
    return there;
}

bool send_look(struct send *send, struct landed *l)
{
    int status;
    struct omq_client *client = cli_client(send->cli, &status);
    bool there = look_in(client, send->topic, l),
         later = send->delay_ms > 0 || send->deliver_ms > 0;
    for (size_t i = 0; later && !there && !l->why.code && i < 2; i++)
        there = look_in(client, waiting_topics[i], l);
    return there;
}

/* What the broker has turns from unsure to stored. What it does not have stays unsure: a request
 * that is still in its hands may be stored yet. */
static void settle(struct send *send)
{
    bool reachable = true;
    for (size_t i = 0; i < send->n_unsure; i++) {
        struct landed *l = &send->unsure[i];
        struct landed look = *l;
        look.why.code = OMQ_OK;
        if (reachable && send_look(send, &look)) {
            send->counts[FATE_UNSURE]--;
            send->counts[FATE_STORED]++;
            *l = look;
        } else {
            reachable = reachable && look.why.code == OMQ_OK;
            if (serial_back(&send->serial, l->number, true))
                (void)cli_fail(send->cli, STATUS_FAILED, NULL,
                               "no memory: message %" PRIu64
                               " (unsure) is missing in the list of what is left",
                               l->number);
        }
        send_print(send, l);
    }
}

/* A topic that was made by sending is told to the name servers in a moment of the broker's own;
 * whoever looks for what was sent asks these. */
static void route_await(struct send *send)
{
    int status;
    struct omq_client *client = cli_client(send->cli, &status);
    int64_t until = now_ms() + cli_timeout_ms(send->cli);
    struct omq_queue *queues;
    struct omq_error why;
    size_t n;
    int code;
    while ((code = omq_topic_queues(client, send->topic, &queues, &n, &why)) == OMQ_NO_TOPIC &&
           now_ms() < until && !cli_stopped(send->cli))
        cli_wait(send->cli, ROUTE_LOOK_MS);
    if (!code)
        omq_queues_free(queues);
    if (code == OMQ_NO_TOPIC)
        cli_note(send->cli, "the name servers do not know of the topic yet");
}

/* "12 stored, 3 not stored, 1 unsure": how it stands, in full. */
static void account(const struct send *send, struct buf *out)
{
    uint64_t stored = send->counts[FATE_STORED] + send->counts[FATE_DUPLICATE];
    buf_printf(out, "%" PRIu64 " stored", stored);
    if (send->counts[FATE_DUPLICATE] + send->there > 0)
        buf_printf(out, " (%" PRIu64 " of them before)",
                   send->counts[FATE_DUPLICATE] + send->there);
    if (send->weak > 0)
        buf_printf(out, " (%" PRIu64 " of them not flushed or copied in time)", send->weak);
    if (send->counts[FATE_NOT_STORED] > 0)
        buf_printf(out, ", %" PRIu64 " refused", send->counts[FATE_NOT_STORED]);
    if (send->counts[FATE_UNSURE] > 0)
        buf_printf(out, ", %" PRIu64 " unsure: sent, but no answer came",
                   send->counts[FATE_UNSURE]);
    if (send->end != SERIAL_END && send->begun < send->end && !send->input_over &&
        !arg_has(send->cli, "resume")) /* of which some were sent before */
        buf_printf(out, ", of %" PRIu64, send->end);
    buf_add_u8(out, 0);
}

static int summary(struct send *send, const char *counts)
{
    double seconds = (double)(now_ms() - send->began_ms) / 1000;
    uint64_t stored = send->counts[FATE_STORED] + send->counts[FATE_DUPLICATE];
    if (send->end != 1)
        cli_note(send->cli, "%s in %.1f s (%.0f/s)", counts, seconds,
                 seconds > 0 ? (double)stored / seconds : 0);
    return STATUS_OK;
}

static int incomplete(struct send *send, const char *counts, const char *rest)
{
    struct cli *cli = send->cli;
    uint64_t stored = send->counts[FATE_STORED] + send->counts[FATE_DUPLICATE];
    int status = cli_stopped(cli)     ? STATUS_INTERRUPTED
                 : out_broken(cli)    ? STATUS_PIPE
                 : stored > 0         ? STATUS_PARTLY
                 : send->input_status ? send->input_status
                                      : status_of(send->why.code);
    if (send->end == 1 && !cli_stopped(cli) && send->counts[FATE_NOT_STORED] > 0)
        return cli_fail_omq(cli, &send->why, NULL);
    struct buf hint = buf_upto((size_t)1 << 30);
    buf_printf(&hint, "the same command%s sends the rest with: --resume '%s'",
               send->by_line ? " and input" : "", rest);
    buf_add_u8(&hint, 0);
    (void)cli_fail(cli, status, rest[0] && !hint.err ? (const char *)hint.at : NULL, "%s%s%s",
                   counts,
                   send->failed       ? ": "
                   : cli_stopped(cli) ? ": stopped"
                                      : "",
                   send->failed ? printable(cli, bytes_str(send->why.text)) : "");
    buf_clear(&hint);
    return status;
}

int send_report(struct send *send)
{
    settle(send);
    if (send->counts[FATE_STORED] + send->counts[FATE_DUPLICATE] > 0)
        route_await(send);
    struct buf counts = buf_upto(1 << 16), rest = buf_upto((size_t)1 << 30);
    account(send, &counts);
    bool left = serial_text(&send->serial, send->end, &rest);
    buf_add_u8(&rest, 0);
    int status;
    if (counts.err || rest.err)
        status = cli_fail(send->cli, STATUS_FAILED, NULL, "no memory to say what was done");
    else if (!left && !send->input_status)
        status = summary(send, (const char *)counts.at);
    else
        status = incomplete(send, (const char *)counts.at, (const char *)rest.at);
    buf_clear(&counts);
    buf_clear(&rest);
    return status;
}
