/* copy.c - records that are stored once more, elsewhere: from where they waited to where they
 * belong.
 *
 * The copy has the body, the properties and the birth of the record; position, offset and store
 * time are new. Whoever moves records must remember how far it has come, and after a crash it
 * remembers a little less than it has done. For that there is copy_known: a copy is known by its
 * unique key in the store's index, and it is the same if its properties are, but for those that the
 * move itself leaves, and it was stored behind the record. Without an index nothing is known, and
 * the record is moved twice, as by Apache.
 */
#include "broker/produce_int.h"

#define INDEX_GRAIN_MS 1000

void copy_draft(struct broker *b, const struct record *record, struct bytes topic, int32_t queue_id,
                struct draft *out)
{
    *out = (struct draft){
        .queue = store_queue(b->store, topic, queue_id),
        .topic = topic,
        .body = record->body,
        .props = record->props,
        .body_crc = record->body_crc,
        .queue_id = queue_id,
        .flag = record->flag,
        .sys_flag = record->sys_flag & ~(SYS_BORN_V6 | SYS_STORE_V6),
        .reconsume_times = record->reconsume_times,
        .born_ms = record->born_ms,
        .born_host = record->born_host,
        .store_host = record->store_host,
    };
}

/* What services write on what they move: not what the message is. */
static bool of_the_move(struct bytes name)
{
    return bytes_equal(name, PROP_TIMER_ENQUEUE) || bytes_equal(name, PROP_TIMER_DEQUEUE) ||
           bytes_equal(name, PROP_TIMER_ROLLS) || bytes_equal(name, PROP_WAIT);
}

/* Every property of one is in the other. Java writes them in any order. */
static bool props_within(struct bytes some, struct bytes all)
{
    struct props_walk walk = props_walk(some);
    struct prop p;
    struct bytes value;
    while (props_next(&walk, &p))
        if (!of_the_move(p.name) &&
            !(props_get(all, p.name, &value) && bytes_equal(value, p.value)))
            return false;
    return true;
}

static bool copy_is(const struct record *copy, const struct record *record,
                    const struct draft *draft)
{
    return bytes_equal(copy->topic, draft->topic) && copy->queue_id == draft->queue_id &&
           copy->position > record->position && copy->born_ms == record->born_ms &&
           copy->reconsume_times == draft->reconsume_times && copy->body_crc == draft->body_crc &&
           (bytes_equal(copy->props, record->props) ||
            (props_within(copy->props, record->props) && props_within(record->props, copy->props)));
}

bool copy_known(struct broker *b, const struct record *record, const struct draft *draft)
{
    struct store_query query = {
        .topic = draft->topic,
        .max = STORE_QUERY_MAX,
        .begin_ms = record->store_ms - INDEX_GRAIN_MS,
        .end_ms = INT64_MAX,
    };
    struct store_found found;
    if (!props_get(record->props, PROP_UNIQ_KEY, &query.key) ||
        store_query(b->store, &query, &found))
        return false;
    bool same = false;
    for (size_t i = 0; !same && i < found.n; i++) {
        struct slice slice;
        struct record copy;
        if (store_read_at(b->store, found.positions[i], &slice))
            continue;
        same = !record_decode(slice.bytes, &copy) && copy_is(&copy, record, draft);
        counted_drop(slice.owner);
    }
    return same;
}
