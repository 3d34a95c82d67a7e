/* out.c - records, on their way to a person or a program.
 *
 * A record is an array of cells, one for each column of its form; a cell of a list has records of
 * its own. They are gathered in an arena: a table needs them all to know its widths, a stream lets
 * go of each as it is written.
 */
#include "base/json.h"
#include "cli/out_int.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#define OUT_MEMORY_MAX ((size_t)4 << 30)
#define OUT_FLUSH_AT   65536

int out_open(struct cli *cli)
{
    cli->out = calloc(1, sizeof *cli->out);
    if (!cli->out)
        return STATUS_FAILED;
    arena_init(&cli->out->arena, OUT_MEMORY_MAX);
    cli->out->text = buf_upto(OUT_MEMORY_MAX);
    return STATUS_OK;
}

void out_free(struct cli *cli)
{
    if (!cli->out)
        return;
    arena_clear(&cli->out->arena);
    buf_clear(&cli->out->text);
    free(cli->out);
    cli->out = NULL;
}

static void *out_alloc(struct out *out, size_t size)
{
    void *memory = arena_alloc(&out->arena, size);
    if (!memory) {
        (void)fputs("oncemq: out of memory\n", stderr);
        exit(STATUS_FAILED);
    }
    return memory;
}

/* ---- writing ---- */

void out_flush(struct cli *cli)
{
    struct buf *text = &cli->out->text;
    size_t done = 0;
    while (done < text->len && !cli->out->broken) {
        ssize_t n = write(STDOUT_FILENO, text->at + done, text->len - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno == EPIPE)
            cli->out->broken = true;
        else if (errno != EINTR) {
            cli->out->broken = cli->out->failed = true;
            (void)fprintf(stderr, "oncemq: writing to stdout: %s\n", strerror(errno));
        }
    }
    text->len = 0;
}

void out_forget(struct cli *cli)
{
    invariant(cli->out->rows.n == 0 && cli->out->depth == 0);
    arena_reset(&cli->out->arena);
}

bool out_broken(struct cli *cli)
{
    return cli->out->broken;
}

static void written(struct cli *cli)
{
    if (cli->out->text.err) {
        (void)fputs("oncemq: out of memory\n", stderr);
        exit(STATUS_FAILED);
    }
    if (cli->out->text.len >= OUT_FLUSH_AT)
        out_flush(cli);
}

void cli_write(struct cli *cli, struct bytes raw)
{
    buf_add(&cli->out->text, raw);
    written(cli);
}

void cli_print(struct cli *cli, const char *format, ...)
{
    char line[4096];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof line) {
        cli_write(cli, bytes_of(line, (size_t)n));
        return;
    }
    char *whole;
    va_start(args, format);
    n = vasprintf(&whole, format, args);
    va_end(args);
    if (n < 0)
        return;
    cli_write(cli, bytes_of(whole, (size_t)n));
    free(whole);
}

/* ---- records ---- */

static struct rows *rows_now(struct out *out)
{
    return out->depth > 0 ? out->open[out->depth - 1] : &out->rows;
}

static const struct column *columns_now(const struct cli *cli)
{
    return cli->out->depth > 0 ? cli->out->open[cli->out->depth - 1]->columns
                               : cli->command->columns;
}

size_t columns_count(const struct column *columns)
{
    size_t n = 0;
    while (columns && columns[n].name)
        n++;
    return n;
}

void row_begin(struct cli *cli)
{
    struct out *out = cli->out;
    struct rows *rows = rows_now(out);
    if (out->depth == 0)
        rows->columns = cli->command->columns;
    invariant(!rows->filling);
    struct row *row =
        out_alloc(out, sizeof *row + columns_count(rows->columns) * sizeof(struct cell));
    if (rows->last)
        rows->last->next = row;
    else
        rows->first = row;
    rows->last = row;
    rows->n++;
    rows->filling = true;
}

static struct cell *cell_now(struct cli *cli, const char *name, const struct column **column)
{
    struct rows *rows = rows_now(cli->out);
    invariant(rows->filling);
    const struct column *columns = columns_now(cli);
    for (size_t i = 0; columns[i].name; i++)
        if (strcmp(columns[i].name, name) == 0) {
            *column = &columns[i];
            rows->last->cells[i].set = true;
            return &rows->last->cells[i];
        }
    invariant(!"the command's entry has a column of that name");
    return NULL;
}

static bool is_text(const struct column *column)
{
    return column->kind == COLUMN_TEXT || column->kind == COLUMN_STATE;
}

void put_bytes(struct cli *cli, const char *name, struct bytes text)
{
    const struct column *column;
    struct cell *cell = cell_now(cli, name, &column);
    invariant(is_text(column));
    uint8_t *copy = out_alloc(cli->out, text.len + 1);
    if (text.len > 0)
        memcpy(copy, text.at, text.len);
    cell->text = bytes_of(copy, text.len);
}

