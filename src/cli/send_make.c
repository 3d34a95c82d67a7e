/* send_make.c - from the command line to messages. */
#include "base/addr.h"
#include "base/dice.h"
#include "cli/send_int.h"
#include "msg/msg.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- placeholders ---- */

/* {n}: the number of the message; {time}: now, in ms since 1970. Other braces stay. */
static bool place_read(struct bytes rest, uint64_t number, char out[24], size_t *len)
{
    if (bytes_start(rest, BYTES("{n}"))) {
        (void)snprintf(out, 24, "%llu", (unsigned long long)number);
        *len = 3;
        return true;
    }
    if (bytes_start(rest, BYTES("{time}"))) {
        (void)snprintf(out, 24, "%lld", (long long)now_ms());
        *len = 6;
        return true;
    }
    return false;
}

/* `text` with its placeholders filled in, and a NUL behind it. {NULL, 0}: no memory. */
static struct bytes fill(struct send *send, struct bytes text, uint64_t number)
{
    struct buf filled = buf_upto(LINE_MAX_SIZE * 2);
    for (size_t i = 0; i < text.len;) {
        char value[24];
        size_t len;
        if (text.at[i] == '{' && place_read(bytes_from(text, i), number, value, &len)) {
            buf_add_str(&filled, value);
            i += len;
            continue;
        }
        const uint8_t *brace = memchr(text.at + i + 1, '{', text.len - i - 1);
        size_t end = brace ? (size_t)(brace - text.at) : text.len;
        buf_add(&filled, bytes_of(text.at + i, end - i));
        i = end;
    }
    buf_add_u8(&filled, 0);
    struct bytes copy =
        filled.err ? (struct bytes){0} : arena_copy(&send->scratch, buf_bytes(&filled));
    buf_clear(&filled);
    return copy.at ? bytes_of(copy.at, copy.len - 1) : copy;
}

static const char *fill_text(struct send *send, const char *text, uint64_t number)
{
    if (!text || !send->fills || !strchr(text, '{'))
        return text;
    return (const char *)fill(send, bytes_str(text), number).at;
}

bool send_make(struct send *send, uint64_t number, struct bytes body, char id[SERIAL_ID_MAX],
               struct omq_message *out, struct omq_error *why)
{
    arena_reset(&send->scratch);
    if (send->fills && !send->by_line && memchr(body.at, '{', body.len))
        body = fill(send, body, number);
    struct omq_property *properties =
        arena_alloc(&send->scratch, (send->n_properties + 1) * sizeof *properties);
    *out = (struct omq_message){
        .topic = send->topic,
        .body = body.at,
        .body_size = body.len,
        .tag = fill_text(send, send->tag, number),
        .keys = fill_text(send, send->key, number),
        .sharding_key = fill_text(send, send->order, number),
        .properties = properties,
        .n_properties = send->n_properties,
        .delay_ms = send->delay_ms,
        .deliver_ms = send->deliver_ms,
        .id = id,
    };
    bool whole = body.at && properties && !out->tag == !send->tag && !out->keys == !send->key &&
                 !out->sharding_key == !send->order;
    for (size_t i = 0; whole && i < send->n_properties; i++) {
        properties[i].name = send->properties[i].name;
        properties[i].value = fill_text(send, send->properties[i].value, number);
        whole = properties[i].value;
    }
    if (!whole) {
        *why = (struct omq_error){.code = OMQ_NO_MEMORY};
        (void)snprintf(why->text, sizeof why->text, "no memory for message %llu",
                       (unsigned long long)number);
        return false;
    }
    return serial_id(&send->serial, number, id);
}

/* ---- the command line ---- */

static int properties_read(struct send *send)
{
    struct cli *cli = send->cli;
    const char *text;
    size_t n = 0;
    while (arg_nth(cli, "prop", n))
        n++;
    send->properties = arena_alloc(&cli->arena, (n + 1) * sizeof *send->properties);
    if (!send->properties)
        return cli_fail(cli, STATUS_FAILED, NULL, "no memory for %zu properties", n);
    for (size_t i = 0; (text = arg_nth(cli, "prop", i)); i++) {
        const char *equals = strchr(text, '=');
        if (!equals || equals == text || !equals[1])
            return cli_fail(cli, STATUS_USAGE, NULL,
                            "--prop %s is not valid: it must be a name and a value: --prop k=v",
                            printable(cli, bytes_str(text)));
        char *copy = arena_alloc(&cli->arena, strlen(text) + 1);
        if (!copy)
            return cli_fail(cli, STATUS_FAILED, NULL, "no memory for a property");
        memcpy(copy, text, strlen(text) + 1);
        copy[equals - text] = 0;
        send->properties[send->n_properties++] =
            (struct omq_property){copy, copy + (equals - text) + 1};
    }
    return STATUS_OK;
}

