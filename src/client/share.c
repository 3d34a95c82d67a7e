/* share.c - the six strategies.
 *
 * Each deals a list of queue indexes among a list of clients, of whom one is me. Room nearby cuts
 * both lists into rooms and lets another strategy deal them, so all others work on parts as well as
 * on the whole.
 */
#include "client/parts_int.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#define HASH_NODES 10

struct deal {
    const struct share_rule *rule;
    const struct omq_queue *all; /* what indexes point into */
    const size_t *queues;
    size_t n_queues;
    const char *const *clients;
    size_t n_clients;
    const char *me;
    size_t my_place; /* among the clients; n_clients: nowhere */
    size_t *mine;    /* the result, and how much of it there is */
    size_t *n_mine;
};

static void deal_averagely(struct deal *d);
static void deal_by_circle(struct deal *d);
static void deal_by_config(struct deal *d);
static enum err deal_by_room(struct deal *d);
static enum err deal_by_hash(struct deal *d);
static enum err deal_nearby(struct deal *d);

static size_t place_of(const char *name, const char *const *names, size_t n)
{
    size_t i = 0;
    while (i < n && strcmp(names[i], name) != 0)
        i++;
    return i;
}

static bool holds(const size_t *list, size_t n, size_t value)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == value)
            return true;
    return false;
}

static void take_queue(struct deal *d, size_t index)
{
    d->mine[(*d->n_mine)++] = index;
}

static enum err deal_out(struct deal *d, enum omq_share kind)
{
    d->my_place = place_of(d->me, d->clients, d->n_clients);
    if (d->my_place == d->n_clients && kind != OMQ_BY_CONFIG)
        return OK;
    switch (kind) {
    case OMQ_AVERAGELY:
        deal_averagely(d);
        return OK;
    case OMQ_BY_CIRCLE:
        deal_by_circle(d);
        return OK;
    case OMQ_BY_CONFIG:
        deal_by_config(d);
        return OK;
    case OMQ_BY_ROOM:
        return deal_by_room(d);
    case OMQ_BY_HASH:
        return deal_by_hash(d);
    case OMQ_BY_ROOM_NEARBY:
        return deal_nearby(d);
    }
    return ERR_INVALID;
}

enum err share_mine(const struct share_rule *rule, const struct share_table *table, size_t *mine,
                    size_t *n_mine)
{
    if (table->n_queues == 0 || table->n_clients == 0 || !table->me || !*table->me)
        return ERR_INVALID;
    cleanup(free_at) size_t *queues = calloc(table->n_queues, sizeof *queues);
    if (!queues)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < table->n_queues; i++)
        queues[i] = i;

    size_t n = 0;
    struct deal d = {
        .rule = rule,
        .all = table->queues,
        .queues = queues,
        .n_queues = table->n_queues,
        .clients = table->clients,
        .n_clients = table->n_clients,
        .me = table->me,
        .mine = mine,
        .n_mine = &n,
    };
    enum err err = deal_out(&d, rule->kind);
    if (!err)
        *n_mine = n;
    return err;
}

/* ---- order ---- */

int name_compare(const char *a, const char *b)
{
    const uint8_t *x = (const uint8_t *)a, *y = (const uint8_t *)b;
    while (*x && *x == *y)
        x++, y++;
    /* Surrogates (from lead bytes F0 on) stand below U+E000 (EE) in UTF-16. */
    int left = *x == 0xee || *x == 0xef ? *x + 0x100 : *x;
    int right = *y == 0xee || *y == 0xef ? *y + 0x100 : *y;
    return (left > right) - (left < right);
}

int queue_compare(const struct omq_queue *a, const struct omq_queue *b)
{
    int order = name_compare(a->topic, b->topic);
    if (order == 0)
        order = name_compare(a->broker, b->broker);
    return order != 0 ? order : (a->id > b->id) - (a->id < b->id);
}

/* ---- averagely, by circle, by config ---- */

/* With fewer queues than clients the first ones have a queue each. */
static void deal_averagely(struct deal *d)
{
    size_t each = d->n_queues / d->n_clients, over = d->n_queues % d->n_clients;
    size_t before = d->my_place < over ? d->my_place : over; /* members that have one more */
    size_t from = d->my_place * each + before;
    size_t end = from + each + (d->my_place < over);
    for (size_t i = from; i < end; i++)
        take_queue(d, d->queues[i]);
}

static void deal_by_circle(struct deal *d)
{
    for (size_t i = d->my_place; i < d->n_queues; i += d->n_clients)
        take_queue(d, d->queues[i]);
}

static void deal_by_config(struct deal *d)
{
    for (size_t c = 0; c < d->rule->n_config; c++)
        for (size_t i = 0; i < d->n_queues; i++)
            if (queue_compare(&d->rule->config[c], &d->all[d->queues[i]]) == 0 &&
                !holds(d->mine, *d->n_mine, d->queues[i]))
                take_queue(d, d->queues[i]);
}