void put_text(struct cli *cli, const char *name, const char *text)
{
    if (text)
        put_bytes(cli, name, bytes_str(text));
}

void put_format(struct cli *cli, const char *name, const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0)
        return;
    put_bytes(cli, name, bytes_of(text, (size_t)n));
    free(text);
}

void put_number(struct cli *cli, const char *name, int64_t number)
{
    const struct column *column;
    struct cell *cell = cell_now(cli, name, &column);
    invariant(column->kind == COLUMN_NUMBER || column->kind == COLUMN_SIZE ||
              column->kind == COLUMN_DURATION || column->kind == COLUMN_TIME);
    cell->number = number;
}

void put_real(struct cli *cli, const char *name, double number)
{
    const struct column *column;
    struct cell *cell = cell_now(cli, name, &column);
    invariant(column->kind == COLUMN_REAL);
    cell->real = number;
}

void put_bool(struct cli *cli, const char *name, bool yes)
{
    const struct column *column;
    struct cell *cell = cell_now(cli, name, &column);
    invariant(column->kind == COLUMN_BOOL);
    cell->number = yes;
}

void put_entry(struct cli *cli, const char *name, struct bytes key, struct bytes value)
{
    const struct column *column;
    struct cell *cell = cell_now(cli, name, &column);
    invariant(column->kind == COLUMN_MAP);
    struct entry *entry = out_alloc(cli->out, sizeof *entry);
    uint8_t *texts = out_alloc(cli->out, key.len + value.len + 1);
    if (key.len > 0)
        memcpy(texts, key.at, key.len);
    if (value.len > 0)
        memcpy(texts + key.len, value.at, value.len);
    *entry = (struct entry){bytes_of(texts, key.len), bytes_of(texts + key.len, value.len), NULL};
    if (cell->last_entry)
        cell->last_entry->next = entry;
    else
        cell->entries = entry;
    cell->last_entry = entry;
}

void list_open(struct cli *cli, const char *name)
{
    struct out *out = cli->out;
    const struct column *column;
    struct cell *cell = cell_now(cli, name, &column);
    invariant(column->kind == COLUMN_LIST && out->depth < OUT_DEPTH);
    cell->rows = out_alloc(out, sizeof *cell->rows);
    cell->rows->columns = column->of;
    out->open[out->depth++] = cell->rows;
}

void list_close(struct cli *cli)
{
    invariant(cli->out->depth > 0);
    cli->out->depth--;
}

void row_end(struct cli *cli)
{
    struct out *out = cli->out;
    struct rows *rows = rows_now(out);
    invariant(rows->filling);
    rows->filling = false;
    if (out->depth > 0 || cli->command->shape != SHAPE_LINES)
        return;
    if (cli->json)
        show_json_row(cli, rows->columns, rows->first);
    else
        show_line(cli, rows->columns, rows->first);
    cli_write(cli, BYTES("\n"));
    out->rows = (struct rows){0};
    arena_reset(&out->arena);
    if (cli->terminal_out)
        out_flush(cli);
}

static void list_show(struct cli *cli)
{
    struct rows *rows = &cli->out->rows;
    rows->columns = cli->command->columns;
    if (cli->json) {
        show_json_list(cli, rows);
        cli_write(cli, BYTES("\n"));
    } else
        show_table(cli, rows);
}

void rows_show(struct cli *cli)
{
    invariant(cli->command->shape == SHAPE_LIST && cli->out->depth == 0);
    if (!cli->json && cli->terminal_out)
        cli_write(cli, BYTES("\033[H\033[2J"));
    else if (!cli->json && cli->out->shown)
        cli_write(cli, BYTES("\n"));
    list_show(cli);
    cli->out->rows = (struct rows){0};
    cli->out->shown = true;
    arena_reset(&cli->out->arena);
    out_flush(cli);
}

int out_close(struct cli *cli, int status)
{
    struct rows *rows = &cli->out->rows;
    enum shape shape = cli->command ? cli->command->shape : SHAPE_NONE;
    bool whole = (status == STATUS_OK && !cli->out->shown) || rows->n > 0;
    if (shape == SHAPE_LIST && whole) {
        list_show(cli);
    } else if (shape == SHAPE_ONE && rows->first) {
        if (cli->json)
            show_json_row(cli, rows->columns, rows->first);
        else
            show_sheet(cli, rows->columns, rows->first);
        if (cli->json)
            cli_write(cli, BYTES("\n"));
    }
    out_flush(cli);
    if (cli->out->failed)
        return STATUS_FAILED;
    return cli->out->broken && status == STATUS_OK ? STATUS_PIPE : status;
}