/* Where the bodies come from: an argument, a file, stdin. */
static int input_open(struct send *send, const char *body, const char *file)
{
    struct cli *cli = send->cli;
    bool from_stdin = !file || strcmp(file, "-") == 0;
    if (body && (file || send->by_line))
        return cli_fail(cli, STATUS_USAGE, NULL,
                        "the body is given twice: as an argument, and by --%s",
                        file ? "file" : "lines");
    if (body) {
        send->body = bytes_str(body);
        return send->body.len > 0 ? STATUS_OK
                                  : cli_fail(cli, STATUS_USAGE, NULL, "the body is empty");
    }
    if (from_stdin && cli->terminal_in)
        cli_note(cli, send->by_line ? "one message a line; Ctrl-D ends it"
                                    : "reading the body; Ctrl-D ends it");
    int fd = from_stdin ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cli_fail(cli, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_FAILED, NULL,
                        "opening %s: %s", file, strerror(errno));
    lines_init(&send->lines, fd);
    if (send->by_line)
        return STATUS_OK;
    switch (lines_all(&send->lines, &send->body)) {
    case LINES_TOO_LONG:
        return cli_fail(cli, STATUS_USAGE, "--lines sends a message for each line",
                        "the body is over %zu MiB", LINE_MAX_SIZE >> 20);
    case LINES_FAILED:
        return cli_fail(cli, STATUS_FAILED, NULL, "reading %s: %s", from_stdin ? "stdin" : file,
                        strerror(send->lines.error));
    default:
        return send->body.len > 0 ? STATUS_OK
                                  : cli_fail(cli, STATUS_USAGE, NULL, "the body is empty");
    }
}

/* An id as the official clients make them: address, process, chance, time. */
static int id_first(struct send *send, char out[ID_TEXT_MAX])
{
    int status;
    struct omq_client *client = cli_client(send->cli, &status);
    if (!client)
        return status;
    const char *id = omq_client_id(client);
    char text[80];
    struct addr host = {.ip = {127, 0, 0, 1}, .ip_len = 4};
    (void)snprintf(text, sizeof text, "%.*s:1", (int)strcspn(id, "@"), id);
    if (addr_parse(bytes_str(text), &host))
        host = (struct addr){.ip = {127, 0, 0, 1}, .ip_len = 4};
    struct id_maker maker;
    id_maker_init(&maker, &host, (uint16_t)getpid(), (uint32_t)dice_seed_from_os());
    (void)id_make(&maker, now_ms(), out);
    return STATUS_OK;
}

static int numbers_read(struct send *send)
{
    struct cli *cli = send->cli;
    const char *resume = arg_text(cli, "resume", NULL), *given = arg_text(cli, "id", NULL);
    int64_t count = arg_number(cli, "count", 1);
    if (count == 0 || (send->by_line && arg_has(cli, "count")) || (resume && given))
        return cli_fail(cli, STATUS_USAGE, NULL,
                        count == 0        ? "--count 0 sends nothing"
                        : resume && given ? "--resume has the id already: --id is too much"
                                          : "--lines and --count do not go together");
    send->end = send->by_line ? SERIAL_END : (uint64_t)count;
    char made[ID_TEXT_MAX], last[SERIAL_ID_MAX];
    int status = resume || given ? STATUS_OK : id_first(send, made);
    if (status)
        return status;
    enum err err = resume ? serial_parse(&send->serial, resume)
                          : serial_init(&send->serial, given ? given : made, send->end);
    if (err == ERR_NO_MEMORY)
        return cli_fail(cli, STATUS_FAILED, NULL, "no memory for the numbers of messages");
    if (err || (send->end > 1 && !serial_id(&send->serial, 2, last)))
        return cli_fail(cli, STATUS_USAGE,
                        "what a broken-off send prints goes here as it is: ID/1-20?,31-",
                        "--%s %s is not valid", resume ? "resume" : "id",
                        printable(cli, bytes_str(resume ? resume : given)));
    send->fills = arg_has(cli, "count") || send->by_line;
    return STATUS_OK;
}

int send_read(struct send *send)
{
    struct cli *cli = send->cli;
    send->topic = arg_at(cli, 0);
    send->by_line = arg_has(cli, "lines");
    send->tag = arg_text(cli, "tag", NULL);
    send->key = arg_text(cli, "key", NULL);
    send->order = arg_text(cli, "order", NULL);
    send->delay_ms = arg_number(cli, "delay", 0);
    send->deliver_ms = arg_number(cli, "at", 0);
    send->keep_going = arg_has(cli, "keep-going");
    if (send->delay_ms > 0 && send->deliver_ms > 0)
        return cli_fail(cli, STATUS_USAGE, NULL, "--delay and --at do not go together");
    int status = properties_read(send);
    if (!status)
        status = pace_read(&send->pace, cli, "rate");
    if (!status)
        status = numbers_read(send);
    if (!status)
        status = input_open(send, arg_at(cli, 1), arg_text(cli, "file", NULL));
    send->each = cli->json || arg_has(cli, "each") || send->end == 1;
    return status;
}
