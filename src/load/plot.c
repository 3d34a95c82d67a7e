/* plot.c - a result as a picture: an SVG that needs nothing beside itself.
 *
 * Three panels: messages a second over time; latency over time (median, p99, the slowest), and how
 * latencies are spread: the time that so many of a hundred messages did not exceed. Latencies have
 * logarithmic axes, since the slowest thousandth is what one looks for. Colours follow the reader's
 * light or dark preference.
 */
#include "load/load_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define WIDTH      960
#define LEFT       86 /* of the panels; labels stand in front of it */
#define RIGHT      916
#define PANEL      190 /* height of one */
#define TOP        112
#define STEP       (PANEL + 66) /* from one panel to the next */
#define HEIGHT     (TOP + 3 * STEP)
#define ACROSS_MAX 800 /* more points than that are drawn together */

/* One of the three. */
struct panel {
    struct buf *out;
    double top;
    double x_most;          /* 0 is at the left */
    double y_least, y_most; /* logarithmic: of the decades */
    bool logarithmic;
};

static double x_of(const struct panel *p, double x)
{
    return LEFT + (p->x_most > 0 ? x / p->x_most : 0) * (RIGHT - LEFT);
}

static double y_of(const struct panel *p, double y)
{
    double at = p->logarithmic ? log10(y > 0 ? y : 1) : y;
    double part = (at - p->y_least) / (p->y_most - p->y_least);
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return p->top + PANEL - part * PANEL;
}

/* ---- text ---- */

static void put_escaped(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            buf_add_str(out, "&lt;");
        else if (*text == '&')
            buf_add_str(out, "&amp;");
        else if ((unsigned char)*text >= ' ')
            buf_add_u8(out, (uint8_t)*text);
    }
}

static void ns_text(double ns, char out[32])
{
    if (ns >= 1e9)
        (void)snprintf(out, 32, "%.3g s", ns / 1e9);
    else if (ns >= 1e6)
        (void)snprintf(out, 32, "%.3g ms", ns / 1e6);
    else
        (void)snprintf(out, 32, "%.3g µs", ns / 1e3);
}

static void rate_text(double rate, char out[32])
{
    if (rate >= 1e6)
        (void)snprintf(out, 32, "%.3g M/s", rate / 1e6);
    else if (rate >= 1e3)
        (void)snprintf(out, 32, "%.3g k/s", rate / 1e3);
    else
        (void)snprintf(out, 32, "%.3g /s", rate);
}

static void label(struct buf *out, double x, double y, const char *class, const char *text)
{
    buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    put_escaped(out, text);
    buf_add_str(out, "</text>\n");
}

/* ---- axes ---- */

