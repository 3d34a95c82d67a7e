/* Random lives of a broker with dedup, each answer compared with that of a simple model.
 *
 * Single messages, batches and turns of both, with keys of a small pool; time passes, the wall
 * clock jumps, the disk fails, the process ends, the power goes. The model remembers for each topic
 * and key what was stored last, and when. A message that is answered as known must be exactly that
 * one; a message that is stored must not have been stored within the window, unless the power loss
 * took it.
 *
 * MODEL_SEEDS=n runs so many lives, TEST_SEED=n begins with that one.
 */
#include "broker/dedup_int.h"
#include "broker/later_test.h"
#include "store/vfs_fault.h"

#include <limits.h>
#include <sys/stat.h>

#define LIVES     25
#define STEPS     250
#define KEYS      25
#define PLACES    3 /* of one key in a batch */
#define TURN_MAX  6
#define BATCH_TOP 5
#define WINDOW_MS 60000
#define TICK_MS   1000

enum { BY_KEY, BY_ORDER, BY_NOTHING, TOPICS };
static const char *const topics[TOPICS] = {"ByKey", "ByOrder", "ByNothing"};

struct known {
    bool stored;
    int64_t position, queue_offset, store_ms;
    int32_t queue_id;
    int64_t since_ms; /* of the clock that never goes back */
};

struct life {
    struct rig *rig;
    struct vfs_fault *fault;
    struct dice dice;
    struct known known[TOPICS][KEYS][PLACES];
    uint64_t seed;
    int64_t started_ms, started_steady_ms;
};

/* How much was there to compare: a model test that recognises nothing proves nothing. */
static struct {
    uint64_t messages, known, adopted, forgotten, lost, refused, starts;
} seen;

/* One message of a request. */
struct sent {
    int key, place;
};
struct sending {
    struct sent messages[BATCH_TOP];
    size_t n;
    int topic;
    uint8_t body[2048];
    char props[64];
};

static int64_t steady_ms(struct life *l)
{
    return (int64_t)(clock_ns(&l->rig->clock.clock) / 1000000);
}

/* After a start a message is as old as its record says. */
static int64_t since_of(struct life *l, int64_t store_ms)
{
    int64_t age_ms = l->started_ms - store_ms;
    return l->started_steady_ms - (age_ms > 0 ? age_ms : 0);
}

static size_t below(struct life *l, size_t n)
{
    return (size_t)dice_below(&l->dice, n);
}

/* ---- sending ---- */

static const char *props_of(int key, int level, char out[64])
{
    int len = snprintf(out, 64, "UNIQ_KEY\1k%d\2order\1n%d\2", key, key);
    if (level)
        snprintf(out + len, 64 - (size_t)len, "DELAY\1%d\2", level);
    return out;
}

/* The how-manieth of the request it is, counted the simple way. */
static int how_manieth(const struct sending *s, int key)
{
    int place = 0;
    for (size_t i = 0; i < s->n; i++)
        place += s->topic == BY_KEY && s->messages[i].key == key;
    return place;
}

static struct produce single_make(struct life *l, struct sending *s)
{
    int key = (int)below(l, KEYS);
    int level = below(l, 5) ? 0 : 1 + (int)below(l, 2);
    s->messages[s->n++] = (struct sent){key, 0};
    struct produce r = rig_message(topics[s->topic], "x");
    r.props = bytes_str(props_of(key, level, s->props));
    return r;
}

static struct produce batch_make(struct life *l, struct sending *s)
{
    struct wr w = wr_over(s->body, sizeof s->body);
    size_t n = 1 + below(l, BATCH_TOP), pool = below(l, 2) ? KEYS : 3;
    for (size_t i = 0; i < n; i++) {
        int key = (int)below(l, pool), place = how_manieth(s, key);
        if (place == PLACES)
            continue;
        char props[64];
        s->messages[s->n++] = (struct sent){key, place};
        batch_add(&w, &(struct batch_item){0, BYTES("m"), bytes_str(props_of(key, 0, props))});
    }
    struct produce r = rig_message(topics[s->topic], "");
    r.body = wr_bytes(&w);
    r.batch = true;
    return r;
}

/* Whether the broker must know it; and may. */
static bool must_know(struct life *l, const struct known *k)
{
    return k->stored && steady_ms(l) - k->since_ms < WINDOW_MS;
}
static bool may_know(struct life *l, const struct known *k)
{
    return k->stored && steady_ms(l) - k->since_ms <= WINDOW_MS + 2 * TICK_MS;
}

