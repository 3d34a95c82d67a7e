/* top_draw.c - a survey as a picture: two lines about the whole, a table, a line of keys.
 *
 * A view is a list of columns; a cell's text and the order of two rows are asked for by column, so
 * everything else (widths, sorting, scrolling, what does not fit) is the same for all of them.
 */
#include "cli/out_int.h"
#include "cli/top_int.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <wchar.h>

/* ---- lines ---- */

void canvas_clear(struct canvas *lines)
{
    lines->text.len = 0;
    lines->text.max = (size_t)1 << 22;
    lines->n = 0;
}

/* As much of the text as fits, and of strangers' text only what can be printed. */
void line_add(struct canvas *lines, enum style style, int columns, const char *text)
{
    if (lines->n == sizeof lines->starts / sizeof *lines->starts)
        return;
    lines->style[lines->n] = style;
    lines->starts[lines->n++] = lines->text.len;
    mbstate_t state = {0};
    size_t left = strlen(text);
    for (int used = 0; left > 0;) {
        wchar_t c;
        size_t n = mbrtowc(&c, text, left, &state);
        bool good = n > 0 && n < (size_t)-2 && wcwidth(c) >= 0;
        if (n == 0 || n >= (size_t)-2) {
            n = 1;
            state = (mbstate_t){0};
        }
        used += good ? wcwidth(c) : 1;
        if (used > columns)
            break;
        buf_add(&lines->text, good ? bytes_of(text, n) : BYTES("?"));
        text += n;
        left -= n;
    }
    if (style == STYLE_HEAD) /* a bar from edge to edge */
        for (int used = (int)left == 0 ? (int)(lines->text.len - lines->starts[lines->n - 1])
                                       : columns;
             used < columns; used++)
            buf_add_u8(&lines->text, ' ');
    buf_add_u8(&lines->text, 0);
}

/* ---- the table ---- */

static size_t text_width(const char *text)
{
    mbstate_t state = {0};
    size_t width = 0, left = strlen(text);
    while (left > 0) {
        wchar_t c;
        size_t n = mbrtowc(&c, text, left, &state);
        bool good = n > 0 && n < (size_t)-2 && wcwidth(c) >= 0;
        if (n == 0 || n >= (size_t)-2) {
            n = 1;
            state = (mbstate_t){0};
        }
        width += good ? (size_t)wcwidth(c) : 1;
        text += n;
        left -= n;
    }
    return width;
}

/* Names that are too long keep their ends, which tell them apart. */
static void name_fit(const char *text, size_t width, char out[CELL_MAX])
{
    size_t wide = text_width(text);
    if (wide <= width || width < 2) {
        (void)snprintf(out, CELL_MAX, "%.*s", wide <= width ? CELL_MAX - 1 : (int)width, text);
        return;
    }
    size_t skip = wide - width + 1; /* columns; names are of ASCII where it matters */
    while (skip > 0 && *text) {
        do
            text++;
        while (((unsigned char)*text & 0xc0) == 0x80);
        skip--;
    }
    (void)snprintf(out, CELL_MAX, "…%s", text);
}

static void widths_find(const struct survey *s, enum top_view view, const size_t *rows, size_t n,
                        int columns, size_t widths[COLUMNS_MAX])
{
    const struct head *heads = view_of(view)->heads;
    size_t sum = 0, c;
    for (c = 0; c < COLUMNS_MAX && heads[c].title; c++) {
        widths[c] = (size_t)heads[c].least;
        char cell[CELL_MAX];
        for (size_t i = 0; i < n; i++) {
            cell_of(s, view, rows[i], heads[c].field, cell);
            size_t wide = text_width(cell);
            widths[c] = wide > widths[c] ? wide : widths[c];
        }
        sum += widths[c] + (c > 0 ? 2 : 0);
    }
    while (columns > 0 && sum > (size_t)columns) { /* the widest name gives way */
        size_t widest = COLUMNS_MAX;
        for (size_t i = 0; i < c; i++)
            if (heads[i].name && widths[i] > (size_t)heads[i].least &&
                (widest == COLUMNS_MAX || widths[i] > widths[widest]))
                widest = i;
        if (widest == COLUMNS_MAX)
            break;
        widths[widest]--;
        sum--;
    }
}

