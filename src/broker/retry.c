/* retry.c - messages that a consumer could not use: again later, and in the end the dead letters.
 *
 * A consumer names the record it gives back by its position. A copy of it is stored for the group's
 * own topic %RETRY%group, one try older, through the delay level that the number of tries says: 3
 * for the first, so 10 s, 30 s, 1 m … 2 h, and from then on the ladder's last. When the tries are
 * used up the copy goes to %DLQ%group instead, which is made then and not before.
 *
 *     T ──pulled──> consumer ──send back──> level n ──due──> %RETRY%group ──pulled──> consumer …
 *                                      └──tries used up──> %DLQ%group
 *
 * Through all of this the message keeps its properties, so also its unique key, its birth and its
 * body. RETRY_TOPIC says where it was first, ORIGIN_MESSAGE_ID what it was called there. Dead
 * letters say both once more in DLQ_ORIGIN_TOPIC and DLQ_ORIGIN_MESSAGE_ID (the unique key), where
 * tools of 5.x look for it. Witness: AbstractSendMessageProcessor.consumerSendMsgBack of 5.5.0, and
 * records that it wrote.
 */
#include "broker/produce_int.h"

#define FIRST_LEVEL 3
#define BACK_TEXT   (1024 + 2 * NAME_MAX_ANY) /* what is added to properties, without their texts */

static enum err back_draft(struct broker *b, struct desk *desk, const struct send_back *back,
                           const struct record *record, struct after *after, struct fault *why);

/* A record that may not be there: Apache looks for it when all else is well. */
struct found {
    enum err err;
    struct slice slice;
    struct record record;
};

static void record_find(struct broker *b, int64_t position, struct found *out)
{
    out->err = store_read_at(b->store, position, &out->slice);
    if (out->err)
        return;
    out->err = record_decode(out->slice.bytes, &out->record);
    if (out->err)
        counted_drop(out->slice.owner);
}

enum err broker_send_back(struct broker *b, struct desk *desk, const struct send_back *back,
                          uint64_t *end, struct fault *why)
{
    struct after after;
    after_init(&after);
    struct found found;
    record_find(b, back->position, &found);
    const struct record *record = found.err ? NULL : &found.record;
    size_t text = record ? 2 * (record->props.len + record->topic.len) + BACK_TEXT : 0;
    bool fits = desk_clear(desk, 1, text);

    room_enter(&b->room);
    enum err err = fits ? back_draft(b, desk, back, record, &after, why)
                        : fault_set(why, ERR_NO_MEMORY, "no memory to prepare the message");
    room_leave(&b->room);
    after_run(b, &after);

    uint64_t upto = 0;
    if (!err && desk->n > 0)
        err = store_append(b->store, desk->drafts, desk->n, desk->stored, &upto);
    if (!err && desk->n > 0)
        err = desk->stored[0].err;
    if (record)
        counted_drop(found.slice.owner);
    if (!err)
        *end = upto;
    return err;
}

/* ---- groups ---- */

/* Room: core. */
enum err retry_group(struct broker *b, struct bytes name, struct group **out, struct fault *why)
{
    enum err err = group_need(b, name, out, why);
    return err == ERR_INVALID || err == ERR_UNKNOWN_GROUP
               ? fault_set(why, ERR_UNKNOWN_GROUP, "subscription group not exist, %.*s",
                           BRIEF(name))
               : err;
}

/* ---- drafts ---- */

enum err draft_props(struct draft *draft, const struct wr *props, struct fault *why)
{
    invariant(!props->full); /* the desk made room */
    if (wr_len(props) > RECORD_PROPS_MAX)
        return fault_set(why, ERR_TOO_BIG, "the properties have %zu bytes, more than %d",
                         wr_len(props), RECORD_PROPS_MAX);
    draft->props = wr_bytes(props);
    return OK;
}

/* A name that lives as long as the draft: at the far end of the room for its properties. */
static struct bytes name_keep(struct wr *props, struct bytes prefix, struct bytes group)
{
    size_t len = prefix.len + group.len;
    invariant(len <= wr_room(props));
    props->end -= len;
    struct wr name = wr_over(props->end, len);
    wr_bytes_of(&name, prefix);
    wr_bytes_of(&name, group);
    return wr_bytes(&name);
}

/* Adds a property if there is none of that name and something to say. */
static void props_add_once(struct wr *props, struct bytes name, struct bytes value)
{
    struct bytes old;
    if (value.len > 0 && !props_get(wr_bytes(props), name, &old))
        props_add(props, name, value);
}

