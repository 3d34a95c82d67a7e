/* send.c - `oncemq send`: one message, or as many as you like.
 *
 * Many messages are under way at once (flight.h), each with a number and the id that follows from
 * it (serial.h). The run ends when all have landed. When something fails, or somebody presses
 * Ctrl-C, no further message begins, those under way are waited for, and what is left is said in a
 * form that --resume takes: nothing that is surely stored is sent again, and what may be stored is
 * looked for first.
 */
#include "cli/commands_int.h"
#include "cli/send_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define UNDER_WAY     1000
#define UNDER_WAY_MAX 60000
#define SCRATCH_MAX   (LINE_MAX_SIZE * 8)
#define GROUP         "oncemq"

/* ---- what became of a message ---- */

void send_print(struct send *send, const struct landed *l)
{
    struct cli *cli = send->cli;
    bool stored = l->fate == FATE_STORED || l->fate == FATE_DUPLICATE;
    if (!send->each || (!stored && !cli->json && send->end == 1)) /* one alone: the error says it */
        return;
    row_begin(cli);
    put_number(cli, "number", (int64_t)l->number);
    put_text(cli, "state", fate_text(l->fate));
    put_text(cli, "id", l->receipt.id);
    if (stored) {
        put_text(cli, "broker", l->receipt.broker);
        put_number(cli, "queue", l->receipt.queue_id);
        put_number(cli, "offset", l->receipt.queue_offset);
        put_text(cli, "offset_id", l->receipt.offset_id);
        put_text(cli, "safety",
                 l->receipt.stored == OMQ_STORED            ? "ok"
                 : l->receipt.stored == OMQ_STORED_NO_FLUSH ? "not flushed"
                                                            : "not copied");
        if (l->receipt.recall[0])
            put_text(cli, "recall", l->receipt.recall);
    } else
        put_text(cli, "error", l->why.text);
    row_end(cli);
}

static void failed(struct send *send, const struct landed *l)
{
    if (!send->failed)
        send->why = l->why;
    send->failed = true;
    if (l->fate == FATE_UNSURE) { /* at most as many as are under way at once */
        struct landed *more = realloc(send->unsure, (send->n_unsure + 1) * sizeof *send->unsure);
        if (more) {
            send->unsure = more;
            more[send->n_unsure++] = *l;
            return;
        }
    }
    if (serial_back(&send->serial, l->number, l->fate == FATE_UNSURE))
        send->input_status =
            cli_fail(send->cli, STATUS_FAILED, NULL,
                     "no memory: message %" PRIu64 " (%s) is missing in the list of what is left",
                     l->number, fate_text(l->fate));
    send_print(send, l);
}

static void land_one(void *user, const struct landed *l)
{
    struct send *send = user;
    bool stored = l->fate == FATE_STORED || l->fate == FATE_DUPLICATE;
    send->counts[l->fate]++;
    send->weak += stored && l->receipt.stored != OMQ_STORED;
    if (stored)
        send_print(send, l);
    else
        failed(send, l);
}

/* ---- what is next ---- */

/* The line of message `number`; those before it are not wanted. False: it is not there yet, or
 * there is none any more. */
static bool line_ready(struct send *send, uint64_t number)
{
    if (send->has_ready && send->line == number)
        return true;
    send->has_ready = false;
    while (send->line < number) {
        switch (lines_next(&send->lines, &send->ready)) {
        case LINES_READY:
            send->line++;
            continue;
        case LINES_WAIT:
            return false;
        case LINES_END:
            send->input_over = true;
            send->end = send->line;
            return false;
        case LINES_TOO_LONG:
            send->input_status = cli_fail(send->cli, STATUS_FAILED, NULL,
                                          "line %" PRIu64 " is over %zu MiB: no message can be so "
                                          "long",
                                          send->line + 1, LINE_MAX_SIZE >> 20);
            break;
        case LINES_FAILED:
            send->input_status =
                cli_fail(send->cli, STATUS_FAILED, NULL, "reading line %" PRIu64 ": %s",
                         send->line + 1, strerror(send->lines.error));
            break;
        }
        send->input_over = true;
        return false;
    }
    send->has_ready = true;
    return true;
}

