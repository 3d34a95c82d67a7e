/* top_view.c - what the views show of a survey: columns, the text of a cell, the order of rows. */
#include "cli/out_int.h"
#include "cli/top_int.h"

#include <math.h>
#include <stdlib.h>

/* ---- numbers ---- */

/* 12, 9999, 12.3k, 4.56M */
void count_text(double value, char *out, size_t room)
{
    static const char units[] = " kMGT";
    size_t unit = 0;
    if (isnan(value)) {
        (void)snprintf(out, room, "-");
        return;
    }
    while (fabs(value) >= (unit == 0 ? 100000 : 1000) && unit < 4) {
        value /= 1000;
        unit++;
    }
    if (unit == 0)
        (void)snprintf(out, room, value < 100 && value != floor(value) ? "%.1f" : "%.0f", value);
    else
        (void)snprintf(out, room,
                       value < 10    ? "%.2f%c"
                       : value < 100 ? "%.1f%c"
                                     : "%.0f%c",
                       value, units[unit]);
}

void ms_text(double ms, char *out, size_t room)
{
    if (isnan(ms))
        (void)snprintf(out, room, "-");
    else
        (void)snprintf(out, room, ms < 10 ? "%.2f ms" : "%.0f ms", ms);
}

static void behind_text(int64_t ms, char *out, size_t room)
{
    char text[32] = "-";
    if (ms > 0)
        duration_text(ms < 1000 ? ms : ms / 1000 * 1000, text);
    (void)snprintf(out, room, "%s", text);
}

void whole_text(int64_t n, char *out, size_t room)
{
    count_text(n < 0 ? NAN : (double)n, out, room);
}

/* ---- views ---- */

static const struct view views[VIEWS] = {
    [VIEW_BROKERS] = {"brokers",
                      {{NAME, "BROKER", 10, true},
                       {STATE, "STATE", 5, false},
                       {IN, "IN/S", 8, false},
                       {OUT, "OUT/S", 8, false},
                       {PUT_99, "SEND 99%", 9, false},
                       {GET_99, "PULL 99%", 9, false},
                       {DUPLICATES, "DUPLICATES", 10, false},
                       {DISK, "DISK", 5, false},
                       {VERSION, "VERSION", 8, true}},
                      {NAME, IN, OUT},
                      3},
    [VIEW_TOPICS] = {"topics",
                     {{NAME, "TOPIC", 10, true},
                      {IN, "IN/S", 8, false},
                      {OUT, "OUT/S", 8, false},
                      {MESSAGES, "MESSAGES", 8, false},
                      {QUEUES, "QUEUES", 6, false},
                      {PUT_99, "SEND 99%", 9, false},
                      {GET_99, "PULL 99%", 9, false}},
                     {IN, OUT, MESSAGES, NAME},
                     4},
    [VIEW_GROUPS] = {"groups",
                     {{NAME, "GROUP", 10, true},
                      {TOPIC, "TOPIC", 10, true},
                      {LAG, "LAG", 8, false},
                      {BEHIND, "BEHIND", 7, false},
                      {IN, "IN/S", 8, false},
                      {OUT, "OUT/S", 8, false},
                      {MEMBERS, "MEMBERS", 7, false},
                      {GET_99, "PULL 99%", 9, false}},
                     {LAG, BEHIND, OUT, NAME},
                     4},
    [VIEW_QUEUES] = {"queues",
                     {{NAME, "GROUP", 10, true},
                      {TOPIC, "TOPIC", 10, true},
                      {BROKER, "BROKER", 8, true},
                      {QUEUE, "QUEUE", 5, false},
                      {LAG, "LAG", 8, false},
                      {BEHIND, "BEHIND", 7, false},
                      {IN, "IN/S", 8, false},
                      {OUT, "OUT/S", 8, false}},
                     {LAG, BEHIND, OUT, NAME},
                     4},
};

const struct view *view_of(enum top_view view)
{
    return &views[view];
}

static size_t view_rows(const struct survey *s, enum top_view view)
{
    return view == VIEW_BROKERS  ? s->n_brokers
           : view == VIEW_TOPICS ? s->n_topics
           : view == VIEW_GROUPS ? s->n_groups
                                 : s->n_queues;
}

/* A value of a row: a text or a number, whichever it has. */
struct value {
    const char *text;
    double number;
};

