/* call.c - any request of the protocol, for those who administer: the answer as it came.
 *
 * Questions are asked in a batch, of which a window is under way at a time. A slot of the window
 * takes the next question when its own is answered.
 */
#include "client/client_int.h"

#include <stdio.h>
#include <stdlib.h>

#define WINDOW 64

struct batch;

struct slot {
    struct batch *batch;
    struct omq_question *question;
    struct call call;      /* to the server that was named */
    struct name_call name; /* to a name server; its call has the same request */
};

struct batch {
    struct omq_client *client;
    struct omq_question *questions;
    size_t n, begun, ended;
    uint64_t timeout_ms;
    struct slot *slots;
    struct post post;
    void (*over)(struct batch *batch); /* loop: all have ended; it may be gone afterwards */
    struct waiter waiter;
};

/* A question that nobody waits for, with copies of all that it needs behind it. */
struct lone {
    struct batch batch;
    struct slot slot;
    struct omq_question question;
    struct task task;
    omq_called *done;
    void *user;
    struct omq_property fields[];
};

static char *text_into(char **at, struct bytes text)
{
    char *start = *at;
    if (text.len > 0)
        memcpy(start, text.at, text.len);
    start[text.len] = 0;
    *at += text.len + 1;
    return start;
}

/* One block: the answer, its fields, their texts, the body. */
static struct omq_answer *answer_copy(const struct head *head, struct bytes body)
{
    size_t size = sizeof(struct omq_answer) + head->n_fields * sizeof(struct omq_property) +
                  head->remark.len + 1 + body.len + 1;
    for (size_t i = 0; i < head->n_fields; i++)
        size += head->fields[i].name.len + head->fields[i].value.len + 2;
    struct omq_answer *copy = malloc(size);
    if (!copy)
        return NULL;
    struct omq_property *fields = (struct omq_property *)(copy + 1);
    char *at = (char *)(fields + head->n_fields);
    for (size_t i = 0; i < head->n_fields; i++) {
        fields[i].name = text_into(&at, head->fields[i].name);
        fields[i].value = text_into(&at, head->fields[i].value);
    }
    *copy = (struct omq_answer){
        .remark = text_into(&at, head->remark),
        .fields = fields,
        .n_fields = head->n_fields,
        .body = text_into(&at, body),
        .body_size = body.len,
    };
    return copy;
}

static void slot_begin(struct slot *slot);

static void slot_answered(struct slot *slot, const struct answer *answer)
{
    struct batch *batch = slot->batch;
    struct omq_question *q = slot->question;
    const char *name = request_name(q->request), *server = q->server;
    char number[24];
    (void)snprintf(number, sizeof number, "request %d", q->request);
    if (!name)
        name = number;
    if (answer->err) {
        int code =
            answer->err == ERR_CLOSED && answer->maybe_done ? OMQ_LOST : omq_code_of(answer->err);
        q->code = omq_fail(&q->why, batch->client->closing ? OMQ_CLOSED : code,
                           "%s: no answer from %.200s: %s", name,
                           server ? server : "the name servers", answer->reason);
    } else if (answer->head->code != RES_SUCCESS) {
        q->code = omq_refused(&q->why, answer->head, name);
    } else {
        q->answer = answer_copy(answer->head, answer->body);
        q->code = q->answer ? OMQ_OK : omq_fail(&q->why, OMQ_NO_MEMORY, "no memory for an answer");
    }
    batch->ended++;
    for (; batch->client->closing && batch->begun < batch->n; batch->begun++, batch->ended++) {
        q = &batch->questions[batch->begun];
        q->code = omq_fail(&q->why, OMQ_CLOSED, "the client was closed before this was asked");
    }
    if (batch->begun < batch->n)
        slot_begin(slot);
    else if (batch->ended == batch->n)
        batch->over(batch);
}

static void server_answered(struct call *call, const struct answer *answer)
{
    slot_answered(list_entry(call, struct slot, call), answer);
}