/* The id by which consumers knew the message, and the topic they got it from. */
static void origin_add(struct wr *props)
{
    struct bytes topic = {0}, id = {0};
    (void)props_get(wr_bytes(props), PROP_RETRY_TOPIC, &topic);
    if (!props_get(wr_bytes(props), PROP_UNIQ_KEY, &id))
        (void)props_get(wr_bytes(props), PROP_ORIGIN_ID, &id);
    props_add_once(props, PROP_DLQ_TOPIC, topic);
    props_add_once(props, PROP_DLQ_ID, id);
}

/* Room: core. */
enum err dead_divert(struct broker *b, struct bytes group, struct draft *draft, struct wr *props,
                     struct after *after, struct fault *why)
{
    room_held(&b->room);
    struct topic *topic;
    enum err err = topic_for_dead(b, group, after, &topic, why);
    if (err)
        return err;
    origin_add(props);
    draft->topic = name_keep(props, DLQ_PREFIX, group);
    draft->queue_id = 0;
    draft->queue = store_queue(b->store, draft->topic, 0);
    return OK;
}

/* ---- giving back ---- */

static int32_t later_level(const struct send_back *back, const struct record *record)
{
    if (back->delay_level > 0)
        return back->delay_level;
    int64_t level = (int64_t)record->reconsume_times + FIRST_LEVEL;
    if (level < 1)
        return 1; /* somebody sent a negative number of tries */
    return level > DELAY_LEVELS ? DELAY_LEVELS : (int32_t)level;
}

static struct draft draft_of(const struct broker *b, const struct record *record)
{
    int32_t tries = record->reconsume_times;
    return (struct draft){
        .body = record->body,
        .body_crc = record->body_crc,
        .flag = record->flag,
        .sys_flag = record->sys_flag & ~(SYS_BORN_V6 | SYS_STORE_V6),
        .reconsume_times = tries < INT32_MAX ? tries + 1 : tries,
        .born_ms = record->born_ms,
        .born_host = record->born_host,
        .store_host = b->set.host,
    };
}

/* The message's own properties and where it came from. A dead letter keeps what earlier detours
 * left, as Apache's does. */
static void back_props(struct wr *props, const struct record *record, bool dead)
{
    uint32_t drop = 1u << KIND_WAIT | 1u << KIND_DELAY;
    if (!dead)
        drop |= 1u << KIND_REAL | 1u << KIND_TIMER;
    props_keep(props, record->props, drop);
    props_add_once(props, PROP_RETRY_TOPIC, record->topic);
    char id[ID_TEXT_MAX];
    size_t len = id_format(&record->store_host, record->position, id);
    props_add_once(props, PROP_ORIGIN_ID, bytes_of(id, len));
    props_add(props, PROP_WAIT, BYTES("false"));
}

/* Room: core. No draft and OK: the group does not want retries. */
static enum err back_draft(struct broker *b, struct desk *desk, const struct send_back *back,
                           const struct record *record, struct after *after, struct fault *why)
{
    room_held(&b->room);
    struct group *group;
    struct topic *retry;
    enum err err = retry_group(b, back->group, &group, why);
    if (err)
        return err;
    if (!(b->set.perm & PERM_WRITE))
        return fault_set(why, ERR_DENIED, "this broker may not be written to (brokerPermission)");
    err = topic_for_retry(b, group, after, &retry, why);
    if (err || !retry)
        return err;
    if (!(retry->set.perm & PERM_WRITE))
        return fault_set(why, ERR_DENIED, "the topic[%.*s] sending message is forbidden",
                         BRIEF(retry->set.name));
    if (!record)
        return fault_set(why, ERR_NOT_FOUND, "look message by offset failed, %lld",
                         (long long)back->position);

    int32_t max = back->has_max_reconsume_times ? back->max_reconsume_times : group->set.retry_max;
    bool dead = back->delay_level < 0 || record->reconsume_times >= max;
    struct draft draft = draft_of(b, record);
    struct wr props = wr_over(desk->text, desk->text_cap);
    back_props(&props, record, dead);
    if (dead) {
        props_add(&props, PROP_DELAY, BYTES("0"));
        err = dead_divert(b, group->set.name, &draft, &props, after, why);
    } else {
        int32_t queues = retry->set.write_queues; /* a queue beyond them would be read by nobody */
        queues = group->set.retry_queues < queues ? group->set.retry_queues : queues;
        draft.topic = name_keep(&props, RETRY_PREFIX, group->set.name);
        draft.queue_id = queues > 1 ? (int32_t)dice_below(&b->dice, (uint64_t)queues) : 0;
        delay_divert(b, &draft, later_level(back, record), &props);
    }
    if (!err)
        err = draft.queue ? draft_props(&draft, &props, why)
                          : fault_set(why, ERR_NO_MEMORY, "no memory for a queue");
    if (!err) {
        desk->drafts[desk->n++] = draft;
        numbers_back(b, group->set.name, record->topic);
    }
    return err;
}
