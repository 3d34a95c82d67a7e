/* client.c - opening and closing; the loop's thread and its timers. */
#include "client/consumer_int.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define TIMEOUT_MS     3000
#define ROUTE_EVERY_MS 30000
#define HEART_EVERY_MS 30000
#define HEART_FIRST_MS 1000
/* So long a thread reads its answer itself; one that takes longer is worth waking for. What becomes
 * of its request otherwise (a close, a deadline) it hears so late. */
#define GUEST_NS 10000000

/* ---- small things ---- */

void client_log(struct omq_client *client, int level, const char *format, ...)
{
    if (!client->options.log)
        return;
    char line[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    client->options.log(client->options.user, level, line);
}

/* Not strndup, which is for strings: slices have no end. */
char *bytes_text(struct bytes text)
{
    char *copy = malloc(text.len + 1);
    if (!copy)
        return NULL;
    if (text.len > 0)
        memcpy(copy, text.at, text.len);
    copy[text.len] = 0;
    return copy;
}

char *client_text(struct omq_client *client, const char *text)
{
    if (!text)
        return NULL;
    invariant(client->n_texts < sizeof client->texts / sizeof client->texts[0]);
    return client->texts[client->n_texts++] = strdup(text);
}

void waiter_init(struct waiter *waiter)
{
    *waiter = (struct waiter){0};
}

void waiter_tell(struct waiter *waiter)
{
    loop_ring(&waiter->ring);
}

void waiter_wait(struct waiter *waiter)
{
    (void)bell_wait(&waiter->ring.bell, UINT64_MAX);
}

bool waiter_wait_until(struct waiter *waiter, int64_t timeout_ms, struct clock *clock)
{
    uint64_t now_ns = clock_ns(clock), end_ns = now_ns + (uint64_t)timeout_ms * 1000000;
    bool told = false;
    for (; !told && now_ns < end_ns; now_ns = clock_ns(clock))
        told = bell_wait(&waiter->ring.bell, clock_ns(clock_system()) + (end_ns - now_ns));
    return told || bell_wait(&waiter->ring.bell, 0);
}

/* A thread that waits is not cancelled, least of all inside the loop. */
void client_wait(struct omq_client *client, struct post *post, struct waiter *waiter,
                 const struct call *call)
{
    int cancel;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (loop_visit(client->loop, post)) {
        while (!ring_is_due(&waiter->ring) && call && call_await(call, GUEST_NS))
            continue;
        loop_leave(client->loop);
    }
    waiter_wait(waiter);
    (void)pthread_setcancelstate(cancel, NULL);
}

struct visit {
    struct post post;
    void (*fn)(void *user);
    void *user;
    struct waiter waiter;
};

static void visit_run(struct post *post)
{
    struct visit *visit = list_entry(post, struct visit, post);
    visit->fn(visit->user);
    waiter_tell(&visit->waiter);
}

void client_on_loop(struct omq_client *client, void (*fn)(void *user), void *user)
{
    if (loop_is_mine(client->loop)) { /* a callback of the loop's own */
        fn(user);
        return;
    }
    struct visit visit = {.post.run = visit_run, .fn = fn, .user = user};
    waiter_init(&visit.waiter);
    loop_post(client->loop, &visit.post);
    waiter_wait(&visit.waiter);
}

bool client_post(struct omq_client *client, struct post *post)
{
    room_enter(&client->room);
    bool taken = !client->shut;
    if (taken)
        loop_post(client->loop, post);
    room_leave(&client->room);
    return taken;
}

bool client_on_own_thread(const struct omq_client *client)
{
    return loop_is_mine(client->loop) || hands_of(client);
}

enum err client_callbacks(struct omq_client *client, struct hands **out)
{
    room_enter(&client->room);
    enum err err = client->callbacks ? OK : hands_open(client, 1, true, &client->callbacks);
    *out = client->callbacks;
    room_leave(&client->room);
    return err;
}

void client_call_back(struct omq_client *client, struct task *task)
{
    list_add_tail(&client->finished, &task->link);
}

void client_give_all(struct omq_client *client)
{
    if (!list_empty(&client->finished))
        hands_give_all(client->callbacks, &client->finished);
}

static void turn_end(void *user)
{
    client_give_all(user);
}

void client_flush(struct omq_client *client)
{
    room_enter(&client->room);
    struct hands *hands = client->callbacks;
    room_leave(&client->room);
    if (hands)
        hands_flush(hands);
}

void client_new_id(struct omq_client *client, char out[ID_TEXT_MAX])
{
    int64_t now_ms = clock_ms(client->clock);
    room_enter(&client->room);
    (void)id_make(&client->ids, now_ms, out);
    room_leave(&client->room);
}

/* ---- who we are ---- */

static struct addr own_address(void)
{
    struct addr found = {.ip = {127, 0, 0, 1}, .ip_len = 4};
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return found;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
            !(i->ifa_flags & IFF_LOOPBACK)) {
            found = addr_from_sockaddr(i->ifa_addr);
            break;
        }
    }
    freeifaddrs(all);
    return found;
}

