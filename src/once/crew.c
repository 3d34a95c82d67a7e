/* crew.c - operations that wait at the same time go to the store together.
 *
 * Callers put what they ask into one row. Whoever finds a lane (a connection) free leads: takes
 * what waits, asks the store, hands out the answers, and does so until its own are there; then it
 * wakes one of those who still wait to lead after it. So a single caller asks without any other
 * thread's help, and many share each round trip or commit, without anybody waiting for a batch to
 * fill.
 *
 *     row:   a b c d e f g …      leader: takes a…f, each id once; the rest goes next
 *
 * The row is in the order of arrival. For databases it is sorted by id, which gives them one order
 * of locks. Of two operations on one id the second waits for the next batch.
 *
 * When an operation has no answer: it goes back to the front of the row and is asked again, from
 * the third time on alone, so that one that the store cannot bear harms no others. Each caller has
 * a time after which its operations leave the row, answered or not; only one that a driver has in
 * hand is waited for beyond that.
 *
 * Waking thirty callers takes longer than their commit: each that is woken takes the processor from
 * whoever wakes it, and a processor that sleeps has to be rung first. So the leader wakes only
 * those that fell asleep on its own processor, and of each other processor's one, who then wakes
 * the rest of them there, before anything else.
 *
 * A driver that is `direct` is called by each caller itself: none of the above.
 */
#include "once/once_int.h"

#include <sched.h>
#include <stdlib.h>

#define TRIES_TOGETHER 2  /* after so many an operation is asked alone */
#define TRIES_MOST     12 /* of one that the store answers with "again" */
#define KNOCK_TAKES_MS 100
#define FEW            8

struct ask {
    struct link link; /* in crew.row, while it waits */
    struct op *op;
    struct party *party;
    unsigned tries;
};

/* Bells to be woken once crew.key is left. */
#define WAKE_MAX (ONCE_OPS_MAX + 1)
struct wakes {
    const struct bell *bells[WAKE_MAX];
    size_t n;
};

/* One caller. It lives on the caller's stack until none of its asks is left. */
struct party {
    struct bell bell;
    unsigned cpu;         /* where it fell asleep */
    bool asleep;          /* or about to be: it does nothing else */
    struct wakes *others; /* whom it wakes when it is woken itself */
    size_t left;          /* without an answer */
    size_t in_row;        /* of these, not in a leader's hands */
    uint64_t until_ns;
    enum err err; /* of the first that was not answered */
    struct fault why;
};

struct lane {
    struct conn *conn;
    bool taken;
};

struct crew {
    struct crew_settings with;
    struct lane lane[CREW_LANES_MAX];
    pthread_mutex_t key; /* the row, parties, who has a lane, the gate */
    struct list row;
    struct gate gate;
    uint64_t busy_ns;  /* the store asked for a moment's rest, until then */
    struct fault last; /* why the gate is shut */
    _Atomic bool stale;
};

/* What a leader carries from the row to the store and back. */
struct batch {
    struct ask *asks[ONCE_OPS_MAX];
    size_t n;
};
/* Whose ids these are: numbers of asks and one, at the place of their id or behind it. */
#define IDS_PLACES (2 * ONCE_OPS_MAX)
struct ids {
    uint16_t at[IDS_PLACES];
};

static void enter(struct crew *crew)
{
    invariant(pthread_mutex_lock(&crew->key) == 0);
}

static void leave(struct crew *crew)
{
    invariant(pthread_mutex_unlock(&crew->key) == 0);
}

enum err crew_open(const struct crew_settings *settings, struct crew **out, struct fault *why)
{
    struct crew *crew = calloc(1, sizeof *crew);
    if (!crew)
        return fault_set(why, ERR_NO_MEMORY, "out of memory");
    crew->with = *settings;
    if (crew->with.lanes < 1)
        crew->with.lanes = 1;
    if (crew->with.lanes > CREW_LANES_MAX)
        crew->with.lanes = CREW_LANES_MAX;
    list_init(&crew->row);
    crew->gate.most_ms = (uint64_t)crew->with.wait_ms / 2;
    invariant(pthread_mutex_init(&crew->key, NULL) == 0);
    /* The first connection shows what is wrong; the others follow when they are needed. */
    enum err err = settings->driver->connect(settings->store, &crew->lane[0].conn, why);
    if (err != OK) {
        (void)pthread_mutex_destroy(&crew->key);
        free(crew);
        return err;
    }
    *out = crew;
    return OK;
}

void crew_close(struct crew *crew)
{
    if (!crew)
        return;
    invariant(list_empty(&crew->row));
    for (int i = 0; i < CREW_LANES_MAX; i++) {
        if (crew->lane[i].conn)
            crew->with.driver->disconnect(crew->lane[i].conn);
    }
    (void)pthread_mutex_destroy(&crew->key);
    free(crew);
}

