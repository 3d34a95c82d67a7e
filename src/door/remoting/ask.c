/* ask.c - questions that only a client can answer, asked on behalf of another.
 *
 *     asker's loop     a request comes in; ask_client
 *     client's loop    the question leaves with a number of its own and waits for the answer
 *     asker's loop     `done` answers the request
 *
 * A question ends once: by its answer, after ASK_SECONDS, or with the client's connection; whatever
 * ended it, `done` is called and then it is freed. Between loops it travels as a post and belongs
 * to nobody else. How many wait for one client, and how many bytes all of them keep, is limited. */
#include "door/remoting/door_int.h"

#include <stdlib.h>

#define ASK_SECONDS   10 /* as Broker2Client.callClient waits */
#define ASKS_MAX      256
#define ASK_BYTES_MAX ((size_t)64 << 20)

static void ask_arrives(struct post *post);
static void ask_ends(struct ask *a, enum err err);

void asks_seat_init(struct seat *seat)
{
    list_init(&seat->asks);
}

static bool bytes_take(struct door *door, size_t n)
{
    if (atomic_fetch_add(&door->ask_bytes, n) + n <= ASK_BYTES_MAX)
        return true;
    atomic_fetch_sub(&door->ask_bytes, n);
    return false;
}

void *ask_make(const struct request *rq, size_t size, const struct words *words)
{
    struct door *door = rq->session->door;
    size_t texts = words->body.len;
    for (size_t i = 0; i < words->n_fields; i++)
        texts += words->fields[i].name.len + words->fields[i].value.len;
    size_t fields = words->n_fields * sizeof *words->fields;
    if (!bytes_take(door, size + fields + texts))
        return NULL;
    struct ask *a = calloc(1, size + fields + texts);
    if (!a) {
        atomic_fetch_sub(&door->ask_bytes, size + fields + texts);
        return NULL;
    }
    a->bytes = size + fields + texts;
    a->door = door;
    a->to = return_address_of(rq);
    counted_hold(&a->to.session->counted);
    struct field *copies = (struct field *)((uint8_t *)a + size);
    uint8_t *room = (uint8_t *)(copies + words->n_fields);
    a->words = *words;
    a->words.fields = copies;
    for (size_t i = 0; i < words->n_fields; i++) {
        copies[i].name = keep_text(&room, words->fields[i].name);
        copies[i].value = keep_text(&room, words->fields[i].value);
    }
    a->words.body = keep_text(&room, words->body);
    return a;
}

static void ask_free(struct ask *a)
{
    counted_drop(&a->client->counted);
    counted_drop(&a->to.session->counted);
    atomic_fetch_sub(&a->door->ask_bytes, a->bytes);
    free(a->answer);
    free(a);
}

void ask_client(struct ask *a, struct counted *client, void (*done)(struct ask *a))
{
    a->client = (struct session *)client;
    a->done = done;
    a->post = (struct post){.run = ask_arrives};
    loop_post(a->client->home, &a->post);
}

/* ---- on the client's loop ---- */

static void tick(void *user)
{
    struct seat *seat = user;
    seat->ask_tick++;
    for (struct link *k; (k = list_first(&seat->asks));) {
        struct ask *a = list_entry(k, struct ask, by_time);
        if (seat->ask_tick - a->tick <= ASK_SECONDS)
            return;
        ask_ends(a, ERR_TIMEOUT);
    }
    timer_stop(seat->ask_timer);
}

static enum err ask_wait(struct ask *a)
{
    struct seat *seat = a->client->seat;
    if (!seat->ask_timer) {
        enum err err = timer_open(seat->loop, tick, seat, &seat->ask_timer);
        if (err)
            return err;
    }
    if (list_empty(&seat->asks))
        timer_start(seat->ask_timer, 1000, 1000);
    a->tick = seat->ask_tick;
    list_add_tail(&seat->asks, &a->by_time);
    list_add_tail(&a->client->asked, &a->by_client);
    a->client->n_asked++;
    return OK;
}

static void ask_arrives(struct post *post)
{
    struct ask *a = list_entry(post, struct ask, post);
    struct session *client = a->client;
    a->opaque = atomic_fetch_add(&a->door->next_opaque, 1);
    enum err err = client->n_asked >= ASKS_MAX ? ERR_BUSY : OK;
    if (!err && !session_say(client, &a->words, a->opaque))
        err = ERR_CLOSED;
    if (!err)
        err = ask_wait(a);
    if (err)
        ask_ends(a, err);
}

static void ask_returns(struct post *post)
{
    struct ask *a = list_entry(post, struct ask, post);
    a->done(a);
    ask_free(a);
}

/* A house that closes its loops takes no more posts for them. */
static void ask_ends(struct ask *a, enum err err)
{
    if (link_in_list(&a->by_client)) {
        list_remove(&a->by_client);
        list_remove(&a->by_time);
        a->client->n_asked--;
    }
    a->err = err;
    a->post.run = ask_returns;
    if (atomic_load(&a->door->closing))
        ask_free(a);
    else
        loop_post(a->to.session->home, &a->post);
}

static enum err answer_keep(struct ask *a, const struct head *head, struct bytes body)
{
    size_t size = head->remark.len + body.len;
    if (!bytes_take(a->door, size))
        return ERR_BUSY;
    a->bytes += size;
    a->answer = malloc(size + 1);
    if (!a->answer)
        return ERR_NO_MEMORY;
    uint8_t *room = a->answer;
    a->code = head->code;
    a->remark = keep_text(&room, head->remark);
    a->body = keep_text(&room, body);
    return OK;
}

void ask_answered(struct session *client, const struct head *head, struct bytes body)
{
    list_each(k, &client->asked) {
        struct ask *a = list_entry(k, struct ask, by_client);
        if (a->opaque == head->opaque) {
            ask_ends(a, answer_keep(a, head, body));
            return;
        }
    }
}

void asks_session_closed(struct session *client)
{
    list_each(k, &client->asked)
        ask_ends(list_entry(k, struct ask, by_client), ERR_CLOSED);
}