static void name_answered(struct name_call *name, const struct answer *answer)
{
    slot_answered(list_entry(name, struct slot, name), answer);
}

static void fields_put(const struct omq_question *q, struct frame_out *frame)
{
    for (size_t i = 0; i < q->n_fields; i++)
        frame_put(frame, bytes_str(q->fields[i].name), bytes_str(q->fields[i].value));
}

static void server_put(const struct call *call, struct frame_out *frame)
{
    fields_put(list_entry(call, struct slot, call)->question, frame);
}

static void name_put(const struct call *call, struct frame_out *frame)
{
    fields_put(list_entry(call, struct slot, name.call)->question, frame);
}

/* Loop. The slot is free, and a question is left. */
static void slot_begin(struct slot *slot)
{
    struct batch *batch = slot->batch;
    struct omq_question *q = slot->question = &batch->questions[batch->begun++];
    size_t room = 0;
    for (size_t i = 0; i < q->n_fields; i++)
        room += strlen(q->fields[i].name) + strlen(q->fields[i].value);
    slot->call = (struct call){.code = q->request,
                               .put = server_put,
                               .room = room,
                               .body = bytes_of(q->body, q->body_size),
                               .done = server_answered};
    slot->name = (struct name_call){.call = slot->call, .done = name_answered};
    slot->name.call.put = name_put;
    if (q->server)
        call_start(batch->client, bytes_str(q->server), &slot->call, batch->timeout_ms);
    else
        name_call_start(batch->client, &slot->name, batch->timeout_ms);
}

static void batch_begin(struct post *post)
{
    struct batch *batch = list_entry(post, struct batch, post);
    for (size_t i = 0; i < WINDOW && i < batch->n; i++)
        slot_begin(&batch->slots[i]);
}

static void batch_tell(struct batch *batch)
{
    waiter_tell(&batch->waiter);
}

static int question_check(const struct omq_question *q, struct omq_error *why)
{
    if (!q->fields && q->n_fields > 0)
        return omq_fail(why, OMQ_INVALID, "a request has fields, but not where they are");
    if (q->n_fields > HEAD_FIELDS_MAX)
        return omq_fail(why, OMQ_INVALID, "a request has at most %d fields", HEAD_FIELDS_MAX);
    for (size_t i = 0; i < q->n_fields; i++)
        if (!q->fields[i].name || !q->fields[i].name[0] || !q->fields[i].value)
            return omq_fail(why, OMQ_INVALID, "field %zu has no name or no value", i);
    return OMQ_OK;
}

int omq_call_all(struct omq_client *client, struct omq_question *questions, size_t n,
                 int timeout_ms, struct omq_error *why)
{
    if (!client || (!questions && n > 0))
        return omq_fail(why, OMQ_INVALID, "a call needs a client and a question");
    if (loop_is_mine(client->loop))
        return omq_fail(why, OMQ_MISUSE, "a call that waits cannot be made from `choose` or `log`");
    for (size_t i = 0; i < n; i++) {
        int code = question_check(&questions[i], why);
        if (code)
            return code;
        questions[i].code = OMQ_CLOSED;
        questions[i].answer = NULL;
    }
    if (n == 0)
        return OMQ_OK;
    struct batch batch = {.client = client,
                          .questions = questions,
                          .n = n,
                          .timeout_ms =
                              (uint64_t)(timeout_ms > 0 ? timeout_ms : client->options.timeout_ms),
                          .slots = calloc(n < WINDOW ? n : WINDOW, sizeof *batch.slots),
                          .over = batch_tell,
                          .post.run = batch_begin};
    if (!batch.slots)
        return omq_fail(why, OMQ_NO_MEMORY, "no memory for %zu questions", n);
    for (size_t i = 0; i < n && i < WINDOW; i++)
        batch.slots[i].batch = &batch;
    waiter_init(&batch.waiter);
    const struct call *only = questions->server ? &batch.slots->call : &batch.slots->name.call;
    client_wait(client, &batch.post, &batch.waiter, n == 1 ? only : NULL);
    free(batch.slots);
    return OMQ_OK;
}