bool crew_stale(const struct crew *crew)
{
    return atomic_load_explicit(&crew->stale, memory_order_relaxed);
}

void crew_set_stale(struct crew *crew)
{
    if (atomic_exchange(&crew->stale, true))
        return;
    crew->with.log(
        crew->with.log_user, ONCE_ERROR,
        "the store was emptied: what was done before is forgotten, so nothing runs until "
        "once_accept_wiped is called, or the program is started anew");
}

/* ---- the row ---- */

static struct ask *ask_at(struct link *k)
{
    return list_entry(k, struct ask, link);
}

static void row_add(struct crew *crew, struct ask *ask)
{
    list_add_tail(&crew->row, &ask->link);
    ask->party->in_row++;
}

static void row_add_first(struct crew *crew, struct ask *ask)
{
    struct list rest;
    list_init(&rest);
    list_append_all(&rest, &crew->row);
    row_add(crew, ask);
    list_append_all(&crew->row, &rest);
}

static void row_remove(struct ask *ask)
{
    list_remove(&ask->link);
    ask->party->in_row--;
}

/* The answer is there, or will not come. */
static void ask_ends(struct ask *ask, enum err err, const struct fault *why)
{
    struct party *party = ask->party;
    if (err != OK && party->err == OK) {
        party->err = err;
        if (why)
            party->why = *why;
    }
    party->left--;
}

/* Takes a caller's own out of the row when its time is over. */
static void row_expire(struct crew *crew, struct party *own)
{
    if (own->in_row == 0 || wait_now_ns() < own->until_ns)
        return;
    struct fault late = crew->last;
    if (crew->gate.since_ns == 0)
        (void)fault_set(&late, ERR_IO, "the store did not answer in time");
    list_each(k, &crew->row) {
        struct ask *ask = ask_at(k);
        if (ask->party != own)
            continue;
        row_remove(ask);
        ask_ends(ask, ERR_IO, &late);
    }
}

/* False: its id is there. */
static bool ids_add(struct ids *ids, const struct batch *batch, const struct op *op)
{
    size_t place;
    memcpy(&place, op->id, sizeof place); /* a hash already */
    for (place %= IDS_PLACES; ids->at[place] > 0; place = (place + 1) % IDS_PLACES)
        if (memcmp(batch->asks[ids->at[place] - 1]->op->id, op->id, ONCE_ID_SIZE) == 0)
            return false;
    ids->at[place] = (uint16_t)(batch->n + 1);
    return true;
}

static void row_gather(struct crew *crew, struct batch *batch)
{
    struct ids ids = {{0}};
    batch->n = 0;
    list_each(k, &crew->row) {
        struct ask *ask = ask_at(k);
        bool alone = ask->tries >= TRIES_TOGETHER;
        if (batch->n == ONCE_OPS_MAX || (alone && batch->n > 0))
            return;
        if (!ids_add(&ids, batch, ask->op))
            continue;
        row_remove(ask);
        batch->asks[batch->n++] = ask;
        if (alone)
            return;
    }
}

static int by_id(const void *a, const void *b)
{
    const struct ask *const *x = a, *const *y = b;
    return memcmp((*x)->op->id, (*y)->op->id, ONCE_ID_SIZE);
}

/* ---- asking ---- */

/* `asked`: the driver had them in hand; else there was no connection. */
static enum err lane_ask(struct crew *crew, struct lane *lane, struct batch *batch, bool *asked,
                         struct fault *why)
{
    const struct once_driver *driver = crew->with.driver;
    enum err err = OK;
    *asked = false;
    if (!lane->conn)
        err = driver->connect(crew->with.store, &lane->conn, why);
    if (err != OK) {
        lane->conn = NULL;
        bool told = err == ERR_NO_MEMORY || err == ERR_STALE;
        return told ? err : ERR_IO; /* whatever it says: it was fine when it was opened */
    }
    struct op *ops[ONCE_OPS_MAX];
    for (size_t i = 0; i < batch->n; i++)
        ops[i] = batch->asks[i]->op;
    *asked = true;
    err = driver->run(lane->conn, ops, batch->n, why);
    bool gone = err == ERR_IO ||
                (err != OK && err != ERR_BUSY && driver->healthy && !driver->healthy(lane->conn));
    if (gone) {
        driver->disconnect(lane->conn);
        lane->conn = NULL;
    }
    return err;
}