/* What became of it: a power loss may have taken it, and put another in its place. */
static bool still_there(struct life *l, struct known *k, int topic, int key)
{
    struct slice slice;
    struct record record;
    char name[8];
    snprintf(name, sizeof name, "k%d", key);
    if (store_peek_at(l->rig->store, k->position, &slice))
        return false;
    bool same = record_decode(slice.bytes, &record) == OK && record.store_ms == k->store_ms &&
                record.queue_offset == k->queue_offset &&
                bytes_equal(later_prop(record.props, "UNIQ_KEY"), bytes_str(name)) &&
                (bytes_equal(record.topic, bytes_str(topics[topic])) ||
                 bytes_equal(later_prop(record.props, "REAL_TOPIC"), bytes_str(topics[topic])));
    if (same && !bytes_to_i32(later_prop(record.props, "REAL_QID"), &k->queue_id))
        k->queue_id = record.queue_id;
    counted_drop(slice.owner);
    return same;
}

/* It is not the one that the model knows. That may be: an earlier one that a power loss has left
 * while it took the last, or one whose store was refused but reached the disk nevertheless. */
static void adopt(struct life *l, const struct sending *s, size_t i, struct known *k,
                  const struct stored *got)
{
    struct known found = {
        true, got->position, got->queue_offset, got->store_ms, 0, since_of(l, got->store_ms)};
    bool older = k->stored && got->position < k->position;
    if ((older && must_know(l, k)) || !still_there(l, &found, s->topic, s->messages[i].key))
        fail_msg("seed %" PRIu64 ": key %d of %s was taken for another", l->seed,
                 s->messages[i].key, topics[s->topic]);
    *k = found;
    seen.adopted++;
}

/* One message was answered with success. */
static void message_check(struct life *l, const struct sending *s, size_t i, bool known,
                          const struct stored *got, int32_t queue_id)
{
    struct known *k = &l->known[s->topic][s->messages[i].key][s->messages[i].place];
    seen.messages++;
    if (known) {
        seen.known++;
        assert_int_not_equal(s->topic, BY_NOTHING);
        if (!k->stored || got->position != k->position)
            adopt(l, s, i, k, got);
        if (!may_know(l, k))
            fail_msg("seed %" PRIu64 ": recognised after the window", l->seed);
        assert_int_equal(got->queue_offset, k->queue_offset);
        if (i == 0)
            assert_int_equal(queue_id, k->queue_id);
        return;
    }
    if (s->topic != BY_NOTHING && must_know(l, k))
        fail_msg("seed %" PRIu64 ": key %d of %s was stored again", l->seed, s->messages[i].key,
                 topics[s->topic]);
    seen.forgotten += k->stored;
    *k = (struct known){true,          got->position, got->queue_offset,
                        got->store_ms, queue_id,      steady_ms(l)};
}

static void request_check(struct life *l, const struct sending *s, const struct produce *r)
{
    if (r->err) {
        seen.refused++;
        return;
    }
    assert_int_equal(r->count, s->n);
    const struct desk *desk = l->rig->desk;
    uint32_t n_known = 0;
    for (size_t i = 0; i < s->n; i++) {
        bool known = desk->notes[r->first + i].fate != NOTE_NEW;
        n_known += known;
        message_check(l, s, i, known, &desk->stored[r->first + i],
                      i == 0 ? r->stored_queue_id : r->queue_id);
    }
    assert_int_equal(r->known, n_known);
}

static void turn(struct life *l)
{
    static struct sending sendings[TURN_MAX];
    struct produce requests[TURN_MAX];
    size_t n = 1 + below(l, TURN_MAX);
    for (size_t i = 0; i < n; i++) {
        struct sending *s = &sendings[i];
        s->n = 0;
        s->topic = (int)below(l, TOPICS);
        requests[i] = below(l, 3) ? single_make(l, s) : batch_make(l, s);
        requests[i].queue_id = (int32_t)below(l, 4);
    }
    if (below(l, 15) == 0)
        vfs_fault_plan(l->fault, 1 + below(l, 6), 1 + below(l, 3), ERR_IO);
    uint64_t end;
    broker_produce(l->rig->broker, l->rig->desk, requests, n, &end);
    vfs_fault_plan(l->fault, 0, 0, OK);
    broker_dispatch_turn(l->rig->broker);
    for (size_t i = 0; i < n; i++)
        request_check(l, &sendings[i], &requests[i]);
}

/* ---- ends and beginnings ---- */

static void known_again(struct life *l)
{
    l->started_ms = clock_ms(&l->rig->clock.clock);
    l->started_steady_ms = steady_ms(l);
    for (int t = 0; t < TOPICS; t++)
        for (int i = 0; i < KEYS * PLACES; i++) {
            struct known *k = &l->known[t][i / PLACES][i % PLACES];
            if (!k->stored)
                continue;
            k->since_ms = since_of(l, k->store_ms);
            if (!still_there(l, k, t, i / PLACES)) {
                k->stored = false;
                seen.lost++;
            }
        }
}

