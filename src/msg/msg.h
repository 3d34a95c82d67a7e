/* msg.h - what disk and wire share: one message, and the names and settings around it.
 *
 * A message is one *record*: the same bytes stand in the log and in the answer to a pull. The
 * codecs here are pure functions: bytes in, slices of those bytes out; nothing is allocated (but by
 * compression, into a buffer with a ceiling), nothing is logged, no clock is asked. Record layout
 * and flags are Apache RocketMQ's (docs in README.md here).
 *
 *     record   the stored form            props    NAME \1 VALUE \2 … inside a record
 *     batch    several in one request     id       offset ids and unique ids
 *     tags     the hash queues filter by  names    what a topic or group may be called
 *     topic    a topic's settings         group    a subscription group's settings
 *     body     its compressed form
 */
#ifndef MSG_MSG_H
#define MSG_MSG_H

#include "base/addr.h"
#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"
#include "msg/props.h"

/* ---- record ---- */

#define RECORD_MAGIC       0xDAA320A7u /* topic length in one byte */
#define RECORD_MAGIC_LONG  0xDAA320ABu /* topic length in two bytes: retry topics over 127 bytes */
#define RECORD_MAGIC_BLANK 0xCBD43194u /* the rest of a log file is empty */
#define RECORD_BLANK_SIZE  8           /* size and magic: what must always fit at a file's end */

/* System flag bits of a record. */
enum {
    SYS_COMPRESSED = 0x1,
    SYS_MULTI_TAGS = 0x2,
    SYS_TX_MASK = 0xC,
    SYS_TX_PREPARED = 0x4,
    SYS_TX_COMMIT = 0x8,
    SYS_TX_ROLLBACK = 0xC,
    SYS_BORN_V6 = 0x10,
    SYS_STORE_V6 = 0x20,
    SYS_UNWRAP = 0x40,
    SYS_INNER_BATCH = 0x80,
    SYS_TYPE_MASK = 0x700, /* how the body is compressed; 0: zlib, from clients before 4.9.4 */
    SYS_TYPE_LZ4 = 0x100,
    SYS_TYPE_ZSTD = 0x200,
    SYS_TYPE_ZLIB = 0x300,
};

struct record {
    uint32_t size; /* decode: TOTALSIZE as stored. encode: computed */
    uint32_t body_crc;
    int32_t queue_id;
    int32_t flag; /* the user's own, opaque to us */
    int64_t queue_offset;
    int64_t position; /* PHYSICALOFFSET */
    int32_t sys_flag; /* the two IPv6 bits are set by encode from the addresses */
    int64_t born_ms;
    struct addr born_host;
    int64_t store_ms;
    struct addr store_host;
    int32_t reconsume_times;
    int64_t prepared_position; /* PREPAREDTRANSACTIONOFFSET */
    struct bytes body, topic, props;
};

#define RECORD_TOPIC_MAX 32767
#define RECORD_PROPS_MAX 32767

/* What stands at the start of `in`: a record, a blank, or neither. Looks at 8 bytes. */
enum record_kind { RECORD_NONE, RECORD_MESSAGE, RECORD_BLANK };
enum record_kind record_peek(struct bytes in, uint32_t *size);

/* Decodes the record at the start of `in`, which may go on behind it. ERR_INCOMPLETE when it is
 * longer than `in`, ERR_MALFORMED when the parts do not add up to its size. Does not look at the
 * CRC. */
must_check enum err record_decode(struct bytes in, struct record *out);
bool record_body_intact(const struct record *r);

/* Bytes needed by encode; 0 if a part is too long. */
size_t record_size(const struct record *r);
/* ERR_TOO_BIG when it does not fit in `w` or a part is too long. body_crc is taken from `r`. */
must_check enum err record_encode(const struct record *r, struct wr *w);

/* Fields known only when the record gets its place: patched into an already encoded record. */
void record_place(uint8_t *encoded, int64_t queue_offset, int64_t position, int64_t store_ms);

/* ---- compressed bodies ---- */

/* Compression is the clients' business: a producer compresses a large body and says how in the
 * system flag; brokers store what they get; consumers expand it. Batches are never compressed.
 *
 *     zlib   a zlib stream (RFC 1950)
 *     lz4    LZ4 frames, not bare blocks. Blocks do not depend on each other: Java reads no others
 *     zstd   zstd frames
 *
 * What is expanded came from a stranger and may be a bomb. The ceiling of the buffer is the limit,
 * and memory follows what really comes out, never a size that the input merely claims. */
