/* out_int.h - records while they wait to be shown. */
#ifndef CLI_OUT_INT_H
#define CLI_OUT_INT_H

#include "base/buf.h"
#include "cli/cli_int.h"

#define OUT_DEPTH 4

struct entry { /* of a map */
    struct bytes name, value;
    struct entry *next;
};

struct cell {
    bool set;
    int64_t number;
    double real;
    struct bytes text;
    struct rows *rows;
    struct entry *entries, *last_entry;
};

struct row {
    struct row *next;
    struct cell cells[]; /* one for each column */
};

struct rows {
    const struct column *columns;
    struct row *first, *last;
    size_t n;
    bool filling; /* between row_begin and row_end */
};

struct out {
    struct arena arena;
    struct buf text; /* not written yet */
    struct rows rows;
    struct rows *open[OUT_DEPTH]; /* lists that are being filled */
    size_t depth;
    bool broken, failed;
    bool shown; /* by rows_show */
};

size_t columns_count(const struct column *columns);

/* show.c */
void show_table(struct cli *cli, const struct rows *rows);
void show_sheet(struct cli *cli, const struct column *columns, const struct row *row);
void show_line(struct cli *cli, const struct column *columns, const struct row *row);
void show_json_row(struct cli *cli, const struct column *columns, const struct row *row);
void show_json_list(struct cli *cli, const struct rows *rows);
/* "1.2 GiB", "3m 20s", "2026-11-16 12:00:00" */
void size_text(int64_t bytes, char out[32]);
void duration_text(int64_t ms, char out[32]);
void time_text(int64_t ms, char out[32]);

#endif