/* Back into the row, unless asking again is pointless. */
static void ask_failed(struct crew *crew, struct ask *ask, enum err err, const struct fault *why,
                       bool asked, bool together)
{
    /* A forget that was perhaps done would, asked again, forget what has been claimed since. */
    bool unsure = err == ERR_IO && asked && ask->op->kind == OP_FORGET;
    bool again = (err == ERR_IO || err == ERR_BUSY) && !unsure;
    ask->tries += asked ? 1 : 0;
    if (together && !again && !unsure && err != ERR_STALE) {
        again = true; /* which of them it was shows when they are asked alone */
        ask->tries = TRIES_TOGETHER;
    }
    if (!again || ask->tries >= TRIES_MOST || wait_now_ns() >= ask->party->until_ns)
        ask_ends(ask, err, why);
    else if (together)
        row_add_first(crew, ask);
    else
        row_add(crew, ask); /* it may be its own fault: the others first */
}

static void wakes_add(struct wakes *wakes, const struct bell *bell)
{
    invariant(wakes->n < WAKE_MAX);
    wakes->bells[wakes->n++] = bell;
}

static void wakes_run(const struct wakes *wakes)
{
    for (size_t i = 0; i < wakes->n; i++)
        bell_wake(wakes->bells[i]);
}

/* Those who wake others. Processors far apart in number may share one. */
#define PLACES 64
struct heralds {
    struct party *at[PLACES];
    unsigned own_cpu;
};

static unsigned cpu_now(void)
{
    int cpu = sched_getcpu();
    return cpu < 0 ? 0 : (unsigned)cpu;
}

/* `party` has its answers. With crew.key. */
static void party_wake(struct party *party, struct heralds *heralds, struct wakes *wakes)
{
    struct party **herald = &heralds->at[party->cpu % PLACES];
    bool here = party->cpu == heralds->own_cpu || !party->asleep;
    bell_set(&party->bell);
    if (!here && *herald) {
        wakes_add((*herald)->others, &party->bell);
        return;
    }
    wakes_add(wakes, &party->bell);
    if (!here)
        *herald = party;
}

static void batch_back(struct crew *crew, struct batch *batch, enum err err,
                       const struct fault *why, bool asked, struct party *own, struct wakes *wakes)
{
    struct heralds heralds = {.own_cpu = cpu_now()};
    for (size_t i = batch->n; i-- > 0;) { /* from the last, so that the first stands first again */
        struct ask *ask = batch->asks[i];
        struct party *party = ask->party;
        if (ask->op->outcome != OUT_NONE)
            ask_ends(ask, OK, NULL);
        else
            ask_failed(crew, ask, err == OK ? ERR_INVALID : err, why, asked, batch->n > 1);
        if (party->left == 0 && party != own)
            party_wake(party, &heralds, wakes);
    }
}

/* What the answer says about the store. */
static void note_answer(struct crew *crew, enum err err, const struct fault *why)
{
    crew->busy_ns = 0;
    if (err == OK)
        gate_open(&crew->gate);
    else if (err == ERR_IO) {
        gate_shut(&crew->gate, wait_now_ns());
        crew->last = *why;
    } else if (err == ERR_STALE)
        crew_set_stale(crew);
    else if (err == ERR_BUSY) {
        uint64_t now_ns = wait_now_ns(); /* whose last digits are as good as dice */
        crew->busy_ns = now_ns + NS_PER_MS + now_ns % 4096 * 1000;
    }
}

/* One batch. With crew.key, which is let go while the store is asked. */
static void lane_turn(struct crew *crew, struct lane *lane, struct party *own)
{
    struct batch batch;
    struct wakes wakes = {.n = 0};
    struct fault why;
    why.text[0] = 0;
    row_gather(crew, &batch);
    leave(crew);
    if (!crew->with.driver->any_order)
        qsort(batch.asks, batch.n, sizeof batch.asks[0], by_id);
    bool asked;
    enum err err = lane_ask(crew, lane, &batch, &asked, &why);
    enter(crew);
    note_answer(crew, err, &why);
    if (err == OK && batch.asks[0]->op->outcome == OUT_NONE)
        (void)fault_set(&why, ERR_INVALID, "the driver %s gave no answer", crew->with.driver->name);
    batch_back(crew, &batch, err, &why, asked, own, &wakes);
    leave(crew);
    wakes_run(&wakes);
    enter(crew);
}

static struct lane *lane_free(struct crew *crew)
{
    for (int i = 0; i < crew->with.lanes; i++) {
        if (!crew->lane[i].taken)
            return &crew->lane[i];
    }
    return NULL;
}

/* Somebody shall lead, as long as something waits. */
static const struct bell *pass_on(struct crew *crew)
{
    if (list_empty(&crew->row) || !lane_free(crew))
        return NULL;
    struct party *next = ask_at(list_first(&crew->row))->party;
    bell_set(&next->bell);
    return &next->bell;
}

