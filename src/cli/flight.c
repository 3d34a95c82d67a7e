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

struct slot {
    struct flight *flight;
    struct slot *next; /* of those that are free, or that have landed */
    size_t size;
    struct landed landed;
};

struct flight {
    struct omq_producer *producer;
    struct slot *slots, *free;
    size_t under_way, bytes;
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
    f->slots = slots;
    f->bell = bell;
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
    free(f->slots);
    free(f);
}

bool flight_room(const struct flight *f, size_t body_size)
{
    return f->free && (f->bytes == 0 || f->bytes + body_size <= BYTES_UNDER_WAY);
}

size_t flight_under_way(const struct flight *f)
{
    return f->under_way;
}

int flight_fd(const struct flight *f)
{
    return f->bell;
}

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

void flight_send(struct flight *f, const struct omq_message *message, uint64_t number)
{
    struct slot *slot = f->free;
    invariant(slot);
    f->free = slot->next;
    f->under_way++;
    f->bytes += slot->size = message->body_size;
    slot->landed = (struct landed){.number = number};
    if (message->id)
        (void)snprintf(slot->landed.receipt.id, sizeof slot->landed.receipt.id, "%s", message->id);
    struct omq_error why;
    if (omq_send_async(f->producer, message, answered, slot, &why)) {
        slot->landed.why = why;
        slot->landed.fate = FATE_NOT_STORED; /* it did not begin */
        land(slot);
    }
}

void flight_land(struct flight *f, flight_each *each, void *user)
{
    uint64_t rung;
    (void)!read(f->bell, &rung, sizeof rung);
    (void)pthread_mutex_lock(&f->key);
    struct slot *slot = f->landed;
    f->landed = NULL;
    f->landed_end = &f->landed;
    (void)pthread_mutex_unlock(&f->key);
    while (slot) {
        struct slot *next = slot->next;
        f->under_way--;
        f->bytes -= slot->size;
        each(user, &slot->landed);
        slot->next = f->free;
        f->free = slot;
        slot = next;
    }
}
