/* say.c - notes, questions and failures: what goes to stderr. */
#include "base/json.h"
#include "cli/out_int.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cli_note(struct cli *cli, const char *format, ...)
{
    if (cli->json || cli->quiet)
        return;
    va_list args;
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

static const char *status_word(int status)
{
    switch (status) {
    case STATUS_USAGE:
        return "usage";
    case STATUS_NOT_FOUND:
        return "not_found";
    case STATUS_UNREACHABLE:
        return "unreachable";
    case STATUS_PARTLY:
        return "partly";
    case STATUS_DECLINED:
        return "declined";
    case STATUS_INTERRUPTED:
        return "interrupted";
    default:
        return "failed";
    }
}

static void fail_json(int status, const char *hint, const char *message)
{
    struct buf text = buf_upto(1 << 20);
    struct json_out w = {.buf = &text};
    json_open(&w);
    json_text_member(&w, "error", bytes_str(status_word(status)));
    json_text_member(&w, "message", bytes_str(message));
    json_key(&w, "hint");
    if (hint && *hint)
        json_put_text(&w, bytes_str(hint));
    else
        json_put_null(&w);
    json_close(&w);
    (void)fprintf(stderr, "%.*s\n", (int)text.len, (const char *)text.at);
    buf_clear(&text);
}

int cli_fail(struct cli *cli, int status, const char *hint, const char *format, ...)
{
    char message[2048];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    out_flush(cli);
    if (cli->json) {
        fail_json(status, hint, message);
        return status;
    }
    (void)fprintf(stderr, "%soncemq:%s %s\n", cli->colour_err ? "\033[31m" : "",
                  cli->colour_err ? "\033[0m" : "", message);
    if (hint && *hint)
        (void)fprintf(stderr, "        %s\n", hint);
    return status;
}

int status_of(int omq_code)
{
    switch (omq_code) {
    case OMQ_OK:
        return STATUS_OK;
    case OMQ_INVALID:
        return STATUS_USAGE;
    case OMQ_NO_TOPIC:
    case OMQ_NO_GROUP:
    case OMQ_NOT_FOUND:
        return STATUS_NOT_FOUND;
    case OMQ_TIMEOUT:
    case OMQ_NETWORK:
    case OMQ_LOST:
        return STATUS_UNREACHABLE;
    default:
        return STATUS_FAILED;
    }
}

static const char *hint_of(struct cli *cli, const struct omq_error *why, char room[256])
{
    switch (why->code) {
    case OMQ_NETWORK:
    case OMQ_TIMEOUT:
    case OMQ_LOST:
        (void)snprintf(
            room, 256,
            "is a name server running at %.120s? -n or ONCEMQ_NAMES names another; oncemq "
            "doctor looks closer",
            cli_names(cli));
        return room;
    case OMQ_NO_TOPIC:
        return "oncemq topic list shows what there is; oncemq topic create makes one";
    case OMQ_NO_GROUP:
        return "oncemq group list shows what there is";
    case OMQ_DENIED:
        return "the topic, the group or the broker forbids it: oncemq topic show, oncemq group "
               "show";
    case OMQ_BUSY:
        return "try again in a moment";
    default:
        return NULL;
    }
}

int cli_fail_omq(struct cli *cli, const struct omq_error *why, const char *what)
{
    char room[256];
    return cli_fail(cli, status_of(why->code), hint_of(cli, why, room), "%s%s%s", what ? what : "",
                    what ? ": " : "", printable(cli, bytes_str(why->text)));
}

int cli_confirm(struct cli *cli, const char *format, ...)
{
    char question[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(question, sizeof question, format, args);
    va_end(args);
    if (cli->yes)
        return STATUS_OK;
    if (!cli->terminal_in || !cli->terminal_err || cli->json)
        return cli_fail(cli, STATUS_DECLINED, "say --yes if that is what you want",
                        "nothing was done, for nobody can be asked: %s", question);
    out_flush(cli);
    (void)fprintf(stderr, "%s [y/N] ", question);
    (void)fflush(stderr);
    char answer[16] = "";
    if (!fgets(answer, sizeof answer, stdin))
        (void)fputc('\n', stderr);
    answer[strcspn(answer, "\n")] = 0;
    if (strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0)
        return STATUS_OK;
    return cli_fail(cli, STATUS_DECLINED, NULL, "nothing was done");
}
