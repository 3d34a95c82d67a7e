/* operate.c - the table of what operators use. */
#include "cli/operate_int.h"

#include "cli/commands_int.h"

const struct command operate_commands[] = {
    {
        .name = "top",
        .summary = "a live view: rates, lag, latency, duplicates suppressed",
        .text =
            "On a terminal it fills the screen: q quits, b t g u show brokers, topics, groups and "
            "queues, s sorts, the arrows or j and k scroll, p pauses, h tells the rest. In a "
            "pipe, or with --once, it prints one picture of one interval; with --json an object "
            "each interval.\n\n"
            "Latency and duplicates are what oncemqd counts; Apache's broker knows the latency of "
            "all sends only. Lag and rates of groups are told from their offsets.",
        .examples = "oncemq top\noncemq top --once --view queues\noncemq top --json --interval 10s",
        .options = top_options,
        .shape = SHAPE_LINES,
        .columns = top_columns,
        .run = top_run,
    },
    {
        .name = "doctor",
        .summary = "look for what is wrong, and say what to do",
        .text = "Looks at name servers (each answers, all say the same), brokers (answer, are "
                "registered everywhere, have a master, the same version), clocks, disks, how many "
                "files a program on this machine may have open, topics "
                "(routes, permissions), groups (lag and whether it grows, members, retries, dead "
                "letters, members that subscribe differently). Nothing is changed.\n\n"
                "The exit status is that of the worst: 0 all is well, 5 there are warnings, 1 "
                "something "
                "is bad, 4 no name server answers.",
        .examples = "oncemq doctor\noncemq doctor --json | jq '.[] | select(.state != \"ok\")'",
        .options = doctor_options,
        .shape = SHAPE_LIST,
        .columns = doctor_columns,
        .run = doctor_run,
    },
    {
        .name = "clock show",
        .summary = "what the clocks of all brokers show, and how far they are from ours",
        .options = clock_options,
        .shape = SHAPE_LIST,
        .columns = clock_columns,
        .run = clock_show,
    },
    {
        .name = "clock advance",
        .arguments = "DURATION",
        .summary = "put the clock of oncemqd --clock virtual forward",
        .text =
            "For tests: delays, retries and retention of hours are seen in moments. The clock of "
            "any other broker is not touched; it refuses. docs/requests.md tells what jumps and "
            "what does not.",
        .examples = "oncemq clock advance 2h",
        .options = clock_options,
        .shape = SHAPE_LIST,
        .columns = clock_advance_columns,
        .run = clock_advance,
    },
    {NULL},
};