int omq_call(struct omq_client *client, const char *server, int request,
             const struct omq_property *fields, size_t n_fields, const void *body, size_t body_size,
             int timeout_ms, struct omq_answer **out, struct omq_error *why)
{
    if (!out)
        return omq_fail(why, OMQ_INVALID, "a call needs somewhere to put the answer");
    struct omq_question q = {.server = server,
                             .request = request,
                             .fields = fields,
                             .n_fields = n_fields,
                             .body = body,
                             .body_size = body_size};
    int code = omq_call_all(client, &q, 1, timeout_ms, why);
    if (code)
        return code;
    if (q.code && why)
        *why = q.why;
    if (!q.code)
        *out = q.answer;
    return q.code;
}

/* ---- without waiting ---- */

static void lone_done(struct task *task)
{
    struct lone *lone = list_entry(task, struct lone, task);
    const struct omq_question *q = &lone->question;
    lone->done(lone->user, q->answer, q->code ? &q->why : NULL);
    omq_answer_free(q->answer);
    free(lone);
}

static void lone_over(struct batch *batch)
{
    struct lone *lone = list_entry(batch, struct lone, batch);
    client_call_back(batch->client, &lone->task);
}

static struct lone *lone_make(const struct omq_question *q)
{
    size_t server = q->server ? strlen(q->server) + 1 : 0, texts = server + q->body_size;
    for (size_t i = 0; i < q->n_fields; i++)
        texts += strlen(q->fields[i].name) + strlen(q->fields[i].value) + 2;
    struct lone *lone = calloc(1, sizeof *lone + q->n_fields * sizeof lone->fields[0] + texts + 1);
    if (!lone)
        return NULL;
    char *at = (char *)(lone->fields + q->n_fields);
    for (size_t i = 0; i < q->n_fields; i++) {
        lone->fields[i].name = text_into(&at, bytes_str(q->fields[i].name));
        lone->fields[i].value = text_into(&at, bytes_str(q->fields[i].value));
    }
    lone->question = *q;
    lone->question.fields = lone->fields;
    lone->question.server = q->server ? text_into(&at, bytes_str(q->server)) : NULL;
    lone->question.body = text_into(&at, bytes_of(q->body, q->body_size));
    return lone;
}

int omq_call_async(struct omq_client *client, const struct omq_question *question, int timeout_ms,
                   omq_called *done, void *user, struct omq_error *why)
{
    if (!client || !question || !done)
        return omq_fail(why, OMQ_INVALID, "a call needs a client, a question and `done`");
    int code = question_check(question, why);
    if (code)
        return code;
    struct hands *hands;
    struct lone *lone = client_callbacks(client, &hands) ? NULL : lone_make(question);
    if (!lone)
        return omq_fail(why, OMQ_NO_MEMORY, "no memory for a question");
    lone->done = done;
    lone->user = user;
    lone->task.run = lone_done;
    lone->slot.batch = &lone->batch;
    lone->batch = (struct batch){
        .client = client,
        .questions = &lone->question,
        .n = 1,
        .timeout_ms = (uint64_t)(timeout_ms > 0 ? timeout_ms : client->options.timeout_ms),
        .slots = &lone->slot,
        .over = lone_over,
        .post.run = batch_begin};
    if (client_post(client, &lone->batch.post))
        return OMQ_OK;
    free(lone);
    return omq_fail(why, OMQ_CLOSED, "the client is being closed");
}

void omq_answer_free(struct omq_answer *answer)
{
    free(answer);
}

const char *omq_answer_field(const struct omq_answer *answer, const char *name)
{
    for (size_t i = answer ? answer->n_fields : 0; i-- > 0;)
        if (strcmp(answer->fields[i].name, name) == 0)
            return answer->fields[i].value;
    return NULL;
}
