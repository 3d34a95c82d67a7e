/* query.c - `oncemq query`: messages by id, by key, by time. */
#include "cli/commands_int.h"
#include "cli/find.h"
#include "cli/message.h"
#include "cli/scan.h"

#include <stdlib.h>
#include <string.h>

#define COUNT    64
#define BODY_MAX 80 /* in a table */

static void print(struct cli *cli, const struct omq_delivery *d)
{
    row_begin(cli);
    message_put(cli, d, BODY_MAX);
    row_end(cli);
}

static int print_found(struct cli *cli, struct omq_found *found, const char *what)
{
    for (size_t i = 0; i < found->n; i++)
        print(cli, found->messages[i]);
    bool none = found->n == 0;
    omq_found_free(found);
    return none
               ? cli_fail(cli, STATUS_NOT_FOUND,
                          "brokers find a message by its key or id as long as they keep it, in the "
                          "topic it was sent to",
                          "there is no message %s", what)
               : STATUS_OK;
}

static int by_id(struct cli *cli, const char *topic, const char *id)
{
    struct omq_found found;
    int status = find_message(cli, id, topic, &found);
    return status ? status
                  : print_found(cli, &found,
                                admin_format(cli, "with the id %s", printable(cli, bytes_str(id))));
}

static int by_key(struct cli *cli, const char *topic, const char *key)
{
    struct omq_query query = {.topic = topic,
                              .key = key,
                              .begin_ms = arg_number(cli, "from", 0),
                              .end_ms = arg_number(cli, "to", 0),
                              .max = (int)arg_number(cli, "count", COUNT)};
    struct omq_found found;
    struct admin_route route;
    int status = admin_route(cli, topic, &route); /* a topic that is not there is said to be so */
    if (admin_none(status))
        return status;
    status = find_in(cli, &query, &found);
    return status
               ? status
               : print_found(cli, &found,
                             admin_format(cli, "with the key %s", printable(cli, bytes_str(key))));
}

static int by_time(struct cli *cli, const char *topic)
{
    int64_t count = arg_number(cli, "count", COUNT);
    struct scan scan;
    int status = scan_open(&scan, cli, topic);
    if (!status && arg_has(cli, "from"))
        status = scan_begin_at(&scan, arg_number(cli, "from", 0));
    if (!status && arg_has(cli, "to"))
        status = scan_end_at(&scan, arg_number(cli, "to", 0));
    const struct omq_delivery *d = NULL;
    int64_t n = 0;
    while (!status && !(status = scan_next(&scan, &d, NULL)) && d && n < count) {
        print(cli, d);
        n++;
    }
    if (!status && d && !cli_stopped(cli))
        cli_note(cli, "there are more: --count N shows them, oncemq consume --end all of them");
    if (!status && n == 0)
        status = cli_fail(cli, STATUS_NOT_FOUND, NULL, "topic %s has no message of that time",
                          printable(cli, bytes_str(topic)));
    scan_close(&scan);
    return status;
}

static int query_run(struct cli *cli)
{
    const char *topic = arg_at(cli, 0), *id = arg_text(cli, "id", NULL),
               *key = arg_text(cli, "key", NULL);
    bool timed = arg_has(cli, "from") || arg_has(cli, "to");
    if ((id && (key || timed)) || (!id && !key && !timed))
        return cli_fail(cli, STATUS_USAGE, "oncemq query --help shows how",
                        "one of --id, --key, or --from and --to says which messages");
    if (!id && !topic)
        return cli_fail(cli, STATUS_USAGE, "oncemq topic list shows what there is",
                        "messages by key or time are looked for in a topic: which?");
    if (arg_number(cli, "count", COUNT) < 1 || arg_number(cli, "count", COUNT) > INT32_MAX)
        return cli_fail(cli, STATUS_USAGE, NULL, "--count must be 1 or more");
    cli_catch_stop(cli);
    return id ? by_id(cli, topic, id) : key ? by_key(cli, topic, key) : by_time(cli, topic);
}

static const struct column query_columns[] = {MESSAGE_COLUMNS, {NULL}};

static const struct opt query_options[] = {
    {"id", OPT_TEXT, "ID", "the message with this unique id, or at this place (offset id)",
     .letter = 'i'},
    {"key", OPT_TEXT, "KEY", "messages with this word among their keys", .letter = 'k'},
    {"from", OPT_TIME, "TIME", "stored then or later: -1h, 14:30, 2026-11-16T14:30:00Z"},
    {"to", OPT_TIME, "TIME", "stored before that"},
    {"count", OPT_NUMBER, "N", "at most so many (by key: of each broker); 64", .letter = 'c'},
    {NULL},
};

const struct command query_commands[] = {
    {
        .name = "query",
        .arguments = "[TOPIC]",
        .summary = "messages by id, by key, by time",
        .text =
            "By id without a topic every topic is asked, unless the id is that of a place (an "
            "offset id, which names its broker). Nothing is consumed, and no group hears of it.\n\n"
            "A table has the beginning of each body; --json has all of it, and the properties.",
        .examples = "oncemq query --id 0A0000070001B1AAC2EE55C3A1F20000\n"
                    "oncemq query orders --key order-17\n"
                    "oncemq query orders --from -10m --to -5m --json",
        .options = query_options,
        .shape = SHAPE_LIST,
        .columns = query_columns,
        .run = query_run,
    },
    {NULL},
};