static void name_self(struct omq_client *client)
{
    static _Atomic unsigned next;
    const struct omq_client_options *o = &client->options;
    client->host = own_address();
    client->host.port = 0;
    char ip[ADDR_TEXT_MAX], instance[64];
    addr_format_ip(&client->host, ip);
    unsigned number = atomic_fetch_add(&next, 1);
    (void)snprintf(instance, sizeof instance, "%d#%u", (int)getpid(), number);
    (void)snprintf(client->id, sizeof client->id, "%.100s@%.100s%s%.40s", o->ip ? o->ip : ip,
                   o->instance ? o->instance : instance, o->unit ? "@" : "",
                   o->unit ? o->unit : "");
    id_maker_init(&client->ids, &client->host, (uint16_t)getpid(),
                  (uint32_t)dice_next(&client->dice));
}

/* ---- opening ---- */

static bool options_copy(struct omq_client *client, const struct omq_client_options *options)
{
    struct omq_client_options *o = &client->options;
    *o = *options;
    const char **texts[] = {&o->names,  &o->names_url,  &o->instance,   &o->unit,
                            &o->ip,     &o->access_key, &o->secret_key, &o->security_token,
                            &o->tls_ca, &o->tls_cert,   &o->tls_key,    &o->state_dir};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *given = *texts[i];
        *texts[i] = client_text(client, given);
        if (given && !*texts[i])
            return false;
    }
    if (o->access_key)
        client->key_room = strlen(o->access_key) + SIGNATURE_MAX +
                           (o->security_token ? strlen(o->security_token) : 0);
    if (o->timeout_ms <= 0)
        o->timeout_ms = TIMEOUT_MS;
    if (o->route_every_ms <= 0)
        o->route_every_ms = ROUTE_EVERY_MS;
    if (o->heartbeat_every_ms <= 0)
        o->heartbeat_every_ms = HEART_EVERY_MS;
    return true;
}

static enum err tls_begin(struct omq_client *client, struct omq_error *why)
{
    const struct omq_client_options *o = &client->options;
    if (!o->tls && !o->tls_ca && !o->tls_cert && !o->tls_key && !o->tls_insecure)
        return OK;
    struct fault fault = {0};
    enum err err = ERR_INVALID;
    if (o->tls)
        err = tls_open_client(&(struct tls_options){.cert = o->tls_cert,
                                                    .key = o->tls_key,
                                                    .ca = o->tls_ca,
                                                    .trust_all = o->tls_insecure},
                              &client->tls, &fault);
    else /* better told now than found out when everything went plainly */
        (void)fault_set(&fault, err, "its options are set, but `tls` itself is false");
    if (err)
        (void)omq_fail(why, omq_code_of(err), "TLS: %s", fault.text);
    return err;
}

/* Brokers that no route names any more are hung up on. */
struct wanted {
    struct bytes address;
    bool found;
};

static void wanted_look(void *user, struct bytes address, bool master)
{
    struct wanted *wanted = user;
    (void)master;
    wanted->found = wanted->found || bytes_equal(address, wanted->address);
}

bool address_is_wanted(struct omq_client *client, struct bytes address)
{
    struct wanted wanted = {.address = address};
    for (size_t i = 0; i < client->names.n; i++)
        wanted_look(&wanted, bytes_str(client->names.addresses[i]), false);
    routes_each(client, wanted_look, &wanted);
    return wanted.found;
}

static void route_turn(void *user)
{
    struct omq_client *client = user;
    routes_refresh(client);
    peers_keep(client);
}

static void heart_turn(void *user)
{
    hearts_beat(user);
}

static void *loop_thread(void *arg)
{
    struct omq_client *client = arg;
    loop_run(client->loop);
    return NULL;
}

static enum err loop_begin(struct omq_client *client)
{
    enum err err = loop_open(&client->loop, client->clock, NULL, NULL);
    if (!err)
        err = calls_open(client);
    if (!err)
        err = names_open(client);
    if (!err)
        err = timer_open(client->loop, route_turn, client, &client->route_timer);
    if (!err)
        err = timer_open(client->loop, heart_turn, client, &client->heart_timer);
    if (err)
        return err;
    loop_take_guests(client->loop);
    loop_at_turn_end(client->loop, turn_end, client);
    timer_start(client->route_timer, (uint64_t)client->options.route_every_ms,
                (uint64_t)client->options.route_every_ms);
    timer_start(client->heart_timer, HEART_FIRST_MS, (uint64_t)client->options.heartbeat_every_ms);
    return thread_start(&client->thread, loop_thread, client);
}

static void client_free(struct omq_client *client)
{
    if (client->loop)
        loop_close(client->loop);
    tls_close(client->tls);
    routes_close(client);
    calls_close(client);
    map_clear(&client->peers);
    names_clear(&client->names);
    room_clear(&client->room);
    husks_free(client);
    consumers_free(client);
    for (size_t i = 0; i < client->n_texts; i++)
        free(client->texts[i]);
    free(client);
}

