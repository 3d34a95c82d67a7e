/* audit_folder.c - the messages and the ledger of a data folder, OnceMQ's or Apache RocketMQ's. The
 * log alone is read, once, from its beginning to its end; whoever uses the folder may go on. */
#include "cli/admin.h"
#include "cli/audit_int.h"
#include "store/store.h"

#include <string.h>

struct reading {
    struct audit *audit;
    struct progress progress;
    uint64_t seen;
    struct map lanes; /* topic → struct folder_lane */
    int64_t from_ms, to_ms;
    int status;
};

static bool wanted(const struct reading *r, struct bytes topic)
{
    struct cli *cli = r->audit->cli;
    if (arg_count(cli) == 0)
        return !admin_topic_is_system(NULL, admin_format(cli, "%.*s", BYTES_ARG(topic)));
    for (size_t i = 0; arg_at(cli, i); i++)
        if (bytes_equal(bytes_str(arg_at(cli, i)), topic))
            return true;
    return false;
}

/* A topic: places of a folder are positions, which know no queues. */
struct folder_lane {
    bool wanted;
    uint32_t number;
};

/* NULL: there is no memory, which was said. */
static struct folder_lane *lane_of(struct reading *r, struct bytes name)
{
    struct folder_lane *lane = map_get(&r->lanes, name);
    if (lane)
        return lane;
    struct cli *cli = r->audit->cli;
    struct bytes kept = arena_copy(&cli->arena, name);
    lane = admin_alloc(cli, 1, sizeof *lane);
    lane->wanted = wanted(r, name);
    if (lane->wanted) {
        struct audit_topic *topic = audit_topic(r->audit, name);
        if (!topic || audit_lane(r->audit, topic, NULL, -1, &lane->number))
            return NULL;
    }
    if (!kept.at || map_put(&r->lanes, kept, lane)) {
        (void)cli_fail(cli, STATUS_FAILED, NULL, "out of memory");
        return NULL;
    }
    return lane;
}

static struct bytes property(const struct record *record, struct bytes name)
{
    struct bytes value;
    return props_get(record->props, name, &value) ? value : (struct bytes){0};
}

static bool record_see(void *user, const struct record *record)
{
    struct reading *r = user;
    progress_move(&r->progress, ++r->seen);
    if (record->store_ms < r->from_ms || record->store_ms >= r->to_ms)
        return !cli_stopped(r->audit->cli);
    if (bytes_equal(record->topic, BYTES(LEDGER_TOPIC))) {
        r->status = audit_record(r->audit, record->body);
        return !r->status && !cli_stopped(r->audit->cli);
    }
    const struct folder_lane *lane = lane_of(r, record->topic);
    if (!lane) {
        r->status = STATUS_FAILED;
        return false;
    }
    if (!lane->wanted)
        return !cli_stopped(r->audit->cli);
    char place_id[ID_TEXT_MAX];
    struct audit_message m = {.id = property(record, PROP_UNIQ_KEY),
                              .keys = property(record, PROP_KEYS),
                              .body = record->body,
                              .resent = property(record, BYTES("ONCEMQ_DEAD_LETTER")).len > 0,
                              .place = record->position};
    if (m.id.len == 0) { /* then it is another message than any other */
        (void)id_format(&record->store_host, record->position, place_id);
        m.id = bytes_str(place_id);
    }
    r->status = audit_see(r->audit, lane->number, &m);
    return !r->status && !cli_stopped(r->audit->cli);
}

static void damage_see(void *user, const struct check_finding *finding)
{
    struct reading *r = user;
    char text[CHECK_TEXT_MAX];
    check_finding_text(finding, text);
    cli_note(r->audit->cli, "%s", printable(r->audit->cli, bytes_str(text)));
}

static int folder_fail(struct cli *cli, enum err err, const struct fault *why)
{
    return cli_fail(cli, err == ERR_NOT_FOUND ? STATUS_NOT_FOUND : STATUS_FAILED,
                    "the folder is what oncemqd has as --data, or Apache RocketMQ as "
                    "storePathRootDir",
                    "%s", why->text[0] ? why->text : err_text(err));
}

int audit_folder(struct audit *a, const char *folder)
{
    struct vfs *vfs;
    struct fault why = {0};
    enum err err = vfs_posix_find(folder, &vfs, &why);
    if (err)
        return folder_fail(a->cli, err, &why);
    struct reading r = {.audit = a,
                        .from_ms = arg_number(a->cli, "from", INT64_MIN),
                        .to_ms = arg_number(a->cli, "to", INT64_MAX)};
    map_init(&r.lanes, 0);
    progress_begin(&r.progress, a->cli, "reading the log", 0);
    const struct look_request request = {.queue_id = -1};
    const struct look_calls calls = {record_see, damage_see, &r};
    struct look_summary sum;
    err = store_look(vfs, &request, &calls, &sum, &why);
    progress_end(&r.progress);
    vfs->calls->dispose(vfs);
    map_clear(&r.lanes);
    if (err)
        return folder_fail(a->cli, err, &why);
    if (!r.status && sum.damages > 0)
        r.status = STATUS_PARTLY;
    return r.status;
}

struct showing {
    struct cli *cli;
    int64_t place;
    audit_put *put;
    bool there;
};

static bool record_show(void *user, const struct record *record)
{
    struct showing *s = user;
    s->there = record->position == s->place;
    if (s->there)
        s->put(s->cli, property(record, PROP_UNIQ_KEY), property(record, PROP_KEYS),
               record->store_ms, record->queue_id, record->queue_offset);
    return false;
}

static void damage_pass(void *user, const struct check_finding *finding)
{
    (void)user;
    (void)finding;
}

int audit_folder_show(struct audit *a, const char *folder, int64_t place, audit_put *put)
{
    struct vfs *vfs;
    if (vfs_posix_find(folder, &vfs, NULL))
        return STATUS_NOT_FOUND;
    struct showing s = {.cli = a->cli, .place = place, .put = put};
    const struct look_request request = {.queue_id = -1, .from = place, .count = 1};
    const struct look_calls calls = {record_show, damage_pass, &s};
    struct look_summary sum;
    enum err err = store_look(vfs, &request, &calls, &sum, NULL);
    vfs->calls->dispose(vfs);
    return !err && s.there ? STATUS_OK : STATUS_NOT_FOUND;
}