static bool is_stopping(struct send *send)
{
    return cli_stopped(send->cli) || out_broken(send->cli) || send->input_status ||
           (send->failed && !(send->keep_going && !send->counts[FATE_UNSURE]));
}

/* Begins the next message. False: not now. */
static bool begin_one(struct send *send)
{
    uint64_t number = serial_peek(&send->serial);
    if (number == 0 || number > send->end || pace_due_ms(&send->pace) > 0)
        return false;
    if (send->by_line && !line_ready(send, number))
        return false;
    struct bytes body = send->by_line ? send->ready : send->body;
    if (!flight_room(send->flight, body.len))
        return false;
    bool unsure;
    (void)serial_next(&send->serial, &unsure);
    send->has_ready = false;
    send->begun++;
    pace_step(&send->pace);
    struct omq_message message;
    struct landed landed = {.number = number, .fate = FATE_NOT_STORED};
    if (!send_make(send, number, body, landed.receipt.id, &message, &landed.why)) {
        land_one(send, &landed);
    } else if (unsure && (send_look(send, &landed) || landed.why.code)) {
        send->there += landed.fate == FATE_STORED;
        land_one(send, &landed);
    } else {
        flight_send(send->flight, &message, number, NULL);
    }
    return true;
}

static bool is_over(struct send *send)
{
    uint64_t number = serial_peek(&send->serial);
    return number == 0 || number > send->end || send->input_over || is_stopping(send);
}

static void wait_a_little(struct send *send)
{
    int64_t ms = send->progress.visible ? 100 : 1000, due = pace_due_ms(&send->pace);
    bool over = is_over(send),
         room = flight_room(send->flight, send->has_ready ? send->ready.len : 1);
    bool wants_line = !over && send->by_line && !send->has_ready && room && due == 0;
    if (!over && room && due > 0 && due < ms)
        ms = due;
    flight_wait(send->flight, wants_line ? send->lines.fd : -1, ms);
}

static void send_all(struct send *send)
{
    send->began_ms = now_ms();
    pace_begin(&send->pace);
    progress_begin(&send->progress, send->cli, "sending", send->end == SERIAL_END ? 0 : send->end);
    while (!is_over(send) || flight_under_way(send->flight) > 0) {
        while (!is_stopping(send) && begin_one(send))
            continue;
        wait_a_little(send);
        flight_land(send->flight, land_one, send);
        progress_move(&send->progress, send->counts[FATE_STORED] + send->counts[FATE_DUPLICATE]);
        if (send->each && send->by_line)
            out_flush(send->cli); /* whoever feeds us line by line may want to see each */
    }
    progress_end(&send->progress);
}

