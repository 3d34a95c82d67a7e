/* The once ledger's room: what the log refuses, snapshots and what becomes of them, births. */
#include "broker/crash_test.h"
#include "broker/ledger_int.h"
#include "once.h"

#include <pthread.h>

#define HOUR_MS INT64_C(3600000)

struct asker {
    struct rig *rig;
    struct ledger_desk *desk;
    struct arena arena;
    struct ledger_told told;
    uint64_t birth;
};

static void asker_open(struct asker *a, struct rig *rig)
{
    *a = (struct asker){.rig = rig};
    arena_init(&a->arena, 1 << 20);
    assert_int_equal(ledger_desk_open(&a->desk), OK);
}

static void asker_close(struct asker *a)
{
    arena_clear(&a->arena);
    ledger_desk_close(a->desk);
}

static enum err ask(struct asker *a, struct op *op)
{
    struct ledger_ask request = {
        .group = BYTES("g"), .birth = a->birth, .ops = op, .n = 1, .arena = &a->arena};
    broker_ledger(a->rig->broker, a->desk, &request, 1, &a->told);
    return request.err;
}

static struct op op_of(enum op_kind kind, const char *key, uint64_t token)
{
    struct op op = {.kind = kind,
                    .name = key,
                    .token = token,
                    .expiry_ms = 30000,
                    .retention_ms = 1000 * HOUR_MS,
                    .result = kind == OP_FINISH ? bytes_str(key) : (struct bytes){0}};
    snprintf((char *)op.id, sizeof op.id, "%s", key);
    return op;
}

static enum op_outcome outcome(struct asker *a, enum op_kind kind, const char *key, uint64_t token)
{
    struct op op = op_of(kind, key, token);
    assert_int_equal(ask(a, &op), OK);
    if (kind == OP_CLAIM && op.outcome == OUT_DONE)
        assert_bytes_equal(op.result, bytes_str(key));
    arena_reset(&a->arena);
    return op.outcome;
}

static void done(struct asker *a, const char *key)
{
    assert_int_equal(outcome(a, OP_CLAIM, key, 5), OUT_OK);
    assert_int_equal(outcome(a, OP_FINISH, key, 5), OUT_OK);
}

static void save_until_done(struct rig *rig)
{
    struct fault why = {0};
    clock_manual_advance(&rig->clock, HOUR_MS + 1); /* what is behind the last one is old */
    for (int i = 0; i < 100 && rig->broker->ledger->tail > 0; i++) {
        (void)store_flush_turn(rig->store);
        assert_int_equal(broker_ledger_save_turn(rig->broker, &why), OK);
    }
    assert_int_equal(rig->broker->ledger->tail, 0);
}

/* Something of another topic, so that the log goes on into further files. */
static void fill(struct rig *rig, int megabytes)
{
    static char body[1 << 20];
    memset(body, 'x', sizeof body - 1);
    for (int i = 0; i < megabytes; i++)
        rig_send(rig, "Filler", "", body);
    (void)store_flush_turn(rig->store);
    broker_dispatch_turn(rig->broker);
}

/* Retention passes; the keeper cleans as often as it likes. */
static void clean(struct rig *rig, bool saves)
{
    struct fault why = {0};
    struct store_cleaned got;
    uint64_t first = store_first(rig->store);
    clock_manual_advance(&rig->clock, 100 * HOUR_MS);
    for (int i = 0; i < 8; i++) {
        clock_manual_advance(&rig->clock, 11000);
        (void)store_flush_turn(rig->store);
        store_keep_turn(rig->store);
        if (saves)
            assert_int_equal(broker_ledger_save_turn(rig->broker, &why), OK);
        store_clean_turn(rig->store, &got);
    }
    assert_true(store_first(rig->store) > first);
}

static void file_spoil(struct rig *rig, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", rig->folder, name);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, SNAPSHOT_HEAD + SNAPSHOT_BLOCK_HEAD + 3, SEEK_SET), 0);
    assert_int_not_equal(fputc(0x5a, file), EOF);
    assert_int_equal(fclose(file), 0);
}

/* ---- cases ---- */

