/* client_int.h - the inside of liboncemq.
 *
 * One thread, the *loop*, owns everything that talks: servers by their address (*peers*), requests
 * under way (*calls*), *routes*, what producers and consumers are about. What the application wants
 * becomes a *job*: one allocation with copies of all it needs, posted to the loop and finished
 * there. Nothing else crosses threads, so there is hardly anything to lock.
 *
 *     application                    loop                                  hands
 *     omq_send        job ──post──►  route → queue → call … answer
 *                         ◄─wake───  done
 *     omq_send_async  job ──post──►  route → queue → call … answer ─────►  done(user, receipt)
 *
 * *Hands* are threads that call the application, which may keep them as long as it likes.
 *
 * A thread that waits for what it wants is, if it can be, a *guest* of the loop (io/io.h): it does
 * the loop's part itself, and reads its answer itself, since waking two threads costs many times
 * what they have to do. client_wait has all of it; the rest need not know who runs the loop.
 */
#ifndef CLIENT_CLIENT_INT_H
#define CLIENT_CLIENT_INT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/dice.h"
#include "base/list.h"
#include "base/map.h"
#include "base/room.h"
#include "client/parts_int.h"
#include "io/io.h"
#include "msg/msg.h"
#include "msg/route.h"
#include "oncemq.h"
#include "remoting/bodies.h"
#include "remoting/codes.h"
#include "remoting/fields.h"
#include "remoting/remoting.h"

#include <pthread.h>

/* ---- failures ---- */

/* Cut to fit, and ended. */
void text_copy(char *out, size_t size, struct bytes text);
/* Fills `why` if there is one; returns the code, so that `return omq_fail(…)` reads well. */
int omq_fail(struct omq_error *why, int code, const char *format, ...) printf_like(3, 4);
/* What a failure of ours is to the application. */
int omq_code_of(enum err err);
/* A server's no: "`what`: its own words". */
int omq_refused(struct omq_error *why, const struct head *head, const char *what);

/* ---- peers and calls: peer.c ---- */

struct peer;
struct call;

/* What came of a call. Valid while `done` runs. */
struct answer {
    enum err err;       /* OK: an answer has come, whatever it says */
    const char *reason; /* of `err` */
    bool maybe_done;    /* of `err`: the server may have got the request */
    const struct head *head;
    struct bytes body;
};

/* One request and its answer. Embedded in something of the caller's, which stays until `done` was
 * called; that comes exactly once, never from inside call_start, and may free it. */
struct call {
    struct link by_peer;     /* in peer.waiting, until it is connected */
    struct link by_deadline; /* in calls.by_deadline */
    struct peer *peer;
    uint64_t deadline_ns, end_ns; /* of what it waits for now; of all */
    int32_t opaque;               /* its place in calls.slots, and how often that was used */
    bool sent;
    bool again;  /* its server wanted it over another connection */
    bool ending; /* its end was known at once, and is on its way as a post */
    struct post late;
    enum err late_err;
    const char *late_reason;

    /* The caller's. */
    int32_t code;
    void (*put)(const struct call *call, struct frame_out *frame); /* its fields; NULL: none */
    size_t room;         /* an upper bound for the text of all fields */
    bool oneway;         /* nobody answers: done, with neither err nor head, when it is written */
    uint64_t connect_ms; /* how much of its time it may wait for a connection; 0: all */
    struct bytes body;   /* stays until done */
    void (*done)(struct call *call, const struct answer *answer);
};

struct calls {
    struct call **slots;
    uint16_t *turns; /* how often each was used */
    uint32_t *free;  /* a stack of slots */
    uint32_t n_free, cap;
    struct list by_deadline; /* the nearest first */
    struct timer *timer;
    uint64_t timer_ns; /* what it is set to; 0: not set */
};

must_check enum err calls_open(struct omq_client *client);
void calls_close(struct omq_client *client); /* all that are under way end with ERR_CLOSED */

/* Loop. `address` is "host:port". */
void call_start(struct omq_client *client, struct bytes address, struct call *call,
                uint64_t timeout_ms);
/* Loop. Forgets a call that is under way; `done` is not called. */
void call_cancel(struct omq_client *client, struct call *call);
/* A guest of the loop. Waits for the answer of a call that was sent and reads it; false: it did not
 * come, or that is not to be waited for. True: something came. */
