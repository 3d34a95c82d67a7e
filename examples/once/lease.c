/* The state lock: each line of input is a message with a key; its effect is a line of output.
 *
 *     printf 'coupon-1\ncoupon-1\ncoupon-2\n' | lease sqlite:once.db
 *
 * Run it again, or two at once on the same store: no line is printed twice. */
#include <once.h>

#include <stdio.h>
#include <string.h>

static int hand_out(void *user, struct once_run *run)
{
    (void)user;
    /* Here the coupon would be sent, with the fence for a service that can refuse late comers. */
    (void)printf("%s handed out\n", once_run_key(run));
    (void)fflush(stdout);
    return once_run_lost(run) ? ONCE_FAILED : ONCE_DONE;
}

int main(int argc, char **argv)
{
    struct once_options options = {
        .store = argc > 1 ? argv[1] : NULL, /* sqlite:once.db */
        .group = "coupons",
        .key = "{key}",
        .create = true,
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
        struct once_message message = {.topic = "Coupons", .keys = line};
        struct once_answer answer;
        int verdict = once_do(once, &message, hand_out, NULL, &answer);
        if (verdict == ONCE_ACK && answer.cause == ONCE_DUPLICATE)
            (void)fprintf(stderr, "%s was handed out before\n", line);
        else if (verdict != ONCE_ACK)
            (void)fprintf(stderr, "%s comes again: %s\n", line, once_cause_text(answer.cause));
    }
    once_close(once);
    return 0;
}
