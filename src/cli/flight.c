/* flight.c - messages under way: a slot for each, and a list of those that have landed. */
#include "cli/flight.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BYTES_UNDER_WAY  ((size_t)64 << 20)
#define MESSAGE_SIZE_MAX ((size_t)8 << 20)
#define FEW              32 /* under way in the beginning */
#define BUSY_PAUSE_MS    100
#define BUSY_PATIENCE_MS 30000 /* so long a message is tried again when the broker is busy */

struct slot {
    struct flight *flight;
    struct slot *next;           /* of those that are free, that have landed, that come again */
    struct omq_message *message; /* a copy */
    int64_t begun_ms;
    struct landed landed;
};

struct flight {
    struct cli *cli;
    struct omq_producer *producer;
    struct slot *slots, *free;
    struct slot *again, **again_end; /* refused because the broker was busy */
    int64_t again_ms;                /* when these are tried */
    size_t under_way, bytes, allowed, max;
    int bell;

    pthread_mutex_t key; /* guards what is below */
    struct slot *landed, **landed_end;
};

const char *fate_text(enum fate fate)
{
    static const char *const texts[] = {"stored", "duplicate", "not stored", "unsure"};
    return texts[fate];
}

/* The broker may have a message whose answer never came, or could not be read. */
static enum fate fate_of(int code)
{
    return code == OMQ_TIMEOUT || code == OMQ_LOST || code == OMQ_CLOSED || code == OMQ_PROTOCOL ||
                   code == OMQ_KEPT
               ? FATE_UNSURE
               : FATE_NOT_STORED;
}

static int producer_open(struct cli *cli, const struct flight_limits *limits,
                         struct omq_producer **out)
{
    int status;
    struct omq_client *client = cli_client(cli, &status);
    if (!client)
        return status;
    struct omq_producer_options options = {
        .group = limits->group,
        .timeout_ms = cli_timeout_ms(cli),
        .retry_undone = true,
        .avoid_slow = true,
        .compression = limits->compression,
        .compress_over = limits->compress_over,
        .max_message_size = MESSAGE_SIZE_MAX, /* the broker's own limit counts */
        .trace = limits->trace,
    };
    struct omq_error why;
    return omq_producer_open(client, &options, out, &why) ? cli_fail_omq(cli, &why, NULL)
                                                          : STATUS_OK;
}

int flight_open(struct cli *cli, const struct flight_limits *limits, struct flight **out)
{
    struct flight *f = calloc(1, sizeof *f);
    struct slot *slots = calloc(limits->messages, sizeof *slots);
    int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int status = f && slots && bell >= 0
                     ? producer_open(cli, limits, &f->producer)
                     : cli_fail(cli, STATUS_FAILED, NULL, "no memory for %zu messages under way",
                                limits->messages);
    if (status) {
        if (bell >= 0)
            (void)close(bell);
        free(slots);
        free(f);
        return status;
    }
    f->cli = cli;
    f->slots = slots;
    f->bell = bell;
    f->max = limits->messages;
    f->allowed = f->max < FEW ? f->max : FEW;
    f->again_end = &f->again;
    f->landed_end = &f->landed;
    (void)pthread_mutex_init(&f->key, NULL);
    for (size_t i = limits->messages; i-- > 0;) {
        slots[i] = (struct slot){.flight = f, .next = f->free};
        f->free = &slots[i];
    }
    *out = f;
    return STATUS_OK;
}

void flight_close(struct flight *f)
{
    if (!f)
        return;
    omq_producer_close(f->producer); /* no callback runs behind this */
    (void)close(f->bell);
    (void)pthread_mutex_destroy(&f->key);
    for (size_t i = 0; i < f->max; i++)
        free(f->slots[i].message);
    free(f->slots);
    free(f);
}

bool flight_room(const struct flight *f, size_t body_size)
{
    return f->free && f->under_way < f->allowed && !f->again &&
           (f->bytes == 0 || f->bytes + body_size <= BYTES_UNDER_WAY);
}

size_t flight_under_way(const struct flight *f)
{
    return f->under_way;
}

void flight_wait(struct flight *f, int fd, int64_t ms)
{
    int64_t again = f->again ? f->again_ms - now_ms() : ms;
    int fds[] = {f->bell, fd};
    cli_wait_for(f->cli, fds, 2, again < ms ? again : ms);
}

/* ---- a copy of a message: one block ---- */

static const char *text_copy(char **at, const char *text)
{
    if (!text)
        return NULL;
    char *start = *at;
    *at = stpcpy(start, text) + 1;
    return start;
}

