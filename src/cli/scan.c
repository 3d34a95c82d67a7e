/* scan.c - a merge of queues by the time of storing. */
#include "cli/scan.h"

static int queue_bounds(struct cli *cli, struct omq_client *client, struct scan_queue *q)
{
    struct omq_error why;
    if (omq_offset(client, &q->queue, OMQ_BEGIN, &q->next, &why) ||
        omq_offset(client, &q->queue, OMQ_END, &q->end, &why))
        return cli_fail_omq(cli, &why, NULL);
    return STATUS_OK;
}

int scan_open(struct scan *scan, struct cli *cli, const char *topic)
{
    *scan = (struct scan){.cli = cli};
    int status;
    struct omq_client *client = cli_client(cli, &status);
    if (!client)
        return status;
    struct omq_queue *queues;
    struct omq_error why;
    size_t n;
    if (omq_topic_readable(client, topic, &queues, &n, &why))
        return cli_fail_omq(cli, &why, NULL);
    scan->queues = arena_alloc(&cli->arena, (n + 1) * sizeof *scan->queues);
    if (!scan->queues)
        status = cli_fail(cli, STATUS_FAILED, NULL, "no memory for %zu queues", n);
    for (size_t i = 0; !status && i < n; i++) {
        struct bytes name =
            arena_copy(&cli->arena, bytes_of(queues[i].broker, strlen(queues[i].broker) + 1));
        scan->queues[i].queue = (struct omq_queue){topic, (const char *)name.at, queues[i].id};
        status = name.at ? queue_bounds(cli, client, &scan->queues[i])
                         : cli_fail(cli, STATUS_FAILED, NULL, "no memory for %zu queues", n);
        scan->n += !status;
    }
    omq_queues_free(queues);
    return status;
}

static int at_time(struct scan *scan, int64_t time_ms, bool is_end)
{
    int status;
    struct omq_client *client = cli_client(scan->cli, &status);
    for (size_t i = 0; !status && i < scan->n; i++) {
        struct scan_queue *q = &scan->queues[i];
        struct omq_error why;
        int64_t offset;
        if (omq_offset_at(client, &q->queue, time_ms, &offset, &why))
            return cli_fail_omq(scan->cli, &why, NULL);
        if (is_end && offset < q->end)
            q->end = offset;
        else if (!is_end && offset > q->next)
            q->next = offset;
    }
    return status;
}

int scan_begin_at(struct scan *scan, int64_t time_ms)
{
    return at_time(scan, time_ms, false);
}

int scan_end_at(struct scan *scan, int64_t time_ms)
{
    return at_time(scan, time_ms, true);
}

uint64_t scan_left(const struct scan *scan)
{
    uint64_t left = 0;
    for (size_t i = 0; i < scan->n; i++)
        if (scan->queues[i].end > scan->queues[i].next)
            left += (uint64_t)(scan->queues[i].end - scan->queues[i].next);
    return left;
}

/* Reads on until there is a message or the end of the range. */
static int queue_fill(struct scan *scan, struct scan_queue *q)
{
    int status;
    struct omq_client *client = cli_client(scan->cli, &status);
    while (!status && q->at == q->found.n && q->next < q->end && !cli_stopped(scan->cli)) {
        struct omq_read read = {
            .queue = q->queue, .offset = q->next, .filter = scan->filter, .max = 256};
        struct omq_error why;
        int64_t next;
        omq_found_free(&q->found);
        q->at = 0;
        if (omq_read(client, &read, &q->found, &next, &why))
            return cli_fail_omq(scan->cli, &why, NULL);
        if (q->found.n == 0 && next <= q->next) /* the same question would not end */
            return cli_fail(scan->cli, STATUS_FAILED, "try again in a moment",
                            "broker %s has nothing at offset %lld of queue %d, which ends at %lld",
                            q->queue.broker, (long long)q->next, q->queue.id, (long long)q->end);
        if (q->found.n == 0)
            q->next = next; /* what lies between is not wanted, or is no more */
    }
    return status;
}

static const struct omq_delivery *queue_first(const struct scan_queue *q)
{
    if (q->at == q->found.n || q->found.messages[q->at]->offset >= q->end)
        return NULL;
    return q->found.messages[q->at];
}

int scan_next(struct scan *scan, const struct omq_delivery **out, struct scan_queue **where)
{
    struct scan_queue *best = NULL;
    *out = NULL;
    for (size_t i = 0; i < scan->n; i++) {
        struct scan_queue *q = &scan->queues[i];
        int status = queue_fill(scan, q);
        if (status)
            return status;
        const struct omq_delivery *d = queue_first(q);
        if (d && (!best || d->stored_ms < (*out)->stored_ms)) {
            best = q;
            *out = d;
        }
    }
    if (best) {
        best->next = (*out)->offset + 1;
        best->at++;
    }
    if (where)
        *where = best;
    return STATUS_OK;
}

void scan_close(struct scan *scan)
{
    for (size_t i = 0; i < scan->n; i++)
        omq_found_free(&scan->queues[i].found);
    scan->n = 0;
}
