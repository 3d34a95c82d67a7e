/* fake_test.h - a store with connections, for tests of the crew: the memory store behind a door
 * that a test can shut at any point, and that checks what a driver may rely on.
 */
#ifndef ONCE_FAKE_TEST_H
#define ONCE_FAKE_TEST_H

#include "once/once_int.h"

#include "base/test.h"

struct fake {
    struct store *memory;
    _Atomic int connects, live, runs, ops, biggest;
    _Atomic enum err connect_fails; /* OK: it works */
    _Atomic enum err run_fails;     /* before anything is done */
    _Atomic int run_fails_at;       /* >0: only the run of that number, counted from 1 */
    _Atomic bool half;              /* what fails does so after half of it was done and answered */
    _Atomic bool mute;              /* … after all of it was done, without an answer */
    _Atomic int delay_us;
    _Atomic enum err alone_fails; /* a batch that has `poison` in it fails so */
    uint8_t poison[ONCE_ID_SIZE];
    _Atomic int accepted;
};

struct fake_conn {
    struct fake *fake;
    _Atomic bool used, dead;
};

static inline enum err fake_open(const struct store_settings *s, struct store **out,
                                 struct fault *why)
{
    struct fake *fake = s->log_user; /* once_options.user */
    enum err err = once_driver_memory.open(s, &fake->memory, why);
    *out = (struct store *)(void *)fake;
    return err;
}

static inline void fake_close(struct store *store)
{
    struct fake *fake = (struct fake *)(void *)store;
    assert_int_equal(atomic_load(&fake->live), 0);
    once_driver_memory.close(fake->memory);
}

static inline enum err fake_connect(struct store *store, struct conn **out, struct fault *why)
{
    struct fake *fake = (struct fake *)(void *)store;
    (void)atomic_fetch_add(&fake->connects, 1);
    enum err err = atomic_load(&fake->connect_fails);
    if (err != OK)
        return fault_set(why, err, "nobody at home");
    struct fake_conn *conn = calloc(1, sizeof *conn);
    assert_non_null(conn);
    conn->fake = fake;
    (void)atomic_fetch_add(&fake->live, 1);
    *out = (struct conn *)(void *)conn;
    return OK;
}

static inline void fake_disconnect(struct conn *c)
{
    struct fake_conn *conn = (struct fake_conn *)(void *)c;
    assert_false(atomic_load(&conn->used));
    (void)atomic_fetch_sub(&conn->fake->live, 1);
    free(conn);
}

static inline void fake_check(struct fake *fake, struct op *const *ops, size_t n)
{
    assert_in_range(n, 1, ONCE_OPS_MAX);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ops[i]->outcome, OUT_NONE);
    for (size_t i = 1; i < n; i++) /* sorted, each id once */
        assert_true(memcmp(ops[i - 1]->id, ops[i]->id, ONCE_ID_SIZE) < 0);
    int biggest = atomic_load(&fake->biggest);
    while ((int)n > biggest && !atomic_compare_exchange_weak(&fake->biggest, &biggest, (int)n))
        ;
}

static inline enum err fake_fault(struct fake *fake, struct op *const *ops, size_t n)
{
    int number = atomic_fetch_add(&fake->runs, 1) + 1, at = atomic_load(&fake->run_fails_at);
    enum err poisoned = atomic_load(&fake->alone_fails);
    for (size_t i = 0; i < n && poisoned != OK; i++) {
        if (memcmp(ops[i]->id, fake->poison, ONCE_ID_SIZE) == 0)
            return poisoned;
    }
    return at == 0 || at == number ? atomic_load(&fake->run_fails) : OK;
}

static inline enum err fake_run(struct conn *c, struct op *const *ops, size_t n, struct fault *why)
{
    struct fake_conn *conn = (struct fake_conn *)(void *)c;
    struct fake *fake = conn->fake;
    assert_false(atomic_exchange(&conn->used, true)); /* one thread at a time */
    assert_false(atomic_load(&conn->dead));
    fake_check(fake, ops, n);
    if (atomic_load(&fake->delay_us) > 0)
        wait_ns((uint64_t)atomic_load(&fake->delay_us) * 1000);
    enum err err = fake_fault(fake, ops, n);
    size_t does = err == OK || atomic_load(&fake->mute) ? n : atomic_load(&fake->half) ? n / 2 : 0;
    if (does > 0)
        assert_int_equal(
            once_driver_memory.run((struct conn *)(void *)fake->memory, ops, does, why), OK);
    (void)atomic_fetch_add(&fake->ops, (int)does);
    for (size_t i = 0; i < does && err != OK && atomic_load(&fake->mute); i++)
        ops[i]->outcome = OUT_NONE;
    if (err != OK)
        (void)fault_set(why, err, "the test says so");
    if (err == ERR_IO)
        atomic_store(&conn->dead, true);
    atomic_store(&conn->used, false);
    return err;
}

static inline enum err fake_accept(struct store *store, struct conn *conn, struct fault *why)
{
    struct fake *fake = (struct fake *)(void *)store;
    (void)conn;
    (void)why;
    (void)atomic_fetch_add(&fake->accepted, 1);
    return OK;
}

static const struct once_driver fake_driver = {
    .name = "fake",
    .open = fake_open,
    .close = fake_close,
    .connect = fake_connect,
    .disconnect = fake_disconnect,
    .run = fake_run,
    .accept = fake_accept,
};

#endif
