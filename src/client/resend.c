/* resend.c - the local retry table of a producer: what could not be sent is sent again.
 *
 * A message whose callback would hear of a failure that may pass is written to a file first
 * (kept.c), by the thread that calls back. Once a second the loop goes through the file, one
 * message at a time: one that a broker has taken is marked; one that is refused is left for the
 * next round, so that it does not stand in the way of the others; when no broker can be reached the
 * round ends. Nothing leaves the file unless it was stored. All copies of a message have its id. */
#include "client/producer_int.h"

#include <stdlib.h>

#define EVERY_MS 1000

struct resend {
    struct omq_producer *producer;
    struct kept *kept;
    struct timer *timer;
    struct buf room; /* the record that is under way */
    uint64_t at;     /* where it stands */
    size_t size;
    size_t refused; /* in this round */
};

static void resend_turn(void *user);

static void timer_make(void *user)
{
    struct resend *resend = user;
    if (timer_open(resend->producer->client->loop, resend_turn, resend, &resend->timer))
        resend->timer = NULL; /* no memory, which resend_open sees */
}

static void resend_free(struct resend *resend)
{
    kept_close(resend->kept);
    buf_clear(&resend->room);
    free(resend);
}

enum err resend_open(struct omq_producer *producer, struct omq_error *why)
{
    const struct omq_producer_options *o = &producer->options;
    struct resend *resend = calloc(1, sizeof *resend);
    if (!resend)
        return ERR_NO_MEMORY;
    resend->producer = producer;
    resend->room = buf_upto(SIZE_MAX);
    enum err err =
        kept_open(o->retry_table, (uint64_t)o->retry_table_mib << 20, &resend->kept, why);
    if (!err) {
        client_on_loop(producer->client, timer_make, resend);
        err = resend->timer ? OK : ERR_NO_MEMORY;
    }
    if (err) {
        resend_free(resend);
        return err;
    }
    atomic_fetch_add(&producer->client->stats.kept, kept_waiting(resend->kept));
    producer->resend = resend;
    return OK;
}

void resend_start(struct resend *resend)
{
    if (resend)
        timer_start(resend->timer, 0, 0);
}

void resend_stop(struct resend *resend)
{
    if (resend && resend->timer)
        timer_close(take(&resend->timer));
}

void resend_close(struct resend *resend)
{
    if (!resend)
        return;
    atomic_fetch_sub(&resend->producer->client->stats.kept, kept_waiting(resend->kept));
    resend_free(resend);
}

/* ---- keeping ---- */

static bool may_pass(int code)
{
    return code == OMQ_TIMEOUT || code == OMQ_NETWORK || code == OMQ_LOST || code == OMQ_BUSY ||
           code == OMQ_CLOSED;
}

bool resend_keep(const struct job *job)
{
    const struct resend *resend = job->producer->resend;
    if (!resend || !may_pass(job->code) || job->pinned_id >= 0 || job->sharded)
        return false;
    const struct kept_record record = {.sys_flag = job->sys_flag,
                                       .flag = job->flag,
                                       .topic = job->topic,
                                       .props = job->props,
                                       .body = job->body};
    if (!kept_add(resend->kept, &record))
        return false;
    atomic_fetch_add(&job->producer->client->stats.kept, 1);
    return true;
}

/* ---- sending again, on the loop ---- */

static struct job *job_of(struct omq_producer *producer, const struct kept_record *record)
{
    char *topic = bytes_text(record->topic);
    const struct omq_message like = {.topic = topic, .flag = record->flag};
    struct job *job =
        topic ? job_alloc(producer, &like, record->props.len, record->body.len) : NULL;
    free(topic);
    if (!job)
        return NULL;
    if (record->props.len > 0)
        memcpy(job->space, record->props.at, record->props.len);
    if (record->body.len > 0)
        memcpy(job->space + record->props.len, record->body.at, record->body.len);
    job->how = JOB_KEPT;
    job->sys_flag = record->sys_flag;
    job->plain_size = record->body.len;
    text_copy(job->receipt.id, sizeof job->receipt.id, props_marks(record->props).unique);
    return job;
}

static void round_end(struct resend *resend)
{
    resend->at = resend->refused = 0;
    timer_start(resend->timer, EVERY_MS, 0);
}

static void resend_turn(void *user)
{
    struct resend *resend = user;
    struct omq_producer *producer = resend->producer;
    struct kept_record record;
    if (producer->closing || producer->leaving)
        return;
    if (kept_waiting(resend->kept) <= resend->refused ||
        kept_next(resend->kept, &resend->at, &resend->room, &record)) {
        round_end(resend);
        return;
    }
    struct job *job = job_of(producer, &record);
    if (!job) {
        round_end(resend);
        return;
    }
    resend->size = record.size;
    job_begin_here(job, (uint64_t)producer->options.timeout_ms);
}

void resend_over(const struct job *job)
{
    struct resend *resend = job->producer->resend;
    if (job->code == OMQ_OK) {
        kept_sent(resend->kept, resend->at);
        atomic_fetch_sub(&job->producer->client->stats.kept, 1);
    }
    if (!resend->timer || job->producer->closing || job->producer->leaving)
        return;
    if (may_pass(job->code) || kept_waiting(resend->kept) == 0) {
        round_end(resend);
        return;
    }
    if (job->code != OMQ_OK) {
        resend->refused++;
        client_log(job->producer->client, OMQ_WARN, "message %s stays in the retry table: %s",
                   job->receipt.id, job->why ? job->why->text : omq_code_text(job->code));
    }
    resend->at += resend->size;
    timer_start(resend->timer, 0, 0);
}