enum compression { COMPRESS_ZLIB, COMPRESS_LZ4, COMPRESS_ZSTD };

/* What the libraries work in, made when it is first needed and kept: making it anew each time would
 * double what it takes to expand a small zstd body. Starts as zeros; one thread at a time. */
struct compressor {
    void *deflate, *inflate, *zstd_in, *zstd_out, *lz4_out;
    int deflate_level;
};
void compressor_clear(struct compressor *c); /* lets all of it go; may be used again */

/* The bits of the system flag that say so. */
int32_t compression_flags(enum compression how);

/* Appends the compressed body to `out`, which must have room for the worst case: what cannot be
 * compressed grows, by less than 1 KiB and a hundredth; else ERR_TOO_BIG. A level beyond what there
 * is means the nearest (zlib 1 to 9, zstd 1 to 22); lz4 has none, as in Java. */
must_check enum err body_compress(struct compressor *c, enum compression how, int level,
                                  struct bytes plain, struct buf *out);

/* Appends what the body was before. ERR_TOO_BIG: more than `out` may hold; ERR_MALFORMED: damaged
 * or cut off; ERR_UNSUPPORTED: a type that nobody has defined. `out` is then as it was. */
must_check enum err body_expand(struct compressor *c, int32_t sys_flag, struct bytes packed,
                                struct buf *out);

/* ---- properties ---- */

#define PROP_KEYS       BYTES("KEYS")
#define PROP_TAGS       BYTES("TAGS")
#define PROP_WAIT       BYTES("WAIT")
#define PROP_DELAY      BYTES("DELAY")
#define PROP_UNIQ_KEY   BYTES("UNIQ_KEY")
#define PROP_MSG_REGION BYTES("MSG_REGION")
#define PROP_TRACE_ON   BYTES("TRACE_ON")
#define PROP_CLUSTER    BYTES("CLUSTER")
#define PROP_POP_CK     BYTES("POP_CK")
#define PROP_TRAN_MSG   BYTES("TRAN_MSG")
/* Where a message goes that is elsewhere for the time being; where a retried one came from. */
#define PROP_REAL_TOPIC BYTES("REAL_TOPIC")
#define PROP_REAL_QID   BYTES("REAL_QID")
/* When a message is to come, and what became of it on the way. */
#define PROP_TIMER_DELIVER BYTES("TIMER_DELIVER_MS")
#define PROP_TIMER_OUT     BYTES("TIMER_OUT_MS")
#define PROP_TIMER_ENQUEUE BYTES("TIMER_ENQUEUE_MS")
#define PROP_TIMER_DEQUEUE BYTES("TIMER_DEQUEUE_MS")
#define PROP_TIMER_ROLLS   BYTES("TIMER_ROLL_TIMES")
#define PROP_TIMER_DELETE  BYTES("TIMER_DEL_UNIQKEY")
#define PROP_RETRY_TOPIC   BYTES("RETRY_TOPIC")
#define PROP_ORIGIN_ID     BYTES("ORIGIN_MESSAGE_ID")
#define PROP_DLQ_TOPIC     BYTES("DLQ_ORIGIN_TOPIC")
#define PROP_DLQ_ID        BYTES("DLQ_ORIGIN_MESSAGE_ID")

#define PROP_NAME_MAX 64
/* Whether a setting may name a property so: printable, no blanks, not too long. */
bool prop_name_valid(struct bytes name);

/* props.h walks over the pairs. */
bool props_get(struct bytes text, struct bytes name, struct bytes *value); /* the last one wins */
/* What queues and index are made of, found in one walk; empty: it is not there. */
struct marks {
    struct bytes unique, keys, tags, delay;
};
struct marks props_marks(struct bytes text);
/* Appends NAME \1 VALUE \2, adding the separator that an older client may have left out before it:
 * `w` starts where the text starts. */
void props_add(struct wr *w, struct bytes name, struct bytes value);
void props_add_int(struct wr *w, struct bytes name, int64_t value);
/* Appends all of `text` but the pairs called `name`; the result always ends with \2. */
void props_add_all_but(struct wr *w, struct bytes text, struct bytes name);

