/* count_once.c - libonce's path: count.h tells what it is for.
 *
 *     count_once once MESSAGES
 */
#include "once.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int nothing(void *user, struct once_run *run)
{
    return ONCE_DONE;
}

static void deliver(struct once *once, const struct once_message *m)
{
    struct once_answer answer;
    if (once_do(once, m, nothing, NULL, &answer) != ONCE_ACK)
        errx(2, "not done: %s %s", once_cause_text(answer.cause), answer.why.text);
}

int main(int argc, char **argv)
{
    const struct once_options options = {
        .store = "memory:", .group = "count", .key = "coupon:{body.taskId}", .mode = ONCE_LEASE};
    struct once *once;
    struct once_error why;
    if (argc != 3 || strcmp(argv[1], "once") != 0)
        errx(2, "usage: count_once once MESSAGES");
    if (once_open(&options, &once, &why))
        errx(2, "%s", why.text);
    unsigned long messages = strtoul(argv[2], NULL, 10);
    for (unsigned long i = 0; i < messages; i++) {
        char body[64];
        int n = snprintf(body, sizeof body, "{\"taskId\":\"task%08lu\",\"n\":1}", i);
        deliver(once,
                &(struct once_message){.topic = "Count", .body = body, .body_size = (size_t)n});
    }
    once_close(once);
    return 0;
}