must_check bool call_await(const struct call *call, uint64_t timeout_ns);
/* Loop. A request that nobody answers; false: there is no connection just now. */
bool say(struct omq_client *client, struct bytes address, struct call *call);
/* Loop. Whether a connection to the address stands. */
bool peer_connected(struct omq_client *client, struct bytes address);
/* Loop. Hangs up on those that no route names and of whom nobody waits for an answer. */
void peers_keep(struct omq_client *client);
bool address_is_wanted(struct omq_client *client, struct bytes address); /* client.c */
void peers_close(struct omq_client *client);
/* Loop. True the first time on each connection after we have changed: somebody has to say there who
 * we are. */
bool peer_is_stranger(struct omq_client *client, struct bytes address);

/* A request from a server, to be answered or not. Loop. */
struct asked {
    struct omq_client *client;
    struct peer *peer;
    const struct head *head;
    struct bytes body;
};
struct bytes asked_address(const struct asked *asked); /* of the server */
void asked_answer(const struct asked *asked, int32_t code, struct bytes remark, struct bytes body);
void serve(const struct asked *asked); /* serve.c */

/* One that is answered later: on the connection it came by, if that still stands. */
struct asked_later {
    uint64_t conn;
    int32_t opaque;
    enum head_form form;
    bool oneway;
    char address[HOST_TEXT_MAX + 8];
};
void asked_keep(const struct asked *asked, struct asked_later *out);
void asked_answer_later(struct omq_client *client, const struct asked_later *asked, int32_t code,
                        struct bytes remark, struct bytes body);

/* ---- signatures: sign.c ---- */

#define SIGNATURE_MAX 32 /* base64 of 20 bytes, and its end */
/* The fields that say who signs. */
void sign_put(struct frame_out *frame, const struct omq_client_options *options);
/* `unsigned_frame` is a JSON header with all fields but the signature, behind its two lengths. */
must_check enum err sign_frame(const struct omq_client_options *options,
                               struct bytes unsigned_frame, struct bytes body,
                               char out[SIGNATURE_MAX]);

/* ---- name servers: names.c ---- */

#define NAMES_MAX 16

struct names {
    char *addresses[NAMES_MAX];
    size_t n, current;
    struct list waiting; /* questions from before the first name server was known */
    struct page *page;   /* being read */
    struct timer *timer; /* of the page */
};
must_check enum err names_open(struct omq_client *client); /* before the loop runs */
void names_stop(struct omq_client *client);                /* loop */
must_check enum err names_parse(struct names *names, const char *text, struct omq_error *why);
void names_clear(struct names *names);

/* A question to any name server: to the one that answered last, then to the others in turn. */
struct name_call {
    struct call call;
    struct link link; /* in names.waiting */
    struct omq_client *client;
    size_t left; /* servers that have not been tried */
    uint64_t until_ns;
    void (*done)(struct name_call *call, const struct answer *answer);
};
void name_call_start(struct omq_client *client, struct name_call *call, uint64_t timeout_ms);

/* ---- a web page: page.c ---- */

struct page;
bool page_url_good(const char *url);
/* Leaves of an answer by HTTP nothing but the page, what is between its words as `;`. False: it is
 * no answer with a page. */
bool page_cut(char *text);
struct page *page_start(const char *url); /* NULL: no memory, no thread */
bool page_done(struct page *page);
/* Its text, or why there is none; valid until it is closed. */
must_check enum err page_result(const struct page *page, const char **text);
void page_close(struct page *page);

/* ---- routes: routes.c ---- */

/* Who serves a topic, as it was when somebody asked. Never changes; counted. */
struct topic_broker {
    struct bytes name, master; /* `master` is empty while there is none */
    struct bytes *others;      /* addresses of slaves */
    int64_t *other_ids;
    size_t n_others;
};
struct topic_queue {
    uint32_t broker; /* index */
    int32_t id;
};
struct topic_route {
    struct counted counted;
    struct arena arena; /* everything below is in it */
    struct topic_broker *brokers;
    size_t n_brokers;
    struct topic_queue *write, *read;           /* by broker and number */
    struct omq_queue *write_names, *read_names; /* the same, as the application sees them */
    size_t n_write, n_read;
    struct bytes text; /* the answer itself, to see whether it has changed */
};
/* Somebody who needs a route. */
struct route_want {
    struct link link;
    /* Exactly once, perhaps from inside route_get. `route` has a count for the receiver; NULL:
     * `answer` says why (a response code, or a failure). */
    void (*ready)(struct route_want *want, struct topic_route *route, const struct answer *answer);
};
struct route_entry;