static size_t text_size(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

static struct omq_message *message_copy(const struct omq_message *m)
{
    size_t size = sizeof *m + m->n_properties * sizeof *m->properties + m->body_size +
                  text_size(m->topic) + text_size(m->tag) + text_size(m->keys) +
                  text_size(m->sharding_key) + text_size(m->id);
    for (size_t i = 0; i < m->n_properties; i++)
        size += text_size(m->properties[i].name) + text_size(m->properties[i].value);
    struct omq_message *copy = malloc(size);
    if (!copy)
        return NULL;
    struct omq_property *properties = (struct omq_property *)(copy + 1);
    char *at = (char *)(properties + m->n_properties);
    *copy = *m;
    copy->properties = properties;
    for (size_t i = 0; i < m->n_properties; i++) {
        properties[i].name = text_copy(&at, m->properties[i].name);
        properties[i].value = text_copy(&at, m->properties[i].value);
    }
    copy->topic = text_copy(&at, m->topic);
    copy->tag = text_copy(&at, m->tag);
    copy->keys = text_copy(&at, m->keys);
    copy->sharding_key = text_copy(&at, m->sharding_key);
    copy->id = text_copy(&at, m->id);
    copy->body = m->body_size > 0 ? memcpy(at, m->body, m->body_size) : NULL;
    return copy;
}

/* ---- there and back ---- */

static void land(struct slot *slot)
{
    struct flight *f = slot->flight;
    slot->next = NULL;
    (void)pthread_mutex_lock(&f->key);
    bool first = !f->landed;
    *f->landed_end = slot;
    f->landed_end = &slot->next;
    if (first)
        (void)!write(f->bell, &(uint64_t){1}, sizeof(uint64_t));
    (void)pthread_mutex_unlock(&f->key);
}

static void answered(void *user, const struct omq_receipt *receipt, const struct omq_error *why)
{
    struct slot *slot = user;
    struct landed *landed = &slot->landed;
    if (receipt) {
        landed->receipt = *receipt;
        landed->fate = receipt->duplicate ? FATE_DUPLICATE : FATE_STORED;
    } else {
        landed->why = *why;
        landed->fate = fate_of(why->code);
    }
    land(slot);
}

static void slot_send(struct slot *slot)
{
    struct omq_error why;
    if (omq_send_async(slot->flight->producer, slot->message, answered, slot, &why)) {
        slot->landed.why = why;
        slot->landed.fate = FATE_NOT_STORED; /* it did not begin */
        land(slot);
    }
}

void flight_send(struct flight *f, const struct omq_message *message, uint64_t number, void *what)
{
    struct slot *slot = f->free;
    invariant(slot);
    f->free = slot->next;
    f->under_way++;
    f->bytes += message->body_size;
    slot->begun_ms = now_ms();
    slot->landed = (struct landed){.number = number, .what = what};
    if (message->id)
        (void)snprintf(slot->landed.receipt.id, sizeof slot->landed.receipt.id, "%s", message->id);
    slot->message = message_copy(message);
    if (slot->message) {
        slot_send(slot);
        return;
    }
    f->bytes -= message->body_size;
    slot->landed.fate = FATE_NOT_STORED;
    slot->landed.why = (struct omq_error){.code = OMQ_NO_MEMORY, .text = "no memory for a message"};
    land(slot);
}

/* A broker that is busy has done nothing, and is asked for less from here on. */
static bool comes_again(struct flight *f, struct slot *slot)
{
    int64_t now = now_ms();
    if (slot->landed.fate != FATE_NOT_STORED || slot->landed.why.code != OMQ_BUSY ||
        !slot->message || cli_stopped(f->cli) || now - slot->begun_ms > BUSY_PATIENCE_MS)
        return false;
    if (!f->again) { /* the first of a flood */
        f->allowed = f->allowed > 1 ? f->allowed / 2 : 1;
        f->again_ms = now + BUSY_PAUSE_MS;
    }
    slot->next = NULL;
    *f->again_end = slot;
    f->again_end = &slot->next;
    return true;
}

static void landed_take(struct flight *f, struct slot *slot, flight_each *each, void *user)
{
    if (comes_again(f, slot))
        return;
    if (slot->landed.fate == FATE_STORED && f->allowed < f->max)
        f->allowed++;
    f->under_way--;
    f->bytes -= slot->message ? slot->message->body_size : 0;
    free(slot->message);
    slot->message = NULL;
    each(user, &slot->landed);
    slot->next = f->free;
    f->free = slot;
}

/* As many as are allowed; the others wait for the next pause. */
static void again_send(struct flight *f)
{
    size_t waiting = 0;
    for (struct slot *slot = f->again; slot; slot = slot->next)
        waiting++;
    size_t out = f->under_way - waiting;
    bool stopped = cli_stopped(f->cli);
    while (f->again && (stopped || out < f->allowed)) {
        struct slot *slot = f->again;
        f->again = slot->next;
        if (stopped)
            land(slot); /* as it is: not stored */
        else
            slot_send(slot);
        out++;
    }
    if (!f->again)
        f->again_end = &f->again;
    f->again_ms = now_ms() + BUSY_PAUSE_MS;
}

void flight_land(struct flight *f, flight_each *each, void *user)
{
    uint64_t rung;
    (void)!read(f->bell, &rung, sizeof rung);
    if (f->again && (now_ms() >= f->again_ms || cli_stopped(f->cli)))
        again_send(f);
    (void)pthread_mutex_lock(&f->key);
    struct slot *slot = f->landed;
    f->landed = NULL;
    f->landed_end = &f->landed;
    (void)pthread_mutex_unlock(&f->key);
    while (slot) {
        struct slot *next = slot->next;
        landed_take(f, slot, each, user);
        slot = next;
    }
}