/* ---- by room ---- */

/* The room of a broker called room@name. Java splits at every @ and drops empty parts at the end,
 * so "room@name@" counts and "room@" does not. */
static bool room_in_name(const char *broker, struct bytes *room)
{
    struct bytes name = bytes_str(broker);
    while (name.len > 0 && name.at[name.len - 1] == '@')
        name.len--;
    const uint8_t *at = name.len ? memchr(name.at, '@', name.len) : NULL;
    if (!at)
        return false;
    room->at = name.at;
    room->len = (size_t)(at - name.at);
    return !memchr(at + 1, '@', name.len - room->len - 1);
}

static bool room_listed(struct bytes room, const char *rooms)
{
    for (const char *at = rooms;; at++) {
        size_t len = strcspn(at, ",");
        if (bytes_equal(room, bytes_of(at, len)))
            return true;
        at += len;
        if (!*at)
            return false;
    }
}

static enum err deal_by_room(struct deal *d)
{
    if (!d->rule->rooms)
        return ERR_INVALID;
    cleanup(free_at) size_t *near = calloc(d->n_queues, sizeof *near);
    if (!near)
        return ERR_NO_MEMORY;
    size_t n = 0;
    for (size_t i = 0; i < d->n_queues; i++) {
        struct bytes room;
        if (room_in_name(d->all[d->queues[i]].broker, &room) && room_listed(room, d->rule->rooms))
            near[n++] = d->queues[i];
    }

    size_t each = n / d->n_clients, over = n % d->n_clients;
    for (size_t i = 0; i < each; i++)
        take_queue(d, near[d->my_place * each + i]);
    if (d->my_place < over)
        take_queue(d, near[each * d->n_clients + d->my_place]);
    return OK;
}

/* ---- by hash ---- */

struct hasher {
    EVP_MD *md5;
    EVP_MD_CTX *state;
};

static void hasher_clear(struct hasher *h)
{
    EVP_MD_CTX_free(h->state);
    EVP_MD_free(h->md5);
}

static enum err hasher_init(struct hasher *h)
{
    h->md5 = EVP_MD_fetch(NULL, "MD5", NULL);
    if (!h->md5)
        return ERR_UNSUPPORTED; /* an OpenSSL that was told to forget MD5 */
    h->state = EVP_MD_CTX_new();
    return h->state ? OK : ERR_NO_MEMORY;
}

/* The first four bytes of the MD5 of the parts in a row, as a number. */
static enum err hash_of(struct hasher *h, const char *const *parts, size_t n, uint32_t *out)
{
    uint8_t sum[EVP_MAX_MD_SIZE];
    int fine = EVP_DigestInit_ex2(h->state, h->md5, NULL);
    for (size_t i = 0; i < n; i++)
        fine = fine && EVP_DigestUpdate(h->state, parts[i], strlen(parts[i]));
    fine = fine && EVP_DigestFinal_ex(h->state, sum, NULL);
    if (!fine)
        return ERR_NO_MEMORY;
    *out = load_u32(sum);
    return OK;
}

static enum err queue_hash(struct hasher *h, const struct omq_queue *q, uint32_t *out)
{
    char id[16];
    snprintf(id, sizeof id, "%d", (int)q->id);
    const char *const parts[] = {
        "MessageQueue [topic=", q->topic, ", brokerName=", q->broker, ", queueId=", id, "]",
    };
    return hash_of(h, parts, sizeof parts / sizeof *parts, out);
}

struct node {
    uint32_t hash;
    size_t client, turn;
};

/* Where two nodes meet, the one that came later stands, as in a Java map. */
static int node_compare(const void *a, const void *b)
{
    const struct node *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return (x->turn < y->turn) - (x->turn > y->turn);
}

static enum err ring_make(struct hasher *h, const struct deal *d, size_t each, struct node *ring)
{
    size_t turn = 0, number = 0;
    for (size_t i = 0; i < d->n_clients; i++) {
        if (i > 0 && strcmp(d->clients[i], d->clients[i - 1]) != 0)
            number = 0; /* a client that is listed twice has twice as many, and goes on counting */
        for (size_t k = 0; k < each; k++, number++, turn++) {
            char suffix[32];
            snprintf(suffix, sizeof suffix, "-%zu", number);
            const char *const parts[] = {d->clients[i], suffix};
            ring[turn] = (struct node){.client = i, .turn = turn};
            enum err err = hash_of(h, parts, 2, &ring[turn].hash);
            if (err)
                return err;
        }
    }
    qsort(ring, turn, sizeof *ring, node_compare);
    return OK;
}

/* The first node at or behind `hash`; behind the last comes the first. */
static const struct node *ring_next(const struct node *ring, size_t n, uint32_t hash)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ring[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return &ring[low < n ? low : 0];
}

