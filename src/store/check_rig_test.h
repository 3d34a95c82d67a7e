/* check_rig_test.h - a folder, and what the check says about it: for the tests of checks.
 *
 * Only for the x_test.c files of this folder.
 */
#ifndef STORE_CHECK_RIG_TEST_H
#define STORE_CHECK_RIG_TEST_H

#include "store/test_house.h"

#include <stdio.h>

#define N 1000

static struct found {
    struct check_summary sum;
    struct fault why;
    size_t n;
    struct {
        enum check_grade grade;
        char file[200], text[400];
        int64_t at;
    } all[64];
    uint64_t done, of;
} found;

static inline void on_found(void *user, const struct check_finding *f)
{
    (void)user;
    if (found.n == sizeof found.all / sizeof found.all[0])
        return;
    (void)snprintf(found.all[found.n].file, sizeof found.all[0].file, "%s", f->file);
    (void)snprintf(found.all[found.n].text, sizeof found.all[0].text, "%s", f->text);
    found.all[found.n].grade = f->grade;
    found.all[found.n].at = f->at;
    found.n++;
}

static inline void on_progress(void *user, uint64_t done, uint64_t of)
{
    (void)user;
    assert_true(done >= found.done);
    assert_true(done <= of);
    found.done = done;
    found.of = of;
}

static inline enum err check(struct house *h)
{
    static const struct check_calls calls = {on_found, on_progress, NULL};
    memset(&found, 0, sizeof found);
    return store_check(h->disk, &calls, &found.sum, &found.why);
}

static inline void must_find(struct house *h, uint64_t damages, uint64_t notes)
{
    enum err err = check(h);
    bool as_wanted = !err && found.sum.damages == damages && found.sum.notes == notes;
    for (size_t i = 0; i < found.n && !as_wanted; i++)
        print_error("%d %s %lld: %s\n", found.all[i].grade, found.all[i].file,
                    (long long)found.all[i].at, found.all[i].text);
    assert_int_equal(err, OK);
    assert_int_equal(found.sum.damages, damages);
    assert_int_equal(found.sum.notes, notes);
}

/* One of the findings is about this file (a part of its name) and says this. */
static inline void must_say(enum check_grade grade, const char *file, int64_t at, const char *text)
{
    for (size_t i = 0; i < found.n; i++) {
        if (found.all[i].grade == grade && strstr(found.all[i].file, file) &&
            (at < -1 || found.all[i].at == at) && strstr(found.all[i].text, text))
            return;
    }
    for (size_t i = 0; i < found.n; i++)
        print_error("%d %s %lld: %s\n", found.all[i].grade, found.all[i].file,
                    (long long)found.all[i].at, found.all[i].text);
    fail_msg("nobody said \"%s\" about %s", text, file);
}

static struct stored stored[N];

/* N messages over several files, closed cleanly or not. */
static inline void house_filled(struct house *h, bool clean)
{
    house_init(h, 1);
    house_must_open(h);
    uint64_t end;
    for (uint64_t i = 0; i < N; i += 25)
        assert_int_equal(house_send(h, i, 25, stored + i, &end), OK);
    house_dispatch(h);
    if (clean)
        house_must_close(h);
    else
        house_crash(h);
}

#endif
