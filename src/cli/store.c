/* store.c - data folders without a daemon: are they sound, and what is in them? */
#include "store/store.h"

#include "base/base64.h"
#include "base/utf8.h"
#include "cli/commands_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BODY_MAX (64u << 20) /* of a body that was compressed */

static int folder_open(struct cli *cli, struct vfs **out)
{
    struct fault why = {0};
    enum err err = vfs_posix_find(arg_at(cli, 0), out, &why);
    if (!err)
        return STATUS_OK;
    return cli_fail(cli, err == ERR_NOT_FOUND ? STATUS_NOT_FOUND : STATUS_FAILED,
                    "DIR is what oncemqd has as --data, or Apache RocketMQ as storePathRootDir",
                    "%s", why.text[0] ? why.text : err_text(err));
}

static int folder_fail(struct cli *cli, enum err err, const struct fault *why)
{
    const char *hint = NULL;
    if (err == ERR_NOT_FOUND)
        hint = "DIR is what oncemqd has as --data, or Apache RocketMQ as storePathRootDir";
    else if (err == ERR_IN_USE)
        hint = "stop the daemon first, or look inside with: oncemq store dump DIR";
    return cli_fail(cli, err == ERR_NOT_FOUND ? STATUS_NOT_FOUND : STATUS_FAILED, hint, "%s: %s",
                    printable(cli, bytes_str(arg_at(cli, 0))),
                    why->text[0] ? why->text : err_text(err));
}

/* ---- check ---- */

static const struct column finding_columns[] = {
    {"grade", COLUMN_TEXT, "GRADE",
     "damage: something that was stored is lost; note: worth knowing"},
    {"file", COLUMN_TEXT, "FILE", "inside the folder"},
    {"at", COLUMN_NUMBER, "AT", "the byte of the file; null: the file as such"},
    {"text", COLUMN_TEXT, "WHAT", "what was found"},
    {NULL},
};

static const struct column check_columns[] = {
    {"state", COLUMN_STATE, "State", "bad: something is damaged"},
    {"damages", COLUMN_NUMBER, "Damage", "findings of that grade"},
    {"notes", COLUMN_NUMBER, "Notes", "findings of that grade"},
    {"clean_stop", COLUMN_BOOL, "Last stop clean",
     "else the next start verifies the end of the log"},
    {"records", COLUMN_NUMBER, "Records", "messages of the log that were read and are whole"},
    {"bytes", COLUMN_SIZE, "Bytes", "of those"},
    {"log_files", COLUMN_NUMBER, "Log files", "how many"},
    {"log_file_size", COLUMN_SIZE, "Log file size", "of each"},
    {"log_first", COLUMN_NUMBER, "Log begins at", "position of its first byte"},
    {"log_end", COLUMN_NUMBER, "Log ends at", "position behind its last message"},
    {"queues", COLUMN_NUMBER, "Queues", "how many have files"},
    {"units", COLUMN_NUMBER, "Units", "places of messages in queues"},
    {"queue_file_size", COLUMN_SIZE, "Queue file size", "of each"},
    {"index_files", COLUMN_NUMBER, "Index files", "how many"},
    {"index_entries", COLUMN_NUMBER, "Keys", "in the index"},
    {"timer_files", COLUMN_NUMBER, "Timer files", "how many"},
    {"timer_units", COLUMN_NUMBER, "Timers", "in those"},
    {"findings", COLUMN_LIST, "Findings", "at most 1000; the numbers above count all",
     finding_columns},
    {NULL},
};

/* The check on its way. The record begins with the first finding. */
struct checking {
    struct cli *cli;
    struct progress progress;
    bool begun;
};

static void check_begin(struct checking *c)
{
    if (c->begun)
        return;
    c->begun = true;
    row_begin(c->cli);
    list_open(c->cli, "findings");
}

static void check_found(void *user, const struct check_finding *f)
{
    struct checking *c = user;
    struct cli *cli = c->cli;
    check_begin(c);
    row_begin(cli);
    put_text(cli, "grade", f->grade == CHECK_DAMAGE ? "damage" : "note");
    put_text(cli, "file", f->file);
    if (f->at >= 0)
        put_number(cli, "at", f->at);
    put_text(cli, "text", f->text);
    row_end(cli);
}

static void check_progress(void *user, uint64_t done, uint64_t of)
{
    struct checking *c = user;
    if (c->progress.total != of)
        progress_begin(&c->progress, c->cli, "checking the log", of);
    progress_move(&c->progress, done);
}

