/* Coupon tasks, each carried out once, however often its message comes and whoever is killed when.
 *
 *     coupons [name server [ledger [store [plain]]]]
 *
 * A message is {"taskId":"task12345","users":5}: a coupon for each of so many users, which is a
 * line in the ledger. The state lock of a task is coupon_task_execute:idempotent:task12345: one
 * consumer at a time has it, it is free again when its holder dies, it stays when the task is done.
 * The broker keeps it, unless another store is named. With "plain" and a Redis the lock has the
 * form that others have there, to be shared with them.
 *
 * Start several, kill them with -9 in the middle: nobody gets a coupon twice. Ctrl-C ends it. */
#include "../example.h"

#include <fcntl.h>
#include <once.h>
#include <stdlib.h>

/* How many coupons of this task are in the ledger. They are handed out in order, so that is also
 * where to go on. */
static long handed_out(const char *ledger, const char *task)
{
    char line[256];
    size_t len = strlen(task);
    long n = 0;
    FILE *file = fopen(ledger, "re");
    while (file && fgets(line, sizeof line, file))
        n += strncmp(line, task, len) == 0 && line[len] == ' ';
    if (file)
        (void)fclose(file);
    return n;
}

static bool hand_out(const char *ledger, const char *task, long user)
{
    char line[256];
    int len = snprintf(line, sizeof line, "%s user-%ld\n", task, user);
    int fd = open(ledger, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    bool good = fd >= 0 && write(fd, line, (size_t)len) == len; /* whole lines, also side by side */
    if (!good)
        perror(ledger);
    if (fd >= 0)
        (void)close(fd);
    take_time();
    return good;
}

static int carry_out(void *ledger, const struct omq_delivery *const *messages, size_t n,
                     size_t *done)
{
    (void)n, (void)done; /* one at a time: `batch` is not set */
    const struct once_run *run = messages[0]->run;
    const char *task = once_run_key(run);
    char users[16];
    if (!field(messages[0], "users", users, sizeof users))
        return OMQ_LATER; /* after its retries it is a dead letter, for people to look at */

    /* Did somebody die in the middle of this task? Nobody but us can know how far it came. */
    long user = once_run_overtook(run) ? handed_out(ledger, task) : 0;
    if (user > 0)
        (void)printf("%s goes on after user %ld\n", task, user);
    while (user++ < strtol(users, NULL, 10)) {
        if (once_run_lost(run) || !hand_out(ledger, task, user))
            return OMQ_LATER;
    }
    (void)printf("%s done\n", task);
    return OMQ_DONE;
}

int main(int argc, char **argv)
{
    static char ledger[] = "ledger";
    bool plain = argc > 4 && strcmp(argv[4], "plain") == 0;
    sigset_t end = hold_ctrl_c();
    struct omq_client_options to = {.names = argc > 1 ? argv[1] : "127.0.0.1:9876",
                                    .log = log_line};
    struct omq_subscription tasks = {.topic = "CouponTasks"};
    struct once_options once = {
        .store = argc > 3 ? argv[3] : NULL, /* the broker's own ledger */
        .mode = ONCE_LEASE,
        .prefix = "coupon_task_execute:idempotent:",
        .key = "{body.taskId}",
        .takeover = !plain, /* who was killed need not be waited for; a plain lock has no name */
        .plain = plain,
    };
    struct omq_consumer_options options = {
        .group = "coupons",
        .subscriptions = &tasks,
        .n_subscriptions = 1,
        .handle = carry_out,
        .user = argc > 2 ? argv[2] : ledger,
        .start = OMQ_FROM_FIRST,
        .threads = 4,
        .once = &once,
    };
    struct omq_client *client = NULL;
    struct omq_consumer *consumer = NULL;
    struct omq_error why;
    if (omq_client_open(&to, &client, &why) || omq_consumer_open(client, &options, &consumer, &why))
        (void)fprintf(stderr, "%s\n", why.text);
    else
        await_ctrl_c(&end);
    if (consumer) {
        struct once_stats n;
        once_stats(omq_consumer_once(consumer), &n);
        (void)printf("%llu tasks, %llu of them gone on with; %llu copies had no effect\n",
                     (unsigned long long)n.first_runs, (unsigned long long)n.overtaken,
                     (unsigned long long)n.duplicates);
    }
    omq_consumer_close(consumer);
    omq_client_close(client);
    return consumer == NULL;
}
