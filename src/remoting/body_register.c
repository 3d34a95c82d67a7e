/* body_register.c - REGISTER_BROKER: the topics of a broker, as JSON or in the packed form.
 *
 * The packed form is a zlib stream of
 *
 *     DataVersion as JSON (4 + n)
 *     how many topics (4), each (4 + n): NAME READ_QUEUES WRITE_QUEUES PERM FILTER_TYPE
 * [ATTRIBUTES] filter servers as JSON (4 + n) from request version 413 on: how many static topics
 * (4), each as JSON (4 + n)
 *
 * 5.x brokers always send JSON; 4.9 brokers pack when told to.
 */
#include "remoting/bodies_int.h"

#include <libdeflate.h>

#define VERSION_WITH_FILTERS 37  /* V3_0_11: before it the body is the topic table alone */
#define VERSION_WITH_STATIC  413 /* V5_0_0 */
#define TOPIC_LEAST          12  /* "T 1 1 6 " and its length: what a topic takes at least */
#define INFLATED_GUESS       8   /* JSON and topic names shrink to about an eighth */

static enum err topic_table_read(const struct json *wrapper, struct arena *arena,
                                 struct registration *out);
static enum err packed_read(struct bytes body, int32_t request_version, struct arena *arena,
                            struct registration *out);

enum err registration_read(struct bytes body, bool compressed, int32_t request_version,
                           struct arena *arena, struct registration *out)
{
    struct registration r = {0};
    enum err err;
    if (compressed) {
        err = packed_read(body, request_version, arena, &r);
    } else {
        const struct json *doc;
        err = object_parse(body, arena, &doc);
        if (err)
            return err;
        const struct json *wrapper = doc;
        if (request_version >= VERSION_WITH_FILTERS) {
            wrapper = json_member(doc, "topicConfigSerializeWrapper");
            err = texts_read(json_member(doc, "filterServerList"), arena, &r.filter_servers,
                             &r.n_filter_servers);
        }
        if (!err)
            err = topic_table_read(wrapper, arena, &r);
    }
    if (!err)
        *out = r;
    return err;
}

/* ---- JSON ---- */

static enum err topic_table_read(const struct json *wrapper, struct arena *arena,
                                 struct registration *out)
{
    const struct json *table = json_member(wrapper, "topicConfigTable");
    if (!table || table->type != JSON_OBJECT)
        return ERR_MALFORMED;
    out->version = data_version_read(json_member(wrapper, "dataVersion"));
    if (table->n == 0)
        return OK;

    out->topics = arena_alloc(arena, table->n * sizeof *out->topics);
    if (!out->topics)
        return ERR_TOO_BIG;
    json_each(item, table) {
        struct bytes name = json_text(item->key, BYTES(""));
        if (item->type != JSON_OBJECT || name.len == 0)
            return ERR_MALFORMED;
        enum err err = topic_settings_read(item, name, arena, &out->topics[out->n_topics]);
        if (err)
            return err;
        out->n_topics++;
    }
    return OK;
}

void registration_write(struct buf *out, const struct registration *r)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    json_key(&w, "filterServerList");
    texts_write(&w, r->filter_servers, r->n_filter_servers);
    json_key(&w, "topicConfigSerializeWrapper");
    json_open(&w);
    json_key(&w, "dataVersion");
    data_version_write(&w, &r->version);
    json_key(&w, "mappingDataVersion");
    data_version_write(&w, &(struct data_version){.timestamp = r->version.timestamp});
    json_key(&w, "topicConfigTable");
    json_open(&w);
    for (size_t i = 0; i < r->n_topics; i++) {
        json_key_text(&w, r->topics[i].name);
        topic_settings_write(&w, &r->topics[i]);
    }
    json_close(&w);
    json_key(&w, "topicQueueMappingDetailMap");
    json_open(&w);
    json_close(&w);
    json_key(&w, "topicQueueMappingInfoMap");
    json_open(&w);
    json_close(&w);
    json_close(&w);
    json_close(&w);
}

enum err data_version_body_read(struct bytes body, struct arena *arena, struct data_version *out)
{
    const struct json *doc;
    enum err err = object_parse(body, arena, &doc);
    if (!err)
        *out = data_version_read(doc);
    return err;
}

void data_version_body_write(struct buf *out, const struct data_version *v)
{
    struct json_out w = {.buf = out};
    data_version_write(&w, v);
}

/* ---- packed ---- */