static int flight_begin(struct send *send)
{
    struct cli *cli = send->cli;
    static const struct {
        const char *name;
        int compression;
    } ways[] = {{"zlib", OMQ_ZLIB}, {"lz4", OMQ_LZ4}, {"zstd", OMQ_ZSTD}};
    const char *way = arg_text(cli, "compress", NULL);
    struct flight_limits limits = {
        /* In order, the next one waits: if one fails, none behind it is stored. */
        .messages = (size_t)arg_number(cli, "in-flight", send->order ? 1 : UNDER_WAY),
        .group = GROUP,
        .trace = arg_has(cli, "trace"),
        .compress_over = way ? 1 : 0,
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (way && strcmp(way, ways[i].name) == 0)
            limits.compression = ways[i].compression;
    if (way && strcmp(way, "none") == 0)
        limits.compress_over = SIZE_MAX;
    if (limits.messages < 1 || limits.messages > UNDER_WAY_MAX)
        return cli_fail(cli, STATUS_USAGE, NULL, "--in-flight must be 1 to %d", UNDER_WAY_MAX);
    return flight_open(cli, &limits, &send->flight);
}

static int send_run(struct cli *cli)
{
    struct send send = {.cli = cli};
    arena_init(&send.scratch, SCRATCH_MAX);
    int status = send_read(&send);
    if (!status)
        status = flight_begin(&send);
    if (!status) {
        cli_catch_stop(cli);
        send_all(&send);
        status = send_report(&send);
    }
    flight_close(send.flight);
    lines_clear(&send.lines);
    serial_clear(&send.serial);
    free(send.unsure);
    arena_clear(&send.scratch);
    return status;
}

/* ---- the command ---- */

static const struct column send_columns[] = {
    {"number", COLUMN_NUMBER, NULL, "the message's number in this send, from 1"},
    {"state", COLUMN_TEXT, "STATE",
     "stored; duplicate (the broker had it already under this id); not stored; unsure (no answer: "
     "it may be stored)"},
    {"id", COLUMN_TEXT, "ID", "its unique id"},
    {"broker", COLUMN_TEXT, "BROKER", "where it is stored"},
    {"queue", COLUMN_NUMBER, "QUEUE", "the number of the queue there"},
    {"offset", COLUMN_NUMBER, "OFFSET", "its place in the queue"},
    {"offset_id", COLUMN_TEXT, NULL, "the id of that place"},
    {"safety", COLUMN_TEXT, NULL,
     "ok, or what the broker did not do in time: not flushed, not copied"},
    {"recall", COLUMN_TEXT, NULL, "with --delay or --at: what takes it back"},
    {"error", COLUMN_TEXT, NULL, "why it is not stored, or unsure"},
    {NULL},
};

static const struct opt send_options[] = {
    {"key", OPT_TEXT, "KEYS", "words to find it by, with blanks between them", .letter = 'k'},
    {"tag", OPT_TEXT, "TAG", "a word for consumers to choose by", .letter = 't'},
    {"prop", OPT_TEXT, "NAME=VALUE", "a property of your own", .letter = 'p', .many = true},
    {"order", OPT_TEXT, "KEY", "messages with the same key go to one queue, in order"},
    {"delay", OPT_DURATION, "TIME", "deliver it so much later"},
    {"at", OPT_TIME, "TIME", "deliver it then"},
    {"file", OPT_TEXT, "FILE", "the body is in this file; - is stdin", .letter = 'f'},
    {"lines", OPT_SWITCH, NULL, "each line of stdin, or of --file, is a message", .letter = 'l'},
    {"count", OPT_NUMBER, "N",
     "so many messages; {n} and {time} in body, key, tag, order and properties are the number of "
     "the message and the time in ms",
     .letter = 'c'},
    {"rate", OPT_TEXT, "N/s", "at most so many a second (N/m, N/h: a minute, an hour)"},
    {"each", OPT_SWITCH, NULL, "say of each message where it is, not only of one alone"},
    {"keep-going", OPT_SWITCH, NULL, "go on when a message is refused"},
    {"resume", OPT_TEXT, "ID/NUMBERS", "go on with a send that was broken off, with what it said"},
    {"id", OPT_TEXT, "ID", "the unique id of the (first) message; default: a new one"},
    {"in-flight", OPT_NUMBER, "N",
     "messages that wait for their answer at once; 1000; in order: 1"},
    {"compress", OPT_CHOICE, "HOW", "all bodies; default: zlib from 4 KiB on",
     "zlib|lz4|zstd|none"},
    {"trace", OPT_SWITCH, NULL, "send message trace, for oncemq trace"},
    {NULL},
};

const struct command send_commands[] = {
    {
        .name = "send",
        .arguments = "TOPIC [BODY]",
        .summary = "send messages",
        .text =
            "The body is the second argument, a file, or stdin; with --lines every line is a "
            "message (empty ones are passed over), however many there are.\n\n"
            "Many messages are under way at once. When one fails, the connection breaks or you "
            "press Ctrl-C, no further one begins; then it is said exactly how many are stored, how "
            "many surely are not, and which may be, since no answer came. The same command with "
            "the --resume that is shown sends the rest: what is surely stored is not sent again, "
            "and what may be stored is looked for by its id first. Each message keeps its id, so "
            "a broker with producer dedup, or a consumer with an idempotence key, recognises a "
            "second copy.",
        .examples = "oncemq send orders 'hello' --key order-17 --tag created\n"
                    "oncemq send orders '{\"orderId\":{n}}' --key 'order-{n}' --count 1000 --rate "
                    "200/s\n"
                    "oncemq send orders --lines < orders.jsonl\n"
                    "oncemq send orders 'not paid yet' --delay 90s",
        .options = send_options,
        .shape = SHAPE_LINES,
        .columns = send_columns,
        .run = send_run,
    },
    {NULL},
};