static void what_the_log_refuses_has_not_happened(void **state)
{
    struct rig *rig = *state;
    struct vfs_fault *fault = fault_under(rig, 1);
    struct asker a;
    asker_open(&a, rig);
    assert_int_equal(outcome(&a, OP_CLAIM, "first", 5), OUT_OK);
    struct op finish = op_of(OP_FINISH, "first", 5), claim = op_of(OP_CLAIM, "second", 6);
    vfs_fault_plan(fault, 1, 100, ERR_DISK_FULL);
    assert_int_not_equal(ask(&a, &finish), OK);
    assert_int_not_equal(ask(&a, &claim), OK);
    vfs_fault_plan(fault, 0, 0, OK);
    clock_manual_advance(&rig->clock, 2000); /* the store gives itself another chance */
    (void)store_flush_turn(rig->store);
    assert_int_equal(outcome(&a, OP_LOOK, "second", 0), OUT_ABSENT);
    assert_int_equal(outcome(&a, OP_CLAIM, "first", 7), OUT_BUSY);
    assert_int_equal(outcome(&a, OP_CLAIM, "second", 8), OUT_OK);
    assert_int_equal(outcome(&a, OP_FINISH, "second", 6), OUT_LOST);
    assert_int_equal(outcome(&a, OP_FINISH, "first", 5), OUT_OK);
    assert_int_equal(outcome(&a, OP_CLAIM, "first", 7), OUT_DONE);
    asker_close(&a);
    fault_over(rig, fault);
}

/* The request has no memory for results, which is one of the reasons why none can be had. */
static void what_is_done_stays_done_without_its_result(void **state)
{
    struct rig *rig = *state;
    struct asker a;
    static const char text[4096] = "as long as a result may be";
    asker_open(&a, rig);
    struct op finish = op_of(OP_FINISH, "done", 5), claim = op_of(OP_CLAIM, "done", 7);
    finish.result = bytes_of(text, sizeof text);
    finish.fingerprint = claim.fingerprint = 3;
    assert_int_equal(outcome(&a, OP_CLAIM, "done", 5), OUT_OK);
    assert_int_equal(ask(&a, &finish), OK);
    struct op put = op_of(OP_STEP_PUT, "steps", 5), get = op_of(OP_STEP_GET, "steps", 5);
    put.step = get.step = BYTES("s");
    put.result = bytes_of(text, sizeof text);
    assert_int_equal(outcome(&a, OP_CLAIM, "steps", 5), OUT_OK);
    assert_int_equal(ask(&a, &put), OK);
    arena_clear(&a.arena);
    arena_init(&a.arena, 64);
    assert_int_equal(ask(&a, &claim), OK);
    assert_int_equal(claim.outcome, OUT_DONE);
    assert_int_equal(claim.result.len, 0);
    assert_true(claim.left_ms > 0);
    assert_int_equal(ask(&a, &get), OK);
    assert_int_equal(get.outcome, OUT_FAILED);
    arena_clear(&a.arena);
    arena_init(&a.arena, 1 << 20);
    assert_int_equal(ask(&a, &claim), OK);
    assert_bytes_equal(claim.result, bytes_of(text, sizeof text));
    asker_close(&a);
}

static void unused_it_leaves_nothing(void **state)
{
    struct rig *rig = *state;
    struct fault why = {0};
    char path[128];
    clock_manual_advance(&rig->clock, 2 * HOUR_MS);
    assert_int_equal(broker_ledger_save_turn(rig->broker, &why), OK);
    broker_ledger_turn(rig->broker);
    rig_again(rig);
    snprintf(path, sizeof path, "%s/config/onceLedger", rig->folder);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_false(rig_topic(rig, LEDGER_TOPIC, NULL));
}

static void a_start_reads_the_snapshot_and_what_is_behind_it(void **state)
{
    struct rig *rig = *state;
    struct asker a;
    asker_open(&a, rig);
    done(&a, "old");
    struct op step = op_of(OP_STEP_PUT, "claimed", 9);
    assert_int_equal(outcome(&a, OP_CLAIM, "claimed", 9), OUT_OK);
    step.step = BYTES("s");
    step.result = BYTES("value");
    assert_int_equal(ask(&a, &step), OK);
    a.birth = a.told.birth;
    save_until_done(rig);
    done(&a, "new");
    uint64_t tail = rig->broker->ledger->tail;
    assert_true(tail > 0);
    broker_dispatch_turn(rig->broker);
    rig_again(rig);
    assert_int_equal(rig->broker->ledger->tail, tail);
    assert_int_equal(outcome(&a, OP_CLAIM, "old", 7), OUT_DONE);
    assert_int_equal(outcome(&a, OP_CLAIM, "new", 7), OUT_DONE);
    step.kind = OP_STEP_GET;
    step.result = (struct bytes){0};
    assert_int_equal(ask(&a, &step), OK);
    assert_bytes_equal(step.result, BYTES("value"));
    assert_string_equal(broker_note(rig->broker), "");
    asker_close(&a);
}