/* 1, 2 or 5 times a power of ten, so that about four fit. */
static double nice_step(double most)
{
    double raw = most / 4, power = pow(10, floor(log10(raw))), part = raw / power;
    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

static void grid(const struct panel *p, double y, const char *text)
{
    buf_printf(p->out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n", LEFT, y_of(p, y), RIGHT);
    label(p->out, LEFT - 8, y_of(p, y) + 4, "left", text);
}

static void axis_rates(const struct panel *p)
{
    double step = nice_step(p->y_most);
    for (int i = 0; i * step <= p->y_most * 1.001; i++) {
        char text[32];
        rate_text(i * step, text);
        grid(p, i * step, text);
    }
}

static void axis_times(const struct panel *p)
{
    for (int decade = (int)p->y_least; decade <= (int)p->y_most; decade++) {
        char text[32];
        ns_text(pow(10, decade), text);
        grid(p, pow(10, decade), text);
    }
}

static void axis_seconds(const struct panel *p)
{
    double step = nice_step(p->x_most);
    for (int i = 0; i * step <= p->x_most * 1.001; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "%.4g s", i * step);
        label(p->out, x_of(p, i * step), p->top + PANEL + 18, "under", text);
    }
}

static void panel_title(const struct panel *p, const char *text)
{
    label(p->out, LEFT, p->top - 12, "title", text);
}

/* ---- over time ---- */

enum line { LINE_RATE, LINE_P50, LINE_P99, LINE_MOST };

/* Of the points from..to-1: the mean of rates, the worst of times. */
static double value_of(const struct load_result *r, size_t from, size_t to, enum line line)
{
    double sum = 0, span = 0, worst = 0;
    for (size_t i = from; i < to; i++) {
        const struct load_point *p = &r->points[i];
        uint64_t ns = line == LINE_P50 ? p->p50_ns : line == LINE_P99 ? p->p99_ns : p->most_ns;
        worst = (double)ns > worst ? (double)ns : worst;
        sum += (double)p->messages;
        span += p->span_s;
    }
    return line != LINE_RATE ? worst : span > 0 ? sum / span : 0;
}

static double most_of(const struct load_result *r, enum line line)
{
    double most = 0;
    for (size_t i = 0; i < r->n_points; i++) {
        double value = value_of(r, i, i + 1, line);
        most = value > most ? value : most;
    }
    return most;
}

/* Each point is as wide as its interval; where nothing came there is a gap. */
static void curve(const struct panel *p, const struct load_result *r, enum line line,
                  const char *class)
{
    size_t each = (r->n_points + ACROSS_MAX - 1) / ACROSS_MAX;
    bool pen = false;
    buf_printf(p->out, "<path class=\"%s\" d=\"", class);
    for (size_t i = 0; i < r->n_points; i += each) {
        size_t to = i + each < r->n_points ? i + each : r->n_points;
        double value = value_of(r, i, to, line);
        double begin = r->points[i].at_s - r->points[i].span_s, end = r->points[to - 1].at_s;
        bool there = value > 0 || line == LINE_RATE;
        if (there && !pen)
            buf_printf(p->out, "M%.1f %.1f", x_of(p, begin), y_of(p, value));
        else if (there)
            buf_printf(p->out, "V%.1f", y_of(p, value));
        if (there)
            buf_printf(p->out, "H%.1f", x_of(p, end));
        pen = there;
    }
    buf_add_str(p->out, "\"/>\n");
}

static void legend(const struct panel *p, const char *const *classes, const char *const *names,
                   size_t n)
{
    double x = RIGHT - 110.0 * (double)n;
    for (size_t i = 0; i < n; i++, x += 110) {
        buf_printf(p->out, "<path class=\"%s\" d=\"M%.1f %.1fh22\"/>\n", classes[i], x,
                   p->top - 16);
        label(p->out, x + 28, p->top - 12, "legend", names[i]);
    }
}

static void decades(struct panel *p, double least, double most)
{
    p->logarithmic = true;
    p->y_least = least > 0 ? floor(log10(least)) : 3;
    p->y_most = most > 0 ? ceil(log10(most)) : 6;
    if (p->y_most <= p->y_least)
        p->y_most = p->y_least + 1;
}

static void panel_rate(struct buf *out, const struct load_result *r, double seconds)
{
    double most = most_of(r, LINE_RATE);
    struct panel p = {out, TOP, seconds, 0, most > 0 ? most * 1.05 : 1, false};
    panel_title(&p, "messages a second");
    axis_rates(&p);
    axis_seconds(&p);
    curve(&p, r, LINE_RATE, "rate");
}

static void panel_latency(struct buf *out, const struct load_result *r, const char *of,
                          double seconds)
{
    static const char *const classes[] = {"p50", "p99", "most"}, *const names[] = {"median", "p99",
                                                                                   "slowest"};
    struct panel p = {out, TOP + STEP, seconds, 0, 0, true};
    char title[96];
    (void)snprintf(title, sizeof title, "latency over time: %s", of);
    decades(&p, (double)r->times[LOAD_TOOK]->least, most_of(r, LINE_MOST));
    panel_title(&p, title);
    axis_times(&p);
    axis_seconds(&p);
    legend(&p, classes, names, 3);
    curve(&p, r, LINE_MOST, "most");
    curve(&p, r, LINE_P99, "p99");
    curve(&p, r, LINE_P50, "p50");
}

/* ---- the distribution ---- */

#define NINES 5 /* the axis ends at 99.999 % */

/* The axis is that of -log10(1 - part): each step leaves out a tenth of what was left. */
static void spread(const struct panel *p, const struct histogram *h, const char *class)
{
    if (h->count == 0)
        return;
    buf_printf(p->out, "<path class=\"%s\" d=\"", class);
    for (int i = 0; i <= NINES * 40; i++) {
        double nines = (double)i / 40, part = 1 - pow(10, -nines);
        if ((double)h->count * (1 - part) < 1 && i % 40 != 0)
            continue; /* fewer than one message is beyond */
        buf_printf(p->out, "%s%.1f %.1f", i ? "L" : "M", x_of(p, nines),
                   y_of(p, (double)histogram_at(h, part)));
    }
    buf_add_str(p->out, "\"/>\n");
}

static void panel_spread(struct buf *out, const struct load_options *o, const struct load_result *r)
{
    static const char *const parts[] = {"0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"};
    static const char *const classes[] = {"p50", "p99"};
    const struct histogram *took = r->times[LOAD_TOOK], *other = r->times[LOAD_OTHER];
    const char *names[] = {load_times_name(o->kind, LOAD_TOOK),
                           load_times_name(o->kind, LOAD_OTHER)};
    struct panel p = {out, TOP + 2 * STEP, NINES, 0, 0, true};
    uint64_t least = other->count && other->least < took->least ? other->least : took->least;
    uint64_t most = other->most > took->most ? other->most : took->most;
    decades(&p, (double)least, (double)most);
    panel_title(&p, "latency that so many messages did not exceed");
    axis_times(&p);
    for (int i = 0; i <= NINES; i++)
        label(out, x_of(&p, i), p.top + PANEL + 18, "under", parts[i]);
    legend(&p, classes, names, names[1] && other->count ? 2 : 1);
    spread(&p, other, "p99");
    spread(&p, took, "p50");
}

/* ---- the whole ---- */

static const char style[] =
    "<style>"
    ":root{--ink:#1b1f24;--dim:#69727d;--line:#dfe3e8;--a:#0b6bcb;--b:#d9730d;--c:#b4232c;"
    "--paper:#fff}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--dim:#98a2ad;--line:#2f363e;"
    "--a:#5aa9f0;--b:#f0a04b;--c:#f0656d;--paper:#14181d}}"
    "text{font:12px system-ui,sans-serif;fill:var(--dim)}"
    ".head{font-size:19px;font-weight:600;fill:var(--ink)}.title{font-weight:600;fill:var(--ink)}"
    ".left{text-anchor:end}.under{text-anchor:middle}"
    "path{fill:none;stroke-width:1.6;stroke-linejoin:round}"
    ".grid{stroke:var(--line);stroke-width:1}.rate,.p50{stroke:var(--a)}.p99{stroke:var(--b)}"
    ".most{stroke:var(--c);stroke-width:1}.paper{fill:var(--paper)}</style>\n";

static void heading(struct buf *out, const struct load_options *o, const struct load_result *r)
{
    char line[400], rate[32], p50[32], p99[32], p999[32], most[32], wanted[48] = "no rate given";
    const struct histogram *took = r->times[LOAD_TOOK];
    rate_text(r->seconds > 0 ? (double)r->messages / r->seconds : 0, rate);
    (void)snprintf(line, sizeof line, "oncemq bench %s: %s", load_kind_name(o->kind), rate);
    label(out, LEFT, 30, "head", line);
    if (o->rate > 0)
        (void)snprintf(wanted, sizeof wanted, "%.0f a second wanted", o->rate);
    ns_text((double)histogram_at(took, 0.5), p50);
    ns_text((double)histogram_at(took, 0.99), p99);
    ns_text((double)histogram_at(took, 0.999), p999);
    ns_text((double)took->most, most);
    (void)snprintf(line, sizeof line,
                   "%" PRIu64 " messages of %" PRIu32 " bytes in %.1f s, %" PRIu64
                   " failures · %u × %u in flight, batch %u, %s",
                   r->messages, o->size, r->seconds, r->failures, o->connections, o->in_flight,
                   o->batch, wanted);
    label(out, LEFT, 52, "legend", line);
    (void)snprintf(line, sizeof line, "%s: p50 %s, p99 %s, p99.9 %s, max %s",
                   load_times_name(o->kind, LOAD_TOOK), p50, p99, p999, most);
    label(out, LEFT, 70, "legend", line);
}

void load_result_plot(const struct load_options *given, const struct load_result *r,
                      struct buf *out)
{
    struct load_options o;
    load_defaults(given, &o);
    double seconds = r->n_points ? r->points[r->n_points - 1].at_s : r->seconds;
    seconds = seconds > 0 ? seconds : 1;
    buf_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
               "height=\"%d\" role=\"img\" aria-label=\"oncemq bench %s\">\n",
               WIDTH, HEIGHT, WIDTH, HEIGHT, load_kind_name(o.kind));
    buf_add_str(out, style);
    buf_printf(out, "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", WIDTH, HEIGHT);
    heading(out, &o, r);
    panel_rate(out, r, seconds);
    panel_latency(out, r, load_times_name(o.kind, LOAD_TOOK), seconds);
    panel_spread(out, &o, r);
    buf_add_str(out, "</svg>\n");
}