static enum err inflate_into(struct libdeflate_decompressor *d, struct bytes in,
                             struct arena *arena, struct bytes *out)
{
    size_t left = arena->max - arena->used;
    size_t room = in.len < left / INFLATED_GUESS ? in.len * INFLATED_GUESS : left;
    for (;;) {
        uint8_t *to = room > 0 ? arena_alloc(arena, room) : NULL;
        if (!to)
            return ERR_TOO_BIG;
        size_t eaten, made;
        enum libdeflate_result result =
            libdeflate_zlib_decompress_ex(d, in.at, in.len, to, room, &eaten, &made);
        if (result == LIBDEFLATE_SUCCESS && eaten == in.len) {
            *out = bytes_of(to, made);
            return OK;
        }
        if (result != LIBDEFLATE_INSUFFICIENT_SPACE)
            return ERR_MALFORMED;
        room *= 2; /* the first tries stay in the arena: together no more than the last */
    }
}

static enum err inflate(struct bytes in, struct arena *arena, struct bytes *out)
{
    if (in.len == 0)
        return ERR_MALFORMED;
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    if (!d)
        return ERR_NO_MEMORY;
    enum err err = inflate_into(d, in, arena, out);
    libdeflate_free_decompressor(d);
    return err;
}

/* Up to the next blank, which is eaten. */
static struct bytes part_take(struct bytes *rest)
{
    const uint8_t *blank = rest->len ? memchr(rest->at, ' ', rest->len) : NULL;
    size_t len = blank ? (size_t)(blank - rest->at) : rest->len;
    struct bytes part = bytes_of(rest->at, len);
    *rest = bytes_from(*rest, blank ? len + 1 : len);
    return part;
}

static enum err packed_topic_read(struct bytes text, struct arena *arena,
                                  struct topic_settings *out)
{
    struct topic_settings t = {.name = part_take(&text)};
    struct bytes read_queues = part_take(&text);
    struct bytes write_queues = part_take(&text);
    struct bytes perm = part_take(&text);
    struct bytes filter = part_take(&text);
    if (t.name.len == 0 || !bytes_to_i32(read_queues, &t.read_queues) ||
        !bytes_to_i32(write_queues, &t.write_queues) || !bytes_to_i32(perm, &t.perm))
        return ERR_MALFORMED;
    t.multi_tag = bytes_equal(filter, BYTES("MULTI_TAG"));
    if (!t.multi_tag && !bytes_equal(filter, BYTES("SINGLE_TAG")))
        return ERR_MALFORMED;

    if (text.len > 0) {
        const struct json *attributes;
        enum err err = object_parse(text, arena, &attributes);
        if (err)
            return err;
        if (attributes->n > 0)
            t.attributes = text;
    }
    *out = t;
    return OK;
}

static enum err packed_topics_read(struct rd *r, struct arena *arena, struct registration *out)
{
    uint32_t n = rd_u32(r);
    if (r->bad || n > rd_left(r) / TOPIC_LEAST)
        return ERR_MALFORMED;
    if (n == 0)
        return OK;
    out->topics = arena_alloc(arena, n * sizeof *out->topics);
    if (!out->topics)
        return ERR_TOO_BIG;
    for (; out->n_topics < n; out->n_topics++) {
        struct bytes text = rd_take(r, rd_u32(r));
        if (r->bad)
            return ERR_MALFORMED;
        enum err err = packed_topic_read(text, arena, &out->topics[out->n_topics]);
        if (err)
            return err;
    }
    return OK;
}

static enum err packed_read(struct bytes body, int32_t request_version, struct arena *arena,
                            struct registration *out)
{
    struct bytes text;
    enum err err = inflate(body, arena, &text);
    if (err)
        return err;

    struct rd r = rd_over(text);
    struct bytes version = rd_take(&r, rd_u32(&r));
    if (r.bad)
        return ERR_MALFORMED;
    err = data_version_body_read(version, arena, &out->version);
    if (!err)
        err = packed_topics_read(&r, arena, out);
    if (err)
        return err;

    const struct json *filters;
    struct bytes filter_text = rd_take(&r, rd_u32(&r));
    if (r.bad)
        return ERR_MALFORMED;
    err = json_parse(filter_text, arena, &filters, NULL);
    if (!err)
        err = texts_read(filters, arena, &out->filter_servers, &out->n_filter_servers);
    if (err)
        return err;

    if (request_version >= VERSION_WITH_STATIC || rd_left(&r) > 0) {
        uint32_t n = rd_u32(&r);
        for (uint32_t i = 0; i < n && !r.bad; i++) /* static topics: not for us */
            (void)rd_take(&r, rd_u32(&r));
    }
    return r.bad || rd_left(&r) > 0 ? ERR_MALFORMED : OK;
}