static void row_put(struct buf *line, const struct head *head, size_t width, const char *cell,
                    bool first)
{
    char fitted[CELL_MAX];
    name_fit(cell, head->name ? width : CELL_MAX, fitted);
    size_t wide = text_width(fitted), gap = width > wide ? width - wide : 0;
    buf_add_str(line, first ? "" : "  ");
    bool left = head->name || head->field == STATE;
    for (size_t i = 0; !left && i < gap; i++)
        buf_add_u8(line, ' ');
    buf_add_str(line, fitted);
    for (size_t i = 0; left && i < gap; i++)
        buf_add_u8(line, ' ');
}

/* One line of the table; row NULL: its head. */
static const char *table_line(const struct survey *s, enum top_view view, const size_t *row,
                              const size_t widths[COLUMNS_MAX], struct buf *line)
{
    const struct head *heads = view_of(view)->heads;
    line->len = 0;
    for (size_t c = 0; c < COLUMNS_MAX && heads[c].title; c++) {
        char cell[CELL_MAX];
        if (row)
            cell_of(s, view, *row, heads[c].field, cell);
        row_put(line, &heads[c], widths[c], row ? cell : heads[c].title, c == 0);
    }
    buf_add_u8(line, 0);
    return line->err ? "" : (const char *)line->at;
}

static bool row_is_bad(const struct survey *s, enum top_view view, size_t row)
{
    return view == VIEW_BROKERS && !s->brokers[row].up;
}

/* ---- the whole ---- */

static void totals_text(const struct survey *s, char *out, size_t room)
{
    char in[32], took[32], lag[32], twice[32], refused[32], put[32], get[32];
    double put_99 = NAN, get_99 = NAN;
    size_t up = 0;
    for (size_t i = 0; i < s->n_brokers; i++) {
        const struct top_broker *b = &s->brokers[i];
        up += b->up;
        put_99 = isnan(put_99) || b->put_99 > put_99 ? b->put_99 : put_99;
        get_99 = isnan(get_99) || b->get_99 > get_99 ? b->get_99 : get_99;
    }
    count_text(s->in, in, sizeof in);
    count_text(s->out, took, sizeof took);
    whole_text(s->lag, lag, sizeof lag);
    whole_text(s->duplicates, twice, sizeof twice);
    count_text(s->refused, refused, sizeof refused);
    ms_text(put_99, put, sizeof put);
    ms_text(get_99, get, sizeof get);
    (void)snprintf(
        out, room,
        "in %s/s  out %s/s  lag %s  send 99%% %s  pull 99%% %s  duplicates suppressed %s "
        "(%s/s)  brokers %zu/%zu",
        in, took, lag, put, get, twice, refused, up, s->n_brokers);
}

static void clock_text(int64_t ms, char out[32])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    if (!localtime_r(&seconds, &tm) || !strftime(out, 32, "%H:%M:%S", &tm))
        out[0] = 0;
}

static const char *sort_title(enum top_view view, size_t sort)
{
    for (size_t c = 0; c < COLUMNS_MAX && view_of(view)->heads[c].title; c++)
        if (view_of(view)->heads[c].field == view_of(view)->sorts[sort])
            return view_of(view)->heads[c].title;
    return "";
}