/* ---- batch ---- */

struct batch_item {
    int32_t flag;
    struct bytes body, props;
};

/* Reads the next message of a batch body. OK and *more=false at the end; ERR_MALFORMED. */
must_check enum err batch_next(struct rd *r, struct batch_item *out, bool *more);
void batch_add(struct wr *w, const struct batch_item *item);

/* ---- ids ---- */

#define ID_TEXT_MAX 57 /* 56 hex digits and the end */

/* Store host, port and log position in upper-case hex: 32 digits for IPv4, 56 for IPv6. */
size_t id_format(const struct addr *host, int64_t position, char out[ID_TEXT_MAX]);
/* The same for who writes many of one host: made once, and each takes its place in half the time.
 * Writes no end. */
struct id_host {
    char digits[ID_TEXT_MAX];
    uint8_t len;
};
void id_host_init(struct id_host *h, const struct addr *host);
uint8_t *id_put(uint8_t *at, const struct id_host *host, int64_t position);
must_check enum err id_parse(struct bytes text, struct addr *host, int64_t *position);

/* Makes unique ids the way the official clients do: address, pid, a number of this process, the
 * milliseconds of this month, a counter. */
struct id_maker {
    uint8_t fixed[22]; /* address, pid, process number */
    uint8_t fixed_len;
    int64_t month_start_ms, month_end_ms;
    uint16_t counter;
};
void id_maker_init(struct id_maker *m, const struct addr *host, uint16_t pid, uint32_t process);
size_t id_make(struct id_maker *m, int64_t now_ms, char out[ID_TEXT_MAX]);

/* ---- tags ---- */

/* Java's String.hashCode of the UTF-8 text, sign-extended as the queue keeps it; 0 for none. */
int64_t tags_code(struct bytes tags);

/* ---- names ---- */

#define NAME_TOPIC_MAX 127
#define NAME_RETRY_MAX 255 /* %RETRY% and %DLQ% topics */
#define NAME_GROUP_MAX 120

#define RETRY_PREFIX BYTES("%RETRY%")
#define DLQ_PREFIX   BYTES("%DLQ%")

/* ERR_INVALID or ERR_TOO_BIG, with the sentence a client gets as remark. */
must_check enum err topic_name_check(struct bytes name, struct fault *why);
must_check enum err group_name_check(struct bytes name, struct fault *why);
bool topic_is_system(struct bytes name);       /* may not be created or deleted by users */
bool topic_refuses_clients(struct bytes name); /* system topics that clients may not send to */

/* ---- settings of topics and groups, as topics.json and registrations carry them ---- */

enum { PERM_INHERIT = 1, PERM_WRITE = 2, PERM_READ = 4, PERM_PRIORITY = 8 };

struct topic_settings {
    struct bytes name;
    int32_t read_queues, write_queues;
    int32_t perm;
    int32_t sys_flag;
    bool order;
    bool multi_tag;          /* topicFilterType */
    struct bytes attributes; /* the JSON object as text; empty: {} */
};

struct group_settings {
    struct bytes name;
    bool consume_enable, from_min_enable, broadcast_enable, orderly, notify_changes;
    int32_t retry_queues, retry_max;
    int64_t broker_id, slow_broker_id;
    int32_t sys_flag, consume_timeout_min;
    struct bytes attributes, retry_policy; /* JSON objects as text; empty: Apache's defaults */
};

struct data_version {
    int64_t state, timestamp, counter;
};

struct arena;
struct json;
struct json_out;

struct group_settings group_settings_default(struct bytes name);
/* `name` is the key it stands under; if empty, the topicName inside counts. ERR_TOO_BIG,
 * ERR_NO_MEMORY: no room for the attributes. */
must_check enum err topic_settings_read(const struct json *node, struct bytes name,
                                        struct arena *arena, struct topic_settings *out);
must_check enum err group_settings_read(const struct json *node, struct bytes name,
                                        struct arena *arena, struct group_settings *out);
struct data_version data_version_read(const struct json *node);
void topic_settings_write(struct json_out *w, const struct topic_settings *t);
void group_settings_write(struct json_out *w, const struct group_settings *g);
void data_version_write(struct json_out *w, const struct data_version *v);

#endif