/* Loop. From the cache, or asked for. `fresh`: asked for in any case. */
void route_get(struct omq_client *client, struct bytes topic, bool fresh, struct route_want *want,
               uint64_t timeout_ms);
/* Loop. What the cache has now, with a count for the caller; NULL: nothing. */
struct topic_route *route_cached(struct omq_client *client, struct bytes topic);
/* Loop. An empty queue list is as good as none. */
must_check enum err route_make(struct bytes topic, struct bytes body, struct topic_route **out);
/* A topic that does not exist yet is sent to where the template is. */
#define TEMPLATE_TOPIC BYTES("TBW102")
must_check enum err route_make_template(const struct topic_route *template, struct bytes topic,
                                        int32_t queues, struct topic_route **out);
void routes_refresh(struct omq_client *client); /* loop, every route_every_ms */
void routes_close(struct omq_client *client);
/* Loop. Calls `each` for every broker address of all routes, masters first. */
void routes_each(struct omq_client *client,
                 void (*each)(void *user, struct bytes address, bool master), void *user);

/* ---- hands: hands.c ---- */

/* Threads that call the application. Tasks begin in the order in which they came. */
struct task {
    struct link link;
    void (*run)(struct task *task);
};
struct hands;
/* `whole`: one thread, which takes all tasks there are at a time; none can be recalled then. */
must_check enum err hands_open(const struct omq_client *client, unsigned threads, bool whole,
                               struct hands **out);
void hands_give(struct hands *hands, struct task *task); /* any thread */
bool hands_of(const struct omq_client *client); /* the calling thread is one of its hands */
void hands_close(struct hands *hands);          /* runs what is left, then ends */
/* The same, but `stuck` threads are in calls that do not come back: they are left to themselves,
 * and touch nothing but `hands` when they do. */
void hands_leave(struct hands *hands, unsigned stuck);
/* In one of its hands: more tasks for this one, at most so many, and not those that are for hands
 * that have nothing to do. */
void hands_more(bool (*wanted)(struct task *task, void *user), void *user, size_t most,
                struct list *out);
/* In one of its hands: for the next that has nothing to do. */
void hands_help(struct task *task);
/* Takes back tasks that nobody has begun, into `out`. Any thread. */
void hands_recall(struct hands *hands, bool (*wanted)(struct task *task, void *user), void *user,
                  struct list *out);
void hands_give_all(struct hands *hands, struct list *tasks); /* in their order */
/* Waits for what was given before; for those of one thread. */
void hands_flush(struct hands *hands);

/* A thread of the library: it has no part in the application's signals. */
must_check enum err thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

/* ---- the client: client.c ---- */

struct omq_client {
    struct omq_client_options options; /* its texts are copies */
    char *texts[16];
    size_t n_texts;
    char id[256];
    size_t key_room;  /* for the fields of a signature */
    struct addr host; /* the address in it, for message ids */
    struct clock *clock;
    struct dice dice;
    struct loop *loop;
    pthread_t thread;
    struct io_limits limits;
    struct tls *tls; /* NULL: plain */
    struct timer *route_timer, *heart_timer;
    struct hands *callbacks; /* one thread, made when first needed; guarded by `room` */
    bool shut;               /* the loop takes no further posts; guarded by `room` */
    struct id_maker ids;     /* guarded by `room` */
    struct room room;        /* ranked below leaf: hands are opened inside */

    /* The loop's own. */
    struct calls calls;
    struct buf spare;    /* peer.c: what one header at a time needs */
    struct map peers;    /* address → struct peer */
    struct list leaving; /* peers that were told to go away: peer.c */
    struct map routes;   /* topic → struct route_entry */
    struct names names;
    struct list producers, consumers;
    struct list husks;    /* closed producers: kept, so that a late call finds something */
    struct list finished; /* callbacks of this turn, on their way to the hands together */
    struct list requests; /* that wait for a reply: request.c */
    unsigned identity;    /* rises when a heartbeat has something new to say */
    struct list gone;     /* closed consumers, likewise */
    bool closing;

    struct {
        _Atomic uint64_t sent, retries, failures, connections, reconnects;
        _Atomic uint64_t received, handled, sent_back, dead, waiting, kept;
    } stats;
};