int omq_client_open(const struct omq_client_options *options, struct omq_client **out,
                    struct omq_error *why)
{
    if (!options || !out || (!options->names && !options->names_url))
        return omq_fail(why, OMQ_INVALID, "a client needs name servers: set names to host:port");
    if (options->names_url && !page_url_good(options->names_url))
        return omq_fail(why, OMQ_INVALID, "names_url is not of the form http://host:port/path");
    if (!options->access_key != !options->secret_key)
        return omq_fail(why, OMQ_INVALID, "access_key and secret_key go together");
    struct omq_client *client = calloc(1, sizeof *client);
    if (!client)
        return omq_fail(why, OMQ_NO_MEMORY, "no memory for a client");
    client->clock = clock_system();
    client->dice = dice_seeded(dice_seed_from_os());
    room_init(&client->room, "client", ROOM_FILES); /* opens hands inside */
    map_init(&client->peers, dice_next(&client->dice));
    map_init(&client->routes, dice_next(&client->dice));
    list_init(&client->leaving);
    list_init(&client->producers);
    list_init(&client->consumers);
    list_init(&client->husks);
    list_init(&client->requests);
    list_init(&client->finished);
    client->identity = 1;
    list_init(&client->gone);
    list_init(&client->calls.by_deadline);
    client->spare = buf_upto(FRAME_MAX);
    /* It reads however much waits to be written: two sides that each wait for the other to read
     * would wait for ever. What is under way is bounded by the producers. */
    client->limits =
        (struct io_limits){.max_conns = 4096, .out_high = SIZE_MAX, .out_max = SIZE_MAX};
    if (why)
        *why = (struct omq_error){0};
    enum err err = options_copy(client, options) ? OK : ERR_NO_MEMORY;
    if (!err)
        err = tls_begin(client, why);
    if (!err && client->options.names)
        err = names_parse(&client->names, client->options.names, why);
    if (!err && client->names.n == 0 && !client->options.names_url)
        err = ERR_INVALID;
    if (!err) {
        if (client->names.n > 0)
            client->names.current = (size_t)dice_below(&client->dice, client->names.n);
        name_self(client);
        err = loop_begin(client);
    }
    if (err) {
        client_free(client);
        return why && why->text[0] ? why->code
                                   : omq_fail(why, omq_code_of(err),
                                              "the client cannot be opened: %s", err_text(err));
    }
    *out = client;
    return OMQ_OK;
}

const char *omq_client_id(const struct omq_client *client)
{
    return client ? client->id : "";
}

/* ---- closing ---- */

static void drained(void *user)
{
    struct omq_client *client = user;
    loop_stop(client->loop);
}

static void leave(void *user)
{
    struct omq_client *client = user;
    timer_stop(client->route_timer);
    timer_stop(client->heart_timer);
    client->closing = true;
    names_stop(client);
    loop_drain(client->loop, drained, client); /* what was said is still sent */
}

/* What the application has left open. */
struct first {
    struct omq_client *client;
    struct omq_producer *producer;
    struct omq_consumer *consumer;
};

static void first_open(void *user)
{
    struct first *first = user;
    struct link *link = list_first(&first->client->producers);
    first->producer = link ? list_entry(link, struct omq_producer, link) : NULL;
    link = list_first(&first->client->consumers);
    first->consumer = link ? list_entry(link, struct omq_consumer, link) : NULL;
}

void omq_client_close(struct omq_client *client)
{
    if (!client)
        return;
    if (client_on_own_thread(client)) {
        client_log(client, OMQ_ERROR, "a client cannot be closed from its own callback");
        return;
    }
    for (;;) {
        struct first first = {.client = client};
        client_on_loop(client, first_open, &first);
        if (!first.producer && !first.consumer)
            break;
        omq_consumer_close(first.consumer);
        omq_producer_close(first.producer);
    }
    room_enter(&client->room);
    client->shut = true;
    room_leave(&client->room);
    client_on_loop(client, leave, client);
    (void)pthread_join(client->thread, NULL);
    peers_close(client);
    client_give_all(client);
    hands_close(client->callbacks);
    client_free(client);
}

void omq_client_stats(const struct omq_client *client, struct omq_stats *out)
{
    if (!client || !out) {
        if (out)
            *out = (struct omq_stats){0};
        return;
    }
    *out = (struct omq_stats){
        .sent = atomic_load(&client->stats.sent),
        .send_retries = atomic_load(&client->stats.retries),
        .send_failures = atomic_load(&client->stats.failures),
        .connections = atomic_load(&client->stats.connections),
        .reconnects = atomic_load(&client->stats.reconnects),
        .received = atomic_load(&client->stats.received),
        .handled = atomic_load(&client->stats.handled),
        .sent_back = atomic_load(&client->stats.sent_back),
        .dead = atomic_load(&client->stats.dead),
        .waiting = atomic_load(&client->stats.waiting),
        .kept = atomic_load(&client->stats.kept),
    };
}