static void check_sums(struct cli *cli, const struct check_summary *s)
{
    const struct {
        const char *name;
        uint64_t number;
    } numbers[] = {{"damages", s->damages},
                   {"notes", s->notes},
                   {"records", s->records},
                   {"bytes", s->bytes},
                   {"log_files", s->log_files},
                   {"log_file_size", s->log_file_size},
                   {"log_first", s->log_first},
                   {"log_end", s->log_end},
                   {"queues", s->queues},
                   {"units", s->units},
                   {"queue_file_size", s->queue_file_size},
                   {"index_files", s->index_files},
                   {"index_entries", s->index_entries},
                   {"timer_files", s->timer_files},
                   {"timer_units", s->timer_units}};
    put_text(cli, "state", s->damages ? "bad" : "ok");
    put_bool(cli, "clean_stop", s->clean);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        put_number(cli, numbers[i].name, (int64_t)numbers[i].number);
}

static int store_check_command(struct cli *cli)
{
    struct vfs *vfs;
    int status = folder_open(cli, &vfs);
    if (status)
        return status;
    struct checking c = {.cli = cli};
    struct check_summary sum;
    struct fault why = {0};
    const struct check_calls calls = {check_found, check_progress, &c};
    enum err err = store_check(vfs, &calls, &sum, &why);
    progress_end(&c.progress);
    vfs->calls->dispose(vfs);
    if (!err)
        check_begin(&c);
    if (c.begun)
        list_close(cli);
    if (!err)
        check_sums(cli, &sum);
    if (c.begun)
        row_end(cli);
    if (err)
        return folder_fail(cli, err, &why);
    if (sum.damages == 0)
        return STATUS_OK;
    return cli_fail(
        cli, STATUS_FAILED,
        "queues and index are made anew from the log: remove consumequeue/ or index/ if "
        "they alone are damaged",
        "%s is damaged: %" PRIu64 " findings", printable(cli, bytes_str(arg_at(cli, 0))),
        sum.damages);
}

/* ---- dump ---- */

static const struct opt dump_options[] = {
    {"topic", OPT_TEXT, "TOPIC", "only messages of this topic"},
    {"queue", OPT_NUMBER, "N", "only of this queue of the topic"},
    {"from", OPT_NUMBER, "PLACE",
     "begin here: an offset with --queue, else a position in the log (the next message counts)"},
    {"count", OPT_NUMBER, "N", "at most so many", .letter = 'c'},
    {"body", OPT_SWITCH, NULL, "bodies, too; expanded if they were compressed"},
    {NULL},
};

static const struct column dump_columns[] = {
    {"position", COLUMN_NUMBER, "POSITION", "in the log"},
    {"size", COLUMN_NUMBER, NULL, "bytes of its record"},
    {"stored_ms", COLUMN_TIME, "STORED", "when the broker stored it"},
    {"topic", COLUMN_TEXT, "TOPIC", "under which it is stored"},
    {"queue", COLUMN_NUMBER, "QUEUE", "of the topic"},
    {"offset", COLUMN_NUMBER, "OFFSET", "in the queue"},
    {"id", COLUMN_TEXT, "ID", "the producer's (UNIQ_KEY)"},
    {"offset_id", COLUMN_TEXT, NULL, "the broker's: address and position"},
    {"tag", COLUMN_TEXT, "TAG", "of the message"},
    {"keys", COLUMN_TEXT, "KEYS", "with blanks between them"},
    {"born_ms", COLUMN_TIME, NULL, "when its producer made it"},
    {"born_host", COLUMN_TEXT, NULL, "where"},
    {"store_host", COLUMN_TEXT, NULL, "the broker's address"},
    {"attempt", COLUMN_NUMBER, NULL, "1 for the first delivery"},
    {"flag", COLUMN_NUMBER, NULL, "the user's"},
    {"sys_flag", COLUMN_NUMBER, NULL, "the protocol's: compression, transaction, addresses"},
    {"properties", COLUMN_MAP, NULL, "all of them"},
    {"body_size", COLUMN_NUMBER, "BYTES", "of the body as it is stored"},
    {"body", COLUMN_TEXT, "BODY", "with --body, if it is text"},
    {"body64", COLUMN_TEXT, NULL, "with --body, if it is not"},
    {NULL},
};

struct dumping {
    struct cli *cli;
    bool bodies;
    struct compressor compressor;
    struct buf expanded, letters;
};

static void put_body(struct dumping *d, const struct record *r)
{
    struct bytes body = r->body;
    d->expanded.len = d->letters.len = 0;
    if (r->sys_flag & SYS_COMPRESSED && body.len > 0 &&
        body_expand(&d->compressor, r->sys_flag, body, &d->expanded) == OK)
        body = buf_bytes(&d->expanded);
    if (!d->cli->json || utf8_valid(body)) {
        put_bytes(d->cli, "body", body);
        return;
    }
    uint8_t *to = buf_space(&d->letters, BASE64_SIZE(body.len));
    if (to)
        put_bytes(d->cli, "body64", bytes_of(to, base64_write(BASE64_TEXT, body, (char *)to)));
}

static void put_property(struct cli *cli, const char *column, struct bytes props, struct bytes name)
{
    struct bytes value;
    if (props_get(props, name, &value))
        put_bytes(cli, column, value);
}