static void die_and_start(struct life *l, bool power)
{
    struct rig *rig = l->rig;
    vfs_fault_plan(l->fault, 1, ULONG_MAX, ERR_IO);
    desk_close(rig->desk);
    (void)(broker_close(rig->broker, NULL) == OK);
    (void)(store_close(rig->store, NULL) == OK);
    vfs_fault_plan(l->fault, 0, 0, OK);
    rig->broker = NULL;
    if (power)
        vfs_fault_power_loss(l->fault);
    if (below(l, 4) == 0)
        atomic_fetch_add(&rig->clock.wall_ms, (int64_t)below(l, 60000) - 30000);
    struct fault why = {0};
    if (rig_start(rig, &why))
        fail_msg("seed %" PRIu64 ": %s", l->seed, why.text);
    seen.starts++;
    known_again(l);
}

static void step(struct life *l)
{
    struct service_turn ignored;
    switch (below(l, 16)) {
    default:
        turn(l);
        break;
    case 0:
    case 1:
        clock_manual_advance(&l->rig->clock, (int64_t)below(l, below(l, 4) ? 8000 : 50000));
        break;
    case 2:
        atomic_fetch_add(&l->rig->clock.wall_ms, (int64_t)below(l, 200000) - 100000);
        break;
    case 3:
        (void)store_flush_turn(l->rig->store);
        store_keep_turn(l->rig->store);
        break;
    case 4:
        broker_delay_turn(l->rig->broker, &ignored);
        broker_dedup_turn(l->rig->broker);
        break;
    case 5:
        if (below(l, 3) == 0)
            die_and_start(l, below(l, 2));
        break;
    }
    if (store_state(l->rig->store, NULL)) /* it takes no more messages in this life */
        die_and_start(l, false);
}

/* ---- lives ---- */

static void life_begin(struct life *l, struct rig *rig)
{
    struct fault why = {0};
    rig_stop(rig);
    l->rig = rig;
    l->dice = dice_seeded(l->seed);
    l->fault = vfs_fault_new(rig->vfs, l->seed);
    rig->options.vfs = rig->store_vfs = &l->fault->vfs;
    rig->options.dedup_key = "UNIQ_KEY";
    rig->options.dedup_window_ms = WINDOW_MS;
    rig->sync_flush = below(l, 2);
    assert_int_equal(rig_start(rig, &why), OK);
    const char *changes[TOPICS] = {"", "+dedup.key=order", "+dedup.key=OFF"};
    for (int i = 0; i < TOPICS; i++) {
        struct topic_settings set = {bytes_str(topics[i]), 4, 4, 6};
        assert_int_equal(broker_topic_set(rig->broker, &set, bytes_str(changes[i]), &why), OK);
    }
    assert_int_equal(broker_save_turn(rig->broker, &why), OK);
}

static void life_end(struct life *l)
{
    struct rig *rig = l->rig;
    rig_stop(rig);
    rig->store_vfs = NULL;
    vfs_fault_free(l->fault);
    (void)nftw(rig->folder, rig_remove, 16, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(rig->folder, 0700), 0);
    rig->vfs->calls->dispose(rig->vfs);
    struct fault why = {0};
    assert_int_equal(vfs_posix_open(rig->folder, &rig->vfs, &why), OK);
    rig->options.vfs = rig->vfs;
    assert_int_equal(rig_start(rig, &why), OK);
}

static void answers_are_those_of_the_model(void **state)
{
    const char *lives = getenv("MODEL_SEEDS");
    const char *given = getenv("TEST_SEED");
    uint64_t first = given ? strtoull(given, NULL, 0) : dice_seed_from_os();
    print_message("# TEST_SEED=%" PRIu64 "\n", first);
    for (uint64_t i = 0; i < (lives ? strtoull(lives, NULL, 0) : LIVES); i++) {
        static struct life l;
        l = (struct life){.seed = first + i};
        life_begin(&l, *state);
        for (int k = 0; k < STEPS; k++)
            step(&l);
        life_end(&l);
    }
    print_message("# %" PRIu64 " messages, %" PRIu64 " known (%" PRIu64 " otherwise), %" PRIu64
                  " after their time, %" PRIu64 " lost with the power, %" PRIu64
                  " requests refused, %" PRIu64 " starts\n",
                  seen.messages, seen.known, seen.adopted, seen.forgotten, seen.lost, seen.refused,
                  seen.starts);
    assert_true(seen.known > 100 && seen.forgotten > 100 && seen.starts > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {rig_test(answers_are_those_of_the_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
