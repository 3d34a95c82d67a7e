/* The dedup table, for handlers that never take longer than some known time: no claim is renewed.
 *
 *     printf 'mail-1\nmail-1\n' | table postgresql://user:password@localhost/shop
 *     printf 'mail-1\n' | table mysql://user:password@localhost/shop qmq_dedup
 *
 * With the name of a table (id, k, update_at) that is there already, it is used as it is. */
#include <once.h>

#include <stdio.h>
#include <string.h>

static int send_mail(void *user, struct once_run *run)
{
    (void)user;
    (void)printf("%s sent\n", once_run_key(run));
    (void)fflush(stdout);
    return ONCE_DONE;
}

int main(int argc, char **argv)
{
    struct once_options options = {
        .store = argc > 1 ? argv[1] : NULL,
        .mode = ONCE_TABLE,
        .group = "mails",
        .expiry_ms = 600000, /* a mail is sent in ten minutes, or its process is dead */
        .create = argc<3, .plain = argc> 2,
        .table = argc > 2 ? argv[2] : NULL,
    };
    struct once *once;
    struct once_error why;
    char line[256];
    if (once_open(&options, &once, &why)) {
        (void)fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        struct once_message message = {.keys = line};
        struct once_answer answer;
        if (once_do(once, &message, send_mail, NULL, &answer) != ONCE_ACK)
            (void)fprintf(stderr, "%s comes again: %s\n", line, once_cause_text(answer.cause));
    }
    once_close(once);
    return 0;
}