static void top_lines(const struct picture *p, const struct survey *s, struct canvas *out)
{
    char line[1024], at[32], every[32];
    clock_text(s->at_ms, at);
    duration_text(p->interval_ms, every);
    (void)snprintf(line, sizeof line, "oncemq top  %.200s  %s  every %s%s", p->names, at, every,
                   p->paused ? "  PAUSED" : "");
    line_add(out, STYLE_TITLE, p->columns, line);
    if (s->trouble.code) {
        (void)snprintf(line, sizeof line, "the name servers do not answer: %s", s->trouble.text);
        line_add(out, STYLE_BAD, p->columns, line);
    } else if (p->rows > 3) {
        totals_text(s, line, sizeof line);
        line_add(out, STYLE_PLAIN, p->columns, line);
    }
    for (size_t i = 0; p->rows > 5 && p->view != VIEW_BROKERS && i < s->n_brokers; i++) {
        const struct top_broker *b = &s->brokers[i];
        if (b->up || out->n + 4 > (size_t)p->rows)
            continue;
        (void)snprintf(line, sizeof line, "broker %.200s %s%.200s", b->name,
                       b->forgotten ? "is gone: the name servers do not know it any more"
                       : b->address ? "does not answer at "
                                    : "has no master",
                       b->address && !b->forgotten ? b->address : "");
        line_add(out, STYLE_BAD, p->columns, line);
    }
}

static const char help_text[] = "q  quit\0"
                                "b t g u  brokers, topics, groups, queues; Tab goes through them\0"
                                "s  sort by the next column that one can sort by\0"
                                "up down j k  scroll; PageUp PageDown space; Home End\0"
                                "p  pause, and go on\0"
                                "h ?  this, and back\0";

static void help_lines(const struct picture *p, struct canvas *out)
{
    for (const char *at = help_text; *at; at += strlen(at) + 1)
        line_add(out, STYLE_PLAIN, p->columns, at);
}

static void table_lines(struct picture *p, const struct survey *s, struct canvas *out)
{
    size_t n, room = p->rows > (int)out->n + 2 ? (size_t)p->rows - out->n - 2 : 0;
    size_t *rows = rows_sorted(s, p->view, p->sort[p->view], &n);
    if (!rows)
        return;
    size_t last = n > room ? n - room : 0;
    p->first = p->first > last ? last : p->first;
    size_t shown = n - p->first < room ? n - p->first : room, widths[COLUMNS_MAX] = {0};
    struct buf line = buf_upto((size_t)1 << 20);
    widths_find(s, p->view, rows + p->first, shown, p->columns, widths);
    line_add(out, STYLE_HEAD, p->columns, table_line(s, p->view, NULL, widths, &line));
    for (size_t i = p->first; i < p->first + shown; i++)
        line_add(out, row_is_bad(s, p->view, rows[i]) ? STYLE_BAD : STYLE_PLAIN, p->columns,
                 table_line(s, p->view, &rows[i], widths, &line));
    while (out->n + 1 < (size_t)p->rows)
        line_add(out, STYLE_PLAIN, p->columns, "");
    char foot[256];
    (void)snprintf(foot, sizeof foot,
                   "%s %zu-%zu of %zu by %s  q quit  b t g u views  s sort  p pause  h help",
                   view_of(p->view)->name, n ? p->first + 1 : 0, p->first + shown, n,
                   sort_title(p->view, p->sort[p->view]));
    line_add(out, STYLE_DIM, p->columns, foot);
    buf_clear(&line);
    free(rows);
}

void picture_draw(struct picture *p, const struct survey *s, struct canvas *out)
{
    canvas_clear(out);
    top_lines(p, s, out);
    if (p->help)
        help_lines(p, out);
    else if (p->rows > 1)
        table_lines(p, s, out);
    out->n = out->n > (size_t)p->rows ? (size_t)p->rows : out->n;
}

void picture_print(struct cli *cli, const struct survey *s, enum top_view view, size_t sort)
{
    struct canvas lines = {0};
    struct buf line = buf_upto((size_t)1 << 20);
    size_t n, widths[COLUMNS_MAX] = {0}, *rows = rows_sorted(s, view, sort, &n);
    if (!rows)
        return;
    widths_find(s, view, rows, n, cli->width, widths);
    for (size_t i = 0; i <= n; i++) {
        canvas_clear(&lines);
        line_add(&lines, STYLE_PLAIN, cli->width > 0 ? cli->width : 4096,
                 table_line(s, view, i > 0 ? &rows[i - 1] : NULL, widths, &line));
        cli_print(cli, "%s\n", (const char *)lines.text.at);
    }
    buf_clear(&lines.text);
    buf_clear(&line);
    free(rows);
}