static struct value broker_value(const struct top_broker *b, enum field field)
{
    switch (field) {
    case NAME:
        return (struct value){b->name, 0};
    case STATE:
        return (struct value){b->up ? "ok" : b->address || b->forgotten ? "gone" : "no master", 0};
    case VERSION:
        return (struct value){b->version, 0};
    case IN:
        return (struct value){NULL, b->in};
    case OUT:
        return (struct value){NULL, b->out};
    case PUT_99:
        return (struct value){NULL, b->put_99};
    case GET_99:
        return (struct value){NULL, b->get_99};
    case DUPLICATES:
        return (struct value){NULL, b->duplicates < 0 ? NAN : (double)b->duplicates};
    default:
        return (struct value){NULL, b->disk};
    }
}

static struct value topic_value(const struct top_topic *t, enum field field)
{
    switch (field) {
    case NAME:
        return (struct value){t->name, 0};
    case IN:
        return (struct value){NULL, t->in};
    case OUT:
        return (struct value){NULL, t->out};
    case MESSAGES:
        return (struct value){NULL, t->at_ns ? (double)t->messages : NAN};
    case PUT_99:
        return (struct value){NULL, t->put_99};
    case GET_99:
        return (struct value){NULL, t->get_99};
    default:
        return (struct value){NULL, t->at_ns ? (double)t->queues : NAN};
    }
}

static struct value group_value(const struct top_group *g, enum field field)
{
    switch (field) {
    case NAME:
        return (struct value){g->group, 0};
    case TOPIC:
        return (struct value){g->topic, 0};
    case LAG:
        return (struct value){NULL, (double)g->lag};
    case BEHIND:
        return (struct value){NULL, (double)g->behind_ms};
    case IN:
        return (struct value){NULL, g->in};
    case OUT:
        return (struct value){NULL, g->out};
    case MEMBERS:
        return (struct value){NULL, g->members < 0 ? NAN : (double)g->members};
    default:
        return (struct value){NULL, g->get_99};
    }
}

static struct value queue_value(const struct top_queue *q, enum field field)
{
    switch (field) {
    case NAME:
        return (struct value){q->group, 0};
    case TOPIC:
        return (struct value){q->topic, 0};
    case BROKER:
        return (struct value){q->broker, 0};
    case QUEUE:
        return (struct value){NULL, (double)q->queue};
    case LAG:
        return (struct value){NULL, (double)q->lag};
    case BEHIND:
        return (struct value){NULL, (double)q->behind_ms};
    case IN:
        return (struct value){NULL, q->in};
    default:
        return (struct value){NULL, q->out};
    }
}

static struct value value_of(const struct survey *s, enum top_view view, size_t row,
                             enum field field)
{
    switch (view) {
    case VIEW_BROKERS:
        return broker_value(&s->brokers[row], field);
    case VIEW_TOPICS:
        return topic_value(&s->topics[row], field);
    case VIEW_GROUPS:
        return group_value(&s->groups[row], field);
    default:
        return queue_value(&s->queues[row], field);
    }
}

void cell_of(const struct survey *s, enum top_view view, size_t row, enum field field,
             char out[CELL_MAX])
{
    struct value v = value_of(s, view, row, field);
    if (v.text)
        (void)snprintf(out, CELL_MAX, "%s", v.text);
    else if (field == PUT_99 || field == GET_99)
        ms_text(v.number, out, CELL_MAX);
    else if (field == BEHIND)
        behind_text((int64_t)v.number, out, CELL_MAX);
    else if (field == DISK && !isnan(v.number))
        (void)snprintf(out, CELL_MAX, "%.0f%%", v.number * 100);
    else
        count_text(v.number, out, CELL_MAX);
}

/* ---- the order ---- */

struct order {
    const struct survey *survey;
    enum top_view view;
    enum field by;
};

/* Names rise, numbers fall, what is not known comes last; the same rows never change places. */
static int row_order(const void *a, const void *b, void *user)
{
    const struct order *o = user;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    struct value v = value_of(o->survey, o->view, x, o->by),
                 w = value_of(o->survey, o->view, y, o->by);
    int order = 0;
    if (v.text)
        order = strcmp(v.text, w.text);
    else if (isnan(v.number) != isnan(w.number))
        order = isnan(v.number) ? 1 : -1;
    else if (v.number != w.number && !isnan(v.number))
        order = v.number < w.number ? 1 : -1;
    return order ? order : (x > y) - (x < y);
}

size_t *rows_sorted(const struct survey *s, enum top_view view, size_t sort, size_t *n)
{
    *n = view_rows(s, view);
    size_t *rows = calloc(*n + 1, sizeof *rows);
    if (!rows) {
        *n = 0;
        return NULL;
    }
    for (size_t i = 0; i < *n; i++)
        rows[i] = i;
    struct order order = {s, view, views[view].sorts[sort]};
    qsort_r(rows, *n, sizeof *rows, row_order, &order);
    return rows;
}