static void a_snapshot_is_made_before_the_log_is_deleted(void **state)
{
    struct rig *rig = *state;
    struct asker a;
    rig->reserved_ms = 72 * HOUR_MS;
    rig_again(rig);
    asker_open(&a, rig);
    done(&a, "kept");
    a.birth = a.told.birth;
    fill(rig, 20);
    clean(rig, true);
    rig_again(rig);
    assert_string_equal(broker_note(rig->broker), "");
    struct op op = op_of(OP_CLAIM, "kept", 7);
    assert_int_equal(ask(&a, &op), OK);
    assert_int_equal(op.outcome, OUT_DONE);
    assert_int_equal(op.result.len, 0); /* that was in the log */
    asker_close(&a);
}

static void without_a_snapshot_and_the_beginning_it_is_another_one(void **state)
{
    struct rig *rig = *state;
    struct asker a;
    rig->reserved_ms = 72 * HOUR_MS;
    rig_again(rig);
    asker_open(&a, rig);
    done(&a, "lost");
    a.birth = a.told.birth;
    fill(rig, 20);
    done(&a, "left");
    clean(rig, false);
    for (int i = 0; i < 2; i++) { /* and only once */
        rig_again(rig);
        assert_true((strstr(broker_note(rig->broker), "once ledger may have lost") != NULL) == !i);
        struct op op = op_of(OP_CLAIM, "left", 7);
        assert_int_equal(ask(&a, &op), i ? OK : ERR_STALE);
        assert_true(a.told.birth != 0 && (i || a.told.birth != a.birth));
        a.birth = a.told.birth;
    }
    assert_int_equal(outcome(&a, OP_CLAIM, "left", 7), OUT_DONE);
    assert_int_equal(outcome(&a, OP_CLAIM, "lost", 7), OUT_OK);
    asker_close(&a);
}

static void a_damaged_snapshot_does_no_harm_while_the_log_has_all(void **state)
{
    struct rig *rig = *state;
    struct asker a;
    asker_open(&a, rig);
    done(&a, "one");
    a.birth = a.told.birth;
    save_until_done(rig);
    done(&a, "two");
    broker_dispatch_turn(rig->broker);
    rig_stop(rig);
    file_spoil(rig, "config/onceLedger");
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    assert_non_null(strstr(broker_note(rig->broker), "the log still had all of it"));
    assert_int_equal(outcome(&a, OP_CLAIM, "one", 7), OUT_DONE);
    assert_int_equal(outcome(&a, OP_CLAIM, "two", 7), OUT_DONE);
    asker_close(&a);
}

static void a_log_that_was_emptied_beside_its_snapshot_is_told(void **state)
{
    struct rig *rig = *state;
    struct asker a;
    asker_open(&a, rig);
    done(&a, "one");
    a.birth = a.told.birth;
    save_until_done(rig);
    rig_stop(rig);
    char path[128];
    for (const char *const *name =
             (const char *const[]){"commitlog", "consumequeue", "index", "checkpoint", NULL};
         *name; name++) {
        snprintf(path, sizeof path, "%s/%s", rig->folder, *name);
        (void)nftw(path, rig_remove, 16, FTW_DEPTH | FTW_PHYS);
    }
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    struct op op = op_of(OP_CLAIM, "one", 7);
    assert_int_equal(ask(&a, &op), ERR_STALE);
    a.birth = a.told.birth;
    done(&a, "two");
    broker_dispatch_turn(rig->broker);
    rig_again(rig);
    assert_int_equal(outcome(&a, OP_CLAIM, "two", 7), OUT_DONE); /* not behind what it knows */
    op = op_of(OP_CLAIM, "one", 7);
    assert_int_equal(ask(&a, &op), OK);
    assert_int_equal(op.outcome, OUT_DONE); /* what is left counts */
    asker_close(&a);
}

