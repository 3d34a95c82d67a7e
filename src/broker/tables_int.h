/* tables_int.h - the text of the tables, shared by tables.c (rows and text) and save.c (files). */
#ifndef BROKER_TABLES_INT_H
#define BROKER_TABLES_INT_H

#include "base/json.h"
#include "broker/broker_int.h"

#define TABLE_FILE_MAX  (64u << 20)
#define TABLE_ARENA_MAX ((size_t)2 << 30) /* nodes take some 30 times the text at worst */

/* Rows live in the arena and in the text. ERR_DAMAGED with a sentence, ERR_NO_MEMORY. */

struct deleted_row {
    struct bytes name;
    int64_t end; /* as in struct tomb */
};

struct topic_rows {
    struct data_version version;
    struct topic_settings *rows;
    size_t n;
    struct deleted_row *deleted;
    size_t n_deleted;
};

struct group_rows {
    struct data_version version;
    struct group_settings *rows;
    size_t n;
    const struct json *forbidden; /* or NULL */
};

struct offset_row {
    struct bytes key; /* topic@group */
    struct place *places;
    size_t n;
};

struct offset_rows {
    struct data_version version;
    struct offset_row *rows;
    size_t n;
    uint64_t pop_known; /* our own member: position in the log, pop_room.known */
};

struct mode_rows {
    struct request_mode *rows;
    size_t n;
};

struct order_row {
    struct bytes topic, group;
    int32_t queue_id;
    const struct json *node;
};

struct order_rows {
    struct order_row *rows;
    size_t n;
};

struct delay_rows {
    struct data_version version;
    int64_t offsets[DELAY_LEVELS]; /* by level, the first is level 1; -1: none */
};

must_check enum err topic_rows_read(struct bytes text, struct arena *arena, struct topic_rows *out,
                                    struct fault *why);
must_check enum err group_rows_read(struct bytes text, struct arena *arena, struct group_rows *out,
                                    struct fault *why);
must_check enum err offset_rows_read(struct bytes text, struct arena *arena,
                                     struct offset_rows *out, struct fault *why);
must_check enum err delay_rows_read(struct bytes text, struct arena *arena, struct delay_rows *out,
                                    struct fault *why);
must_check enum err mode_rows_read(struct bytes text, struct arena *arena, struct mode_rows *out,
                                   struct fault *why);
must_check enum err order_rows_read(struct bytes text, struct arena *arena, struct order_rows *out,
                                    struct fault *why);

/* Room: core. */
void topics_write(struct broker *b, struct json_out *w);
void groups_write(struct broker *b, struct json_out *w);
void offsets_write(struct broker *b, struct json_out *w);
void delays_write(struct broker *b, struct json_out *w);
void orders_write(struct broker *b, struct json_out *w);
void modes_write(struct broker *b, struct json_out *w);
void table_write(struct broker *b, enum table_name which, struct json_out *w);

#endif