/* Runs `fn` on the loop and waits for it. */
void client_on_loop(struct omq_client *client, void (*fn)(void *user), void *user);
/* For the loop. Any thread, also a callback's while the client closes: false: it is too late. */
must_check bool client_post(struct omq_client *client, struct post *post);
bool client_on_own_thread(const struct omq_client *client);
must_check enum err client_callbacks(struct omq_client *client, struct hands **out);
/* Loop. For a callback; all of one turn wake the hand once. */
void client_call_back(struct omq_client *client, struct task *task);
void client_give_all(struct omq_client *client);
void client_flush(struct omq_client *client); /* waits for callbacks that are due */
void client_log(struct omq_client *client, int level, const char *format, ...) printf_like(3, 4);
void client_new_id(struct omq_client *client, char out[ID_TEXT_MAX]); /* any thread */
char *bytes_text(struct bytes text);                            /* with an end; NULL: no memory */
char *client_text(struct omq_client *client, const char *text); /* a copy; NULL stays NULL */

/* What the application waits for: filled and told by the loop. */
struct waiter {
    struct ring ring;
};
void waiter_init(struct waiter *waiter);
/* Any thread, once. Heard when the loop, if that is who tells, has been left: who was told has to
 * wait for that. The waiter may be gone afterwards. */
void waiter_tell(struct waiter *waiter);
void waiter_wait(struct waiter *waiter);
/* Any thread but the loop's. Has the post run on the loop, by the calling thread itself if it can
 * be, and waits for what comes of it; for the answer to this call, if that is all it is about (else
 * NULL). */
void client_wait(struct omq_client *client, struct post *post, struct waiter *waiter,
                 const struct call *call);
/* False: it was not told in that time. */
bool waiter_wait_until(struct waiter *waiter, int64_t timeout_ms, struct clock *clock);

/* ---- questions of the application: ask.c ---- */

/* One request to a broker whose answer a thread waits for. */
#define QUESTION_FIELDS 12
struct question {
    struct omq_client *client;
    int32_t request;
    struct bytes topic, broker;  /* the master of this broker (empty: of any), by the route of the
                                    topic */
    char address[ADDR_TEXT_MAX]; /* or this one; empty: by route */
    struct field fields[QUESTION_FIELDS]; /* stay until the end */
    size_t n_fields;
    struct bytes body;   /* likewise */
    uint64_t timeout_ms; /* 0: the client's */
    bool any_code;       /* `got` hears of every response code */
    /* Loop: takes what it needs from an answer that says SUCCESS. NULL: nothing. */
    int (*got)(struct question *question, const struct answer *answer);

    /* Its own. */
    struct post post;
    struct route_want want;
    struct call call;
    struct waiter waiter;
    uint64_t until_ns;
    int code;
    struct omq_error why;
};
int question_ask(struct question *question, struct omq_error *why);
/* The queues of a topic, by broker and number; freed with omq_queues_free. `fresh`: as the name
 * servers know them now. */
int queues_ask(struct omq_client *client, const char *topic, bool readable, bool fresh,
               struct omq_queue **queues, size_t *n, struct omq_error *why);

/* A message on its own, freed with omq_delivery_free. `body` may be compressed. */
must_check enum err delivery_make(const struct record *record, struct bytes broker,
                                  struct omq_delivery **out);

/* ---- producers: producer_int.h has what they do ---- */

struct omq_producer {
    struct omq_client *client;
    struct link link; /* in client.producers, or client.husks */
    struct omq_producer_options options;
    char *group, *trace_topic;
    _Atomic bool open; /* what the application's threads look at */
    _Atomic int in_flight;
    struct hands *checker; /* one thread, if there is a `check` */
    _Atomic int checks;    /* given to it and not done */

    struct room room; /* leaf: the compressors that are idle */
    struct list compressors;
    unsigned n_compressors;

    /* The loop's own. */
    struct pick pick;
    struct faults faults;
    struct list jobs; /* under way */
    bool closing;
    bool parted;            /* what ends from now on is kept in no retry table */
    struct waiter *leaving; /* told when `jobs` is empty */
    struct tracer *tracer;  /* NULL: it does not trace */
    struct resend *resend;  /* NULL: it has no retry table */
};

void husks_free(struct omq_client *client);

/* ---- heartbeats: heart.c ---- */

void hearts_beat(struct omq_client *client); /* loop: to all brokers that are known */
/* Loop. What is asked of this broker next finds that it knows us. */
void heart_ensure(struct omq_client *client, struct bytes address);
void heart_leave(struct omq_client *client, struct bytes producer_group,
                 struct bytes consumer_group); /* loop: unregisters, without waiting */

#endif