static void setting_the_clock_ends_no_claim_and_no_fence_goes_back(void **state)
{
    struct rig *rig = *state;
    struct asker a;
    asker_open(&a, rig);
    struct op claim = op_of(OP_CLAIM, "key", 5);
    assert_int_equal(ask(&a, &claim), OK);
    atomic_fetch_add(&rig->clock.wall_ms, 1000 * HOUR_MS);
    assert_int_equal(outcome(&a, OP_CLAIM, "key", 6), OUT_BUSY);
    atomic_fetch_sub(&rig->clock.wall_ms, 5000 * HOUR_MS);
    assert_int_equal(outcome(&a, OP_CLAIM, "key", 6), OUT_BUSY);
    broker_dispatch_turn(rig->broker);
    rig_again(rig);
    assert_int_equal(outcome(&a, OP_CLAIM, "key", 6), OUT_BUSY);
    assert_int_equal(outcome(&a, OP_FORGET, "key", 0), OUT_OK);
    broker_dispatch_turn(rig->broker);
    rig_again(rig);
    struct op again = op_of(OP_CLAIM, "key", 6);
    assert_int_equal(ask(&a, &again), OK);
    assert_true(again.fence > claim.fence);
    asker_close(&a);
}

/* ---- several loops at once ---- */

enum { LOOPS = 4, RACES = 1500 };

struct loop_of {
    pthread_t thread;
    struct rig *rig;
    uint64_t number;
    atomic_int *commits; /* of each key */
};

/* Each wants every key; who gets it ends it. */
static void *loop_run(void *arg)
{
    struct loop_of *l = arg;
    struct asker a;
    asker_open(&a, l->rig);
    for (int i = 0; i < RACES; i++) {
        char key[16];
        snprintf(key, sizeof key, "race-%d", i);
        struct op op = op_of(OP_CLAIM, key, l->number << 32 | (uint64_t)(i + 1));
        if (ask(&a, &op) == OK && op.outcome == OUT_OK) {
            op = op_of(OP_FINISH, key, l->number << 32 | (uint64_t)(i + 1));
            if (ask(&a, &op) == OK && op.outcome == OUT_OK)
                atomic_fetch_add(&l->commits[i], 1);
        }
        if (i % 100 == 0) {
            broker_ledger_turn(l->rig->broker);
            broker_dispatch_turn(l->rig->broker);
        }
        arena_reset(&a.arena);
    }
    asker_close(&a);
    return NULL;
}

static void of_several_at_once_one_has_the_key(void **state)
{
    struct rig *rig = *state;
    static atomic_int commits[RACES];
    struct loop_of loops[LOOPS];
    for (size_t i = 0; i < LOOPS; i++) {
        loops[i] = (struct loop_of){.rig = rig, .number = i + 1, .commits = commits};
        assert_int_equal(pthread_create(&loops[i].thread, NULL, loop_run, &loops[i]), 0);
    }
    for (size_t i = 0; i < LOOPS; i++)
        assert_int_equal(pthread_join(loops[i].thread, NULL), 0);
    broker_dispatch_turn(rig->broker);
    rig_again(rig);
    struct asker a;
    asker_open(&a, rig);
    for (int i = 0; i < RACES; i++) {
        char key[16];
        snprintf(key, sizeof key, "race-%d", i);
        assert_int_equal(commits[i], 1);
        assert_int_equal(outcome(&a, OP_CLAIM, key, 99), OUT_DONE);
    }
    asker_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(what_the_log_refuses_has_not_happened),
        rig_test(what_is_done_stays_done_without_its_result),
        rig_test(unused_it_leaves_nothing),
        rig_test(a_start_reads_the_snapshot_and_what_is_behind_it),
        rig_test(a_snapshot_is_made_before_the_log_is_deleted),
        rig_test(without_a_snapshot_and_the_beginning_it_is_another_one),
        rig_test(a_damaged_snapshot_does_no_harm_while_the_log_has_all),
        rig_test(a_log_that_was_emptied_beside_its_snapshot_is_told),
        rig_test(setting_the_clock_ends_no_claim_and_no_fence_goes_back),
        rig_test(of_several_at_once_one_has_the_key),
    };
    return cmocka_run_group_tests_name("broker/ledger", tests, NULL, NULL);
}
