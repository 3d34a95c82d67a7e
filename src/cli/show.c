/* show.c - records as tables, sheets, lines and JSON. */
#include "base/json.h"
#include "cli/out_int.h"

#include <stdlib.h>
#include <time.h>
#include <wchar.h>

/* ---- texts of values ---- */

void size_text(int64_t bytes, char out[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit < 5) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(out, 32, unit > 0 && value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

void duration_text(int64_t ms, char out[32])
{
    long long s = ms / 1000, m = s / 60, h = m / 60, d = h / 24;
    if (ms < 0)
        (void)snprintf(out, 32, "-");
    else if (ms < 1000)
        (void)snprintf(out, 32, "%lldms", (long long)ms);
    else if (s < 60)
        (void)snprintf(out, 32, s < 10 && ms % 1000 ? "%.1fs" : "%.0fs", (double)ms / 1000);
    else if (m < 60)
        (void)snprintf(out, 32, "%lldm %llds", m, s % 60);
    else if (h < 24)
        (void)snprintf(out, 32, "%lldh %lldm", h, m % 60);
    else
        (void)snprintf(out, 32, "%lldd %lldh", d, h % 24);
}

void time_text(int64_t ms, char out[32])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    if (ms <= 0 || !localtime_r(&seconds, &tm) || !strftime(out, 24, "%Y-%m-%d %H:%M:%S", &tm)) {
        (void)snprintf(out, 32, "-");
        return;
    }
    if (ms % 1000)
        (void)snprintf(out + strlen(out), 8, ".%03d", (int)(ms % 1000));
}

const char *printable(struct cli *cli, struct bytes text)
{
    struct buf safe = buf_upto(text.len * 4 + 16);
    mbstate_t state = {0};
    for (size_t i = 0; i < text.len;) {
        wchar_t c;
        size_t n = mbrtowc(&c, (const char *)text.at + i, text.len - i, &state);
        if (n == 0 || n >= (size_t)-2 || wcwidth(c) < 0) {
            if (n == 0 || n >= (size_t)-2) {
                n = 1;
                state = (mbstate_t){0};
            }
            for (size_t k = 0; k < n; k++) {
                uint8_t b = text.at[i + k];
                if (b == '\n' || b == '\t' || b == '\r')
                    buf_printf(&safe, "\\%c", b == '\n' ? 'n' : b == '\t' ? 't' : 'r');
                else
                    buf_printf(&safe, "\\x%02x", b);
            }
        } else
            buf_add(&safe, bytes_of(text.at + i, n));
        i += n;
    }
    buf_add_u8(&safe, 0);
    struct bytes copy = arena_copy(&cli->out->arena, buf_bytes(&safe));
    buf_clear(&safe);
    return copy.at ? (const char *)copy.at : "";
}

static size_t width_of(const char *text)
{
    mbstate_t state = {0};
    size_t width = 0, left = strlen(text);
    while (left > 0) {
        wchar_t c;
        size_t n = mbrtowc(&c, text, left, &state);
        if (n == 0 || n >= (size_t)-2)
            n = 1, width++, state = (mbstate_t){0};
        else
            width += wcwidth(c) > 0 ? (size_t)wcwidth(c) : 0;
        text += n;
        left -= n;
    }
    return width;
}

static const char *map_text(struct cli *cli, const struct cell *cell)
{
    struct buf all = buf_upto((size_t)1 << 24);
    for (const struct entry *e = cell->entries; e; e = e->next) {
        buf_add_str(&all, e == cell->entries ? "" : " ");
        buf_add(&all, e->name);
        buf_add_u8(&all, '=');
        buf_add(&all, e->value);
    }
    const char *text = printable(cli, buf_bytes(&all));
    buf_clear(&all);
    return text;
}

/* For people. */
static const char *cell_text(struct cli *cli, const struct column *column, const struct cell *cell)
{
    char text[40] = "-";
    if (!cell->set)
        return "-";
    switch (column->kind) {
    case COLUMN_TEXT:
    case COLUMN_STATE:
        return cell->text.len > 0 ? printable(cli, cell->text) : "-";
    case COLUMN_MAP:
        return cell->entries ? map_text(cli, cell) : "-";
    case COLUMN_LIST:
        (void)snprintf(text, sizeof text, "%zu", cell->rows->n);
        break;
    case COLUMN_NUMBER:
        (void)snprintf(text, sizeof text, "%lld", (long long)cell->number);
        break;
    case COLUMN_REAL:
        (void)snprintf(text, sizeof text, "%.*f",
                       cell->real < 10    ? 2
                       : cell->real < 100 ? 1
                                          : 0,
                       cell->real);
        break;
    case COLUMN_BOOL:
        return cell->number ? "yes" : "no";
    case COLUMN_SIZE:
        size_text(cell->number, text);
        break;
    case COLUMN_DURATION:
        duration_text(cell->number, text);
        break;
    case COLUMN_TIME:
        time_text(cell->number, text);
        break;
    }
    return printable(cli, bytes_str(text));
}

static bool is_right(const struct column *column)
{
    return column->kind == COLUMN_NUMBER || column->kind == COLUMN_REAL ||
           column->kind == COLUMN_SIZE || column->kind == COLUMN_DURATION ||
           column->kind == COLUMN_LIST;
}

static const char *colour_of(const struct cli *cli, const struct column *column, const char *text)
{
    if (!cli->colour_out || column->kind != COLUMN_STATE)
        return NULL;
    return strcmp(text, "ok") == 0     ? "\033[32m"
           : strcmp(text, "warn") == 0 ? "\033[33m"
           : strcmp(text, "bad") == 0  ? "\033[31m"
                                       : NULL;
}

/* ---- a table ---- */

static void pad(struct cli *cli, size_t n)
{
    while (n-- > 0)
        cli_write(cli, BYTES(" "));
}

static void table_cell(struct cli *cli, const struct column *column, const char *text, size_t width,
                       bool last)
{
    size_t own = width_of(text), gap = width > own ? width - own : 0;
    const char *colour = colour_of(cli, column, text);
    if (is_right(column))
        pad(cli, gap);
    if (colour)
        cli_write(cli, bytes_str(colour));
    cli_write(cli, bytes_str(text));
    if (colour)
        cli_write(cli, BYTES("\033[0m"));
    if (!last)
        pad(cli, (is_right(column) ? 0 : gap) + 2);
}

static bool is_filled(const struct row *first, size_t column)
{
    for (const struct row *row = first; row; row = row->next)
        if (row->cells[column].set)
            return true;
    return false;
}

/* Columns that people see in these records. */
static size_t shown_columns(const struct column *columns, const struct row *first, size_t *out,
                            size_t max)
{
    size_t n = 0;
    for (size_t i = 0; columns && columns[i].name && n < max; i++)
        if (columns[i].title && (!columns[i].optional || is_filled(first, i)))
            out[n++] = i;
    return n;
}

#define COLUMNS_MAX 48

void show_table(struct cli *cli, const struct rows *rows)
{
    size_t shown[COLUMNS_MAX], widths[COLUMNS_MAX];
    const struct column *columns = rows->columns;
    size_t n = shown_columns(columns, rows->first, shown, COLUMNS_MAX), count = 0;
    const char **texts = calloc(rows->n * n + 1, sizeof *texts);
    if (n == 0 || !texts) {
        free(texts);
        return;
    }
    for (size_t i = 0; i < n; i++)
        widths[i] = width_of(columns[shown[i]].title);
    for (const struct row *row = rows->first; row; row = row->next)
        for (size_t i = 0; i < n; i++, count++) {
            texts[count] = cell_text(cli, &columns[shown[i]], &row->cells[shown[i]]);
            size_t width = width_of(texts[count]);
            if (width > widths[i])
                widths[i] = width;
        }
    if (cli->colour_out)
        cli_write(cli, BYTES("\033[1m"));
    for (size_t i = 0; i < n; i++)
        table_cell(cli, &columns[shown[i]], columns[shown[i]].title, widths[i], i + 1 == n);
    if (cli->colour_out)
        cli_write(cli, BYTES("\033[0m"));
    cli_write(cli, BYTES("\n"));
    for (size_t k = 0; k < count; k++) {
        size_t i = k % n;
        table_cell(cli, &columns[shown[i]], texts[k], widths[i], i + 1 == n);
        if (i + 1 == n)
            cli_write(cli, BYTES("\n"));
    }
    free(texts);
}

/* ---- a sheet ---- */

void show_sheet(struct cli *cli, const struct column *columns, const struct row *row)
{
    size_t shown[COLUMNS_MAX], n = shown_columns(columns, row, shown, COLUMNS_MAX), width = 0;
    bool begun = false;
    for (size_t i = 0; i < n; i++)
        if (columns[shown[i]].kind != COLUMN_LIST && width_of(columns[shown[i]].title) > width)
            width = width_of(columns[shown[i]].title);
    for (size_t i = 0; i < n; i++) {
        const struct column *c = &columns[shown[i]];
        const struct cell *cell = &row->cells[shown[i]];
        if (c->kind == COLUMN_LIST || !cell->set)
            continue;
        begun = true;
        cli_write(cli, bytes_str(c->title));
        pad(cli, width - width_of(c->title) + 2);
        const char *text = cell_text(cli, c, cell), *colour = colour_of(cli, c, text);
        cli_print(cli, "%s%s%s\n", colour ? colour : "", text, colour ? "\033[0m" : "");
    }
    for (size_t i = 0; i < n; i++) {
        const struct column *c = &columns[shown[i]];
        const struct cell *cell = &row->cells[shown[i]];
        if (c->kind != COLUMN_LIST || !cell->set || cell->rows->n == 0)
            continue;
        cli_print(cli, "%s%s%s%s\n", begun ? "\n" : "", cli->colour_out ? "\033[1m" : "", c->title,
                  cli->colour_out ? "\033[0m" : "");
        show_table(cli, cell->rows);
        begun = true;
    }
}

/* ---- a line of a stream: its values with two blanks between them ---- */

void show_line(struct cli *cli, const struct column *columns, const struct row *row)
{
    size_t shown[COLUMNS_MAX], n = shown_columns(columns, row, shown, COLUMNS_MAX);
    for (size_t i = 0; i < n; i++)
        table_cell(cli, &columns[shown[i]],
                   cell_text(cli, &columns[shown[i]], &row->cells[shown[i]]), 0, i + 1 == n);
}

/* ---- JSON ---- */

static void json_cell(struct cli *cli, struct json_out *w, const struct column *column,
                      const struct cell *cell);

static void json_row(struct cli *cli, struct json_out *w, const struct column *columns,
                     const struct row *row)
{
    json_open(w);
    for (size_t i = 0; columns && columns[i].name; i++) {
        json_key(w, columns[i].name);
        json_cell(cli, w, &columns[i], &row->cells[i]);
    }
    json_close(w);
}

static void json_rows(struct cli *cli, struct json_out *w, const struct rows *rows)
{
    json_open_array(w);
    for (const struct row *row = rows->first; row; row = row->next)
        json_row(cli, w, rows->columns, row);
    json_close_array(w);
}

static void json_cell(struct cli *cli, struct json_out *w, const struct column *column,
                      const struct cell *cell)
{
    if (!cell->set) {
        json_put_null(w);
        return;
    }
    switch (column->kind) {
    case COLUMN_TEXT:
    case COLUMN_STATE:
        json_put_text(w, cell->text);
        break;
    case COLUMN_NUMBER:
    case COLUMN_SIZE:
    case COLUMN_DURATION:
    case COLUMN_TIME:
        json_put_int(w, cell->number);
        break;
    case COLUMN_REAL:
        json_put_real(w, cell->real);
        break;
    case COLUMN_BOOL:
        json_put_bool(w, cell->number != 0);
        break;
    case COLUMN_MAP:
        json_open(w);
        for (const struct entry *e = cell->entries; e; e = e->next) {
            json_key_text(w, e->name);
            json_put_text(w, e->value);
        }
        json_close(w);
        break;
    case COLUMN_LIST:
        json_rows(cli, w, cell->rows);
        break;
    }
}

/* JSON lets pass what some terminals obey: DEL, and the control characters U+0080 to U+009F, of two
 * bytes. They are in texts only, where \u says the same. */
static void json_tame(struct cli *cli, size_t from)
{
    struct buf *text = &cli->out->text;
    if (!cli->terminal_out || text->err)
        return;
    struct bytes raw = arena_copy(&cli->out->arena, bytes_from(buf_bytes(text), from));
    if (!raw.at)
        return;
    text->len = from;
    for (size_t i = 0; i < raw.len; i++) {
        bool c1 = raw.at[i] == 0xc2 && i + 1 < raw.len && raw.at[i + 1] < 0xa0;
        if (c1)
            i++;
        if (c1 || raw.at[i] == 0x7f)
            buf_printf(text, "\\u%04x", raw.at[i]);
        else
            buf_add_u8(text, raw.at[i]);
    }
}

void show_json_row(struct cli *cli, const struct column *columns, const struct row *row)
{
    struct json_out w = {.buf = &cli->out->text};
    size_t from = w.buf->len;
    json_row(cli, &w, columns, row);
    json_tame(cli, from);
}

void show_json_list(struct cli *cli, const struct rows *rows)
{
    struct json_out w = {.buf = &cli->out->text};
    size_t from = w.buf->len;
    json_rows(cli, &w, rows);
    json_tame(cli, from);
}