static bool dump_record(void *user, const struct record *r)
{
    struct dumping *d = user;
    struct cli *cli = d->cli;
    char born[ADDR_TEXT_MAX], store[ADDR_TEXT_MAX], id[ID_TEXT_MAX];
    addr_format(&r->born_host, born);
    addr_format(&r->store_host, store);
    (void)id_format(&r->store_host, r->position, id);
    row_begin(cli);
    put_number(cli, "position", r->position);
    put_number(cli, "size", r->size);
    put_number(cli, "stored_ms", r->store_ms);
    put_bytes(cli, "topic", r->topic);
    put_number(cli, "queue", r->queue_id);
    put_number(cli, "offset", r->queue_offset);
    put_property(cli, "id", r->props, PROP_UNIQ_KEY);
    put_text(cli, "offset_id", id);
    put_property(cli, "tag", r->props, PROP_TAGS);
    put_property(cli, "keys", r->props, PROP_KEYS);
    put_number(cli, "born_ms", r->born_ms);
    put_text(cli, "born_host", born);
    put_text(cli, "store_host", store);
    put_number(cli, "attempt", (int64_t)r->reconsume_times + 1);
    put_number(cli, "flag", r->flag);
    put_number(cli, "sys_flag", r->sys_flag);
    struct props_walk walk = props_walk(r->props);
    struct prop p;
    while (props_next(&walk, &p))
        put_entry(cli, "properties", p.name, p.value);
    put_number(cli, "body_size", (int64_t)r->body.len);
    if (d->bodies)
        put_body(d, r);
    row_end(cli);
    return !out_broken(cli) && !cli_stopped(cli);
}

static void dump_found(void *user, const struct check_finding *f)
{
    struct dumping *d = user;
    char text[CHECK_TEXT_MAX];
    check_finding_text(f, text);
    out_flush(d->cli);
    cli_note(d->cli, "%s", printable(d->cli, bytes_str(text)));
}

static int store_dump_command(struct cli *cli)
{
    const struct look_request request = {
        .topic = bytes_str(arg_text(cli, "topic", "")),
        .queue_id = (int32_t)arg_number(cli, "queue", -1),
        .from = arg_number(cli, "from", 0),
        .count = (uint64_t)arg_number(cli, "count", 0),
    };
    if (arg_has(cli, "queue") &&
        (request.topic.len == 0 || arg_number(cli, "queue", 0) > INT32_MAX))
        return cli_fail(cli, STATUS_USAGE, "add --topic TOPIC", "a queue is one of a topic");
    struct vfs *vfs;
    int status = folder_open(cli, &vfs);
    if (status)
        return status;
    cli_catch_stop(cli);
    struct dumping d = {.cli = cli,
                        .bodies = arg_has(cli, "body"),
                        .expanded = buf_upto(BODY_MAX),
                        .letters = buf_upto(BASE64_SIZE((size_t)BODY_MAX))};
    const struct look_calls calls = {dump_record, dump_found, &d};
    struct look_summary sum;
    struct fault why = {0};
    enum err err = store_look(vfs, &request, &calls, &sum, &why);
    vfs->calls->dispose(vfs);
    compressor_clear(&d.compressor);
    buf_clear(&d.expanded);
    buf_clear(&d.letters);
    if (err)
        return folder_fail(cli, err, &why);
    if (sum.damages > 0)
        return cli_fail(cli, STATUS_FAILED, "oncemq store check DIR tells more, if nobody uses it",
                        "%" PRIu64 " messages were shown, and the log could not be read in %" PRIu64
                        " places",
                        sum.records, sum.damages);
    return STATUS_OK;
}

const struct command store_commands[] = {
    {
        .name = "store check",
        .arguments = "DIR",
        .summary = "is a data folder sound? Reads all of it and changes nothing",
        .text = "Works on folders of oncemqd and of Apache RocketMQ that nobody uses, and is what "
                "oncemqd --check does. Log, queues, index and timed messages are held against each "
                "other.\n\nThe exit status is 0 when it is sound and 1 when something is damaged.",
        .examples = "oncemq store check /var/lib/oncemq",
        .shape = SHAPE_ONE,
        .columns = check_columns,
        .run = store_check_command,
    },
    {
        .name = "store dump",
        .arguments = "DIR",
        .summary = "the messages of a data folder, as they stand in its log",
        .text =
            "Works on folders of oncemqd and of Apache RocketMQ, also while a daemon uses them: "
            "files are only read, and nothing is locked. The log alone is asked, so queues that "
            "are damaged hide nothing, and messages of a topic that was deleted are still "
            "there. Where the log is damaged it goes on behind it, says so, and the exit status "
            "is 1.",
        .examples = "oncemq store dump data --topic orders --queue 0 --from 100 --count 10 --body\n"
                    "oncemq store dump data --json | jq -r .topic | sort | uniq -c",
        .options = dump_options,
        .shape = SHAPE_LINES,
        .columns = dump_columns,
        .run = store_dump_command,
    },
    {NULL},
};