static enum err deal_by_hash(struct deal *d)
{
    if (d->rule->hash_nodes < 0)
        return ERR_INVALID;
    size_t each = d->rule->hash_nodes ? (size_t)d->rule->hash_nodes : HASH_NODES;
    cleanup(free_at) struct node *ring = NULL;
    cleanup(hasher_clear) struct hasher h = {0};
    if (each <= SIZE_MAX / d->n_clients)
        ring = calloc(d->n_clients * each, sizeof *ring);
    if (!ring)
        return ERR_NO_MEMORY;
    enum err err = hasher_init(&h);
    if (!err)
        err = ring_make(&h, d, each, ring);
    for (size_t i = 0; !err && i < d->n_queues; i++) {
        uint32_t hash;
        err = queue_hash(&h, &d->all[d->queues[i]], &hash);
        if (!err &&
            strcmp(d->clients[ring_next(ring, d->n_clients * each, hash)->client], d->me) == 0)
            take_queue(d, d->queues[i]);
    }
    return err;
}

/* ---- room nearby ---- */

struct rooms {
    char **names; /* of queues and clients, in their order */
    size_t n;
};

static void rooms_clear(struct rooms *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->names[i]);
    free((void *)r->names);
}

static enum err rooms_ask(struct rooms *r, const struct share_rule *rule, const char *broker,
                          const char *client)
{
    const char *room = rule->room_of(rule->user, broker, client);
    if (!room || !*room)
        return ERR_INVALID;
    r->names[r->n] = strdup(room);
    if (!r->names[r->n])
        return ERR_NO_MEMORY;
    r->n++;
    return OK;
}

static enum err rooms_fill(struct rooms *of_queues, struct rooms *of_clients, const struct deal *d)
{
    of_queues->names = calloc(d->n_queues, sizeof *of_queues->names);
    of_clients->names = calloc(d->n_clients, sizeof *of_clients->names);
    if (!of_queues->names || !of_clients->names)
        return ERR_NO_MEMORY;
    enum err err = OK;
    for (size_t i = 0; !err && i < d->n_queues; i++)
        err = rooms_ask(of_queues, d->rule, d->all[d->queues[i]].broker, NULL);
    for (size_t i = 0; !err && i < d->n_clients; i++)
        err = rooms_ask(of_clients, d->rule, NULL, d->clients[i]);
    return err;
}

/* Deals the queues of one room among its clients or, if it has none, among all. */
static enum err deal_one_room(const struct deal *d, const char *room, const struct rooms *of_queues,
                              const struct rooms *of_clients)
{
    cleanup(free_at) size_t *queues = calloc(d->n_queues, sizeof *queues);
    cleanup(free_at) const char **clients = calloc(d->n_clients, sizeof *clients);
    if (!queues || !clients)
        return ERR_NO_MEMORY;

    struct deal part = *d;
    part.queues = queues;
    part.n_queues = 0;
    for (size_t i = 0; i < d->n_queues; i++)
        if (strcmp(of_queues->names[i], room) == 0)
            queues[part.n_queues++] = d->queues[i];
    size_t n_near = 0;
    for (size_t i = 0; i < d->n_clients; i++)
        if (strcmp(of_clients->names[i], room) == 0)
            clients[n_near++] = d->clients[i];
    if (n_near > 0) {
        part.clients = clients;
        part.n_clients = n_near;
    }
    return part.n_queues > 0 ? deal_out(&part, d->rule->nearby) : OK;
}

static int room_compare(const void *a, const void *b)
{
    return name_compare(*(char *const *)a, *(char *const *)b);
}

static enum err deal_nearby(struct deal *d)
{
    enum omq_share inner = d->rule->nearby;
    if (!d->rule->room_of || inner == OMQ_BY_ROOM_NEARBY || inner == OMQ_BY_CONFIG)
        return ERR_INVALID;

    cleanup(rooms_clear) struct rooms of_queues = {0};
    cleanup(rooms_clear) struct rooms of_clients = {0};
    cleanup(free_at) char **sorted = calloc(d->n_queues, sizeof *sorted);
    if (!sorted)
        return ERR_NO_MEMORY;
    enum err err = rooms_fill(&of_queues, &of_clients, d);
    if (err)
        return err;
    memcpy(sorted, of_queues.names, d->n_queues * sizeof *sorted);
    qsort(sorted, d->n_queues, sizeof *sorted, room_compare);

    const char *here = of_clients.names[d->my_place];
    err = deal_one_room(d, here, &of_queues, &of_clients);
    for (size_t i = 0; !err && i < d->n_queues; i++) {
        bool again = i > 0 && strcmp(sorted[i], sorted[i - 1]) == 0;
        bool has_clients =
            place_of(sorted[i], (const char *const *)of_clients.names, of_clients.n) < of_clients.n;
        if (!again && !has_clients) /* my own room has at least me */
            err = deal_one_room(d, sorted[i], &of_queues, &of_clients);
    }
    return err;
}
