/* A handler of several steps that cannot be one transaction: what was finished is not done again.
 *
 *     steps order-1 lock-stock ; steps order-1 charge ; steps order-1
 *
 * The second argument is the step at which the process dies, as if by kill -9. The services are
 * called with the same idempotency key whenever a step is tried. */
#include <once.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct call {
    const char *service, *die_at;
};

static int call(void *user, const char *idempotency_key, struct once_bytes *result)
{
    const struct call *call = user;
    (void)printf("calling %s with Idempotency-Key: %s\n", call->service, idempotency_key);
    (void)fflush(stdout);
    if (strcmp(call->service, call->die_at) == 0)
        _exit(9);
    *result = (struct once_bytes){"receipt", 7};
    return ONCE_DONE;
}

static int handle(void *die_at, struct once_run *run)
{
    static const char *const services[] = {"check-stock", "lock-stock", "charge", "ship"};
    for (size_t i = 0; i < 4; i++) {
        struct call with = {services[i], die_at};
        struct once_bytes result;
        struct once_error why;
        if (once_step(run, services[i], call, &with, &result, &why)) {
            (void)fprintf(stderr, "%s\n", why.text);
            return ONCE_FAILED;
        }
    }
    return ONCE_DONE;
}

int main(int argc, char **argv)
{
    /* The process dies on purpose, so the next one does not wait for the end of its claim. */
    struct once_options options = {.store = "sqlite:steps.db", .group = "orders", .takeover = true};
    struct once_message message = {.keys = argc > 1 ? argv[1] : "order-1"};
    struct once_answer answer;
    struct once_error why;
    struct once *once;
    char none = 0;
    if (once_open(&options, &once, &why)) {
        (void)fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    (void)once_do(once, &message, handle, argc > 2 ? argv[2] : &none, &answer);
    (void)printf("%s: %s\n", message.keys, once_cause_text(answer.cause));
    once_close(once);
    return 0;
}
