/* head_again.c - a JSON header that is like one before.
 *
 * What a client sends differs from what it has sent before in few values: an opaque number, a time,
 * a key. So the text of a header that was decoded in full is remembered, with the places of its
 * values. Of the next header everything between the values is compared with it, and the values are
 * read by the same functions that read them in a full decode; where a text stood a text is
 * expected, and digits where digits stood. If all of that fits, the header is the remembered one
 * with other values, and nothing else can be in it. If anything does not, the header is decoded in
 * full, and remembered in its turn. So the result is that of a full decode, always.
 *
 * Most values stay the same as well. So the text is cut into *runs*, each up to the next value that
 * was ever seen to change, and a run is compared as a whole: whatever stands in it is what stood in
 * it before. A header with another value is read value by value, and from then on that one is
 * expected to change.
 *
 * With the names the rules of the fields are known, too: fields_read notes them here, and looks for
 * them only once. A number that never changed is not read again either: what it says is noted.
 *
 * There are a few memories, and the first bytes of a header choose one: they tell its request code
 * and whose handwriting it is. Remembered are headers as they all are: short, their fields texts,
 * no blanks around them, no remark.
 */
#include "remoting/head_text.h"

#include <assert.h>

static struct head_memory *memory_for(struct head_memories *memories, struct bytes text)
{
    uint64_t start = text.len >= 16 ? word_load(text.at) * 31 + word_load(text.at + 8) : 0;
    return &memories->of[(start * 0x9e3779b97f4a7c15u) >> 61];
}
static_assert(HEAD_MEMORIES == 8, "three bits choose one");

/* ---- remembering ---- */

/* The closing quote of a text that begins at `at`. Both are known to be there. */
static const uint8_t *text_end(const uint8_t *at)
{
    while (*at != '"')
        at += *at == '\\' ? 2 : 1;
    return at;
}

/* Where field `i` stands. False: not as it can be remembered. */
static bool place_note(struct head_memory *m, struct bytes text, const struct field *field,
                       size_t i)
{
    const uint8_t *end = text.at + text.len, *name = field->name.at;
    if (name < text.at || name >= end)
        return false; /* it had escapes */
    const uint8_t *quote = name + field->name.len;
    if (end - quote < 4 || memcmp(quote, "\":\"", 3) != 0)
        return false;
    const uint8_t *value = quote + 3;
    m->places[i] = (struct head_place){.name = (uint16_t)(name - text.at),
                                       .name_len = (uint16_t)field->name.len,
                                       .value = (uint16_t)(value - text.at),
                                       .value_len = (uint16_t)(text_end(value) - value)};
    return true;
}

static void run_add(struct head_memory *m, size_t from, size_t to, size_t first, size_t upto,
                    bool opaque)
{
    m->runs[m->n_runs++] = (struct head_run){.from = (uint16_t)from,
                                             .to = (uint16_t)to,
                                             .first = (uint8_t)first,
                                             .upto = (uint8_t)upto,
                                             .opaque = opaque};
}

static bool changes(const struct head_memory *m, size_t i)
{
    return m->varies >> i & 1;
}
static_assert(HEAD_MEMORY_FIELDS <= 32, "each has a bit");

/* Behind the closing quote of field `i`. */
static size_t place_end(const struct head_memory *m, size_t i)
{
    return (size_t)m->places[i].value + m->places[i].value_len + 1;
}

/* Cuts the text at what changes. */
static void runs_cut(struct head_memory *m)
{
    size_t from = 0, first = 0;
    m->n_runs = 0;
    for (size_t i = 0; i <= m->n_fields; i++) {
        if (i == m->opaque_before) {
            run_add(m, from, m->opaque_at, first, i, true);
            from = m->opaque_end;
            first = i;
        }
        if (i < m->n_fields && changes(m, i)) {
            run_add(m, from, m->places[i].value, first, i, false);
            from = place_end(m, i);
            first = i + 1;
        }
    }
    run_add(m, from, m->len, first, m->n_fields, false);
}

static void remember(struct head_memory *m, struct bytes text, const struct head *head,
                     const uint8_t *opaque)
{
    m->len = 0;
    m->table = NULL;
    if (text.len > HEAD_MEMORY_TEXT || head->n_fields > HEAD_MEMORY_FIELDS || !opaque ||
        head->remark.len > 0)
        return;
    m->n_fields = (uint8_t)head->n_fields;
    m->opaque_at = m->opaque_end = (uint16_t)(opaque - text.at);
    while (text.at[m->opaque_end] != ',') /* a number ends somewhere, at the latest with a } */
        if ((uint8_t)(text.at[m->opaque_end++] - '0') > 9)
            return;
    m->opaque_before = 0;
    m->varies = 0;
    for (size_t i = 0; i < head->n_fields; i++) {
        const uint8_t *value = head->fields[i].value.at;
        if (!place_note(m, text, &head->fields[i], i))
            return;
        m->opaque_before = (uint8_t)(m->opaque_before + (m->places[i].value < m->opaque_at));
        if (value != text.at + m->places[i].value) /* it has to be copied every time */
            m->varies |= UINT32_C(1) << i;
    }
    m->code = head->code;
    m->version = head->version;
    m->flag = head->flag;
    m->language = head->language;
    memcpy(m->text, text.at, text.len);
    m->len = (uint16_t)text.len;
    runs_cut(m);
}

/* ---- comparing ---- */