/* With crew.key, and a lane: until none of this party's asks waits. */
static void party_lead(struct crew *crew, struct lane *lane, struct party *own)
{
    lane->taken = true;
    while (own->in_row > 0) {
        uint64_t next_ns = crew->gate.next_ns > crew->busy_ns ? crew->gate.next_ns : crew->busy_ns;
        uint64_t now_ns = next_ns ? wait_now_ns() : 0;
        if (now_ns >= next_ns) {
            lane_turn(crew, lane, own);
            row_expire(crew, own);
            continue;
        }
        uint64_t until_ns = next_ns < own->until_ns ? next_ns : own->until_ns;
        leave(crew);
        wait_ns(until_ns > now_ns ? until_ns - now_ns : 0);
        enter(crew);
        if (until_ns < next_ns)
            row_expire(crew, own);
    }
    lane->taken = false;
}

/* With crew.key: until all of this party's asks have come back. */
static void party_stay(struct crew *crew, struct party *own)
{
    while (own->left > 0) {
        struct lane *lane = own->in_row > 0 ? lane_free(crew) : NULL;
        if (lane) {
            party_lead(crew, lane, own);
            continue;
        }
        const struct bell *next = pass_on(crew);
        uint64_t until_ns = own->in_row > 0 ? own->until_ns : UINT64_MAX;
        own->cpu = cpu_now();
        own->asleep = true;
        leave(crew);
        if (next)
            bell_wake(next);
        (void)bell_wait(&own->bell, until_ns);
        enter(crew);
        own->asleep = false;
        bell_clear(&own->bell);
        row_expire(crew, own);
    }
}

/* How long a caller waits. When the store has been away for that long, it waits for the next knock
 * at its door and no more: if it is back, that shows. */
static uint64_t until_when(const struct crew *crew, int wait_ms)
{
    uint64_t now_ns = wait_now_ns(), wait = (uint64_t)wait_ms * NS_PER_MS;
    const struct gate *gate = &crew->gate;
    uint64_t once_ns = gate->next_ns + KNOCK_TAKES_MS * NS_PER_MS;
    bool away = gate->since_ns != 0 && now_ns - gate->since_ns >= wait;
    return away && once_ns > now_ns ? once_ns : now_ns + wait;
}

static enum err row_run(struct crew *crew, struct op *const *ops, size_t n, struct ask *asks,
                        int wait_ms, struct fault *why)
{
    struct wakes others;
    others.n = 0;
    struct party own = {.left = n, .others = &others};
    enter(crew);
    own.until_ns = until_when(crew, wait_ms);
    for (size_t i = 0; i < n; i++) {
        asks[i] = (struct ask){.op = ops[i], .party = &own};
        row_add(crew, &asks[i]);
    }
    party_stay(crew, &own);
    const struct bell *next = pass_on(crew);
    leave(crew);
    wakes_run(&others);
    if (next)
        bell_wake(next);
    if (own.err != OK && why)
        *why = own.why;
    return own.err;
}

static enum err direct_run(struct crew *crew, struct op *const *ops, size_t n, struct fault *why)
{
    enum err err = OK;
    for (size_t i = 0; i < n && err == OK; i += ONCE_OPS_MAX) {
        size_t some = n - i < ONCE_OPS_MAX ? n - i : ONCE_OPS_MAX;
        err = crew->with.driver->run(crew->lane[0].conn, ops + i, some, why);
    }
    return err;
}

enum err crew_run(struct crew *crew, struct op *const *ops, size_t n, int wait_ms,
                  struct fault *why)
{
    for (size_t i = 0; i < n; i++)
        ops[i]->outcome = OUT_NONE;
    if (crew_stale(crew))
        return ERR_STALE;
    if (n == 0)
        return OK;
    if (crew->with.driver->direct)
        return direct_run(crew, ops, n, why);
    struct ask few[FEW];
    if (n <= FEW)
        return row_run(crew, ops, n, few, wait_ms, why);
    cleanup(free_at) struct ask *asks = calloc(n, sizeof *asks);
    if (!asks)
        return fault_set(why, ERR_NO_MEMORY, "out of memory");
    return row_run(crew, ops, n, asks, wait_ms, why);
}

enum err crew_accept(struct crew *crew, struct fault *why)
{
    const struct once_driver *driver = crew->with.driver;
    if (!crew_stale(crew))
        return OK;
    struct conn *conn;
    enum err err = driver->connect(crew->with.store, &conn, why);
    if (err != OK)
        return err;
    if (driver->accept)
        err = driver->accept(crew->with.store, conn, why);
    driver->disconnect(conn);
    if (err == OK)
        atomic_store(&crew->stale, false);
    return err;
}