/* A text from behind its opening quote; returns what is behind the closing one, or NULL. */
static inline const uint8_t *value_take(const uint8_t *at, struct scan *s, struct bytes *out)
{
    const uint8_t *end = s->end, *stop;
    if (end - at >= 2 && at[1] == '"' && !byte_stops(at[0]))
        stop = at + 1; /* as in text_read */
    else
        stop = plain_end(at, end);
    if (stop < end && *stop == '"') {
        *out = bytes_of(at, (size_t)(stop - at));
        return stop + 1;
    }
    s->at = at;
    return stop < end && text_copy(s, out) == OK ? s->at : NULL;
}

/* ---- by runs ---- */

/* The fields of a run that was found at `at`. */
static inline void fields_same(const struct head_memory *m, const struct head_run *run,
                               const uint8_t *at, struct head *out)
{
    const uint8_t *text = at - run->from; /* where this text would begin, were all of it the same */
    const struct head_place *place = &m->places[run->first], *end = &m->places[run->upto];
    for (struct field *field = &out->fields[run->first]; place < end; place++, field++) {
        field->name = bytes_of(text + place->name, place->name_len);
        field->value = bytes_of(text + place->value, place->value_len);
    }
}

/* As `alike`, and false also for other values than those that are expected to change. */
static bool same_runs(const struct head_memory *m, struct scan *s, struct head *out)
{
    const uint8_t *at = s->at, *end = s->end;
    const struct head_run *run = m->runs, *last = run + m->n_runs - 1;
    for (;; run++) {
        size_t n = (size_t)run->to - run->from;
        if ((size_t)(end - at) < n || memcmp(at, m->text + run->from, n) != 0)
            return false;
        fields_same(m, run, at, out);
        at += n;
        if (run == last)
            return at == end;
        if (run->opaque) {
            s->at = at;
            if (!digits_take(s, &out->opaque))
                return false;
            at = s->at;
        } else {
            struct field *field = &out->fields[run->upto];
            size_t len = m->places[run->upto].name_len;
            field->name = bytes_of(at - 3 - len, len);
            at = value_take(at, s, &field->value);
            if (!at)
                return false;
        }
    }
}

/* ---- value by value ---- */

/* Most of what stands between two values has seven bytes. */
static inline bool same(const uint8_t *a, const uint8_t *b, size_t n)
{
    if (n < 4 || n > 8)
        return memcmp(a, b, n) == 0;
    uint32_t a1, a2, b1, b2;
    memcpy(&a1, a, 4);
    memcpy(&a2, a + n - 4, 4);
    memcpy(&b1, b, 4);
    memcpy(&b2, b + n - 4, 4);
    return ((a1 ^ b1) | (a2 ^ b2)) == 0;
}

/* Where the text between two values ends in the new header, which begins at `at`; NULL: it is
 * another one. */
static inline const uint8_t *stretch(const uint8_t *at, const uint8_t *end, const uint8_t *old,
                                     size_t n)
{
    return (size_t)(end - at) >= n && same(at, old, n) ? at + n : NULL;
}

/* False: it is not alike, or not well-formed; what stands in `out` means nothing. */
static bool alike(const struct head_memory *m, struct scan *s, struct head *out)
{
    const uint8_t *at = s->at, *end = s->end;
    size_t old = 0, n = m->n_fields;
    for (size_t i = 0;; i++) {
        if (i == m->opaque_before) {
            at = stretch(at, end, m->text + old, m->opaque_at - old);
            if (!at)
                return false;
            s->at = at;
            if (!digits_take(s, &out->opaque))
                return false;
            at = s->at;
            old = m->opaque_end;
        }
        if (i == n)
            break;
        size_t upto = m->places[i].value, len = m->places[i].name_len;
        at = stretch(at, end, m->text + old, upto - old);
        if (!at)
            return false;
        struct field *field = &out->fields[i];
        field->name = bytes_of(at - 3 - len, len);
        at = value_take(at, s, &field->value);
        if (!at)
            return false;
        old = place_end(m, i);
    }
    return stretch(at, end, m->text + old, m->len - old) == end;
}

/* What has changed will change again. */
static void changes_note(struct head_memory *m, const struct head *head)
{
    for (size_t i = 0; i < m->n_fields; i++) {
        struct bytes old = bytes_of(m->text + m->places[i].value, m->places[i].value_len);
        if (!bytes_equal(head->fields[i].value, old))
            m->varies |= UINT32_C(1) << i;
    }
    runs_cut(m);
}

/* The header is a remembered one with other values: they are in `out`. */
static bool recognise(struct head_memory *m, struct bytes text, struct wr *spare, struct head *out)
{
    struct wr before = *spare;
    struct scan s = {text.at, text.at + text.len, spare, NULL};
    if (m->len == 0)
        return false;
    if (same_runs(m, &s, out))
        return true;
    *spare = before;
    s.at = text.at;
    if (alike(m, &s, out)) {
        changes_note(m, out);
        return true;
    }
    *spare = before;
    return false;
}

enum err head_decode_again(const struct frame *frame, struct head_memories *memories,
                           struct wr *spare, struct head *out)
{
    if (frame->form != HEAD_JSON)
        return head_decode_binary(frame->head, out);
    struct head_memory *m = memory_for(memories, frame->head);
    if (recognise(m, frame->head, spare, out)) {
        out->form = HEAD_JSON;
        out->code = m->code;
        out->version = m->version;
        out->flag = m->flag;
        out->language = m->language;
        out->remark = (struct bytes){0};
        out->memory = m;
        out->n_fields = m->n_fields;
        return OK;
    }
    const uint8_t *opaque;
    enum err err = head_decode_noting(frame->head, spare, out, &opaque);
    if (!err)
        remember(m, frame->head, out, opaque);
    if (!err && m->len > 0)
        out->memory = m;
    return err;
}
