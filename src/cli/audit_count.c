/* audit_count.c - what was seen, in two piles, and what it comes to. */
#include "base/dice.h"
#include "cli/admin.h"
#include "cli/audit_int.h"

#include <openssl/evp.h>
#include <stdlib.h>

#define PILE_MEMORY (32u << 20)
#define PRINT       12                  /* bytes of a fingerprint: none is another's by accident */
#define MESSAGE     (2 * PRINT + 8 + 4) /* by key, by id, place, lane */
#define ENTRY       (PRINT + 4 + 8 + 1) /* key, group, token, event */
#define OVERTOOK    (EVENT_LAST + 1)    /* a claim that was another's, whose run never ended */

static int no_memory(struct audit *a)
{
    return cli_fail(a->cli, STATUS_FAILED, NULL, "out of memory");
}

static int pile_fail(struct audit *a, enum err err, const struct fault *why)
{
    return cli_fail(a->cli, STATUS_FAILED, "TMPDIR names a folder with room for sorting", "%s",
                    why->text[0] ? why->text : err_text(err));
}

int audit_open(struct audit *a, struct cli *cli)
{
    *a = (struct audit){.cli = cli, .refused = -1};
    uint64_t seed = dice_seed_from_os();
    map_init(&a->topics, seed);
    map_init(&a->groups, seed);
    if (pile_open(MESSAGE, PILE_MEMORY, &a->messages) || pile_open(ENTRY, PILE_MEMORY, &a->entries))
        return no_memory(a);
    return STATUS_OK;
}

void audit_close(struct audit *a)
{
    pile_close(a->messages);
    pile_close(a->entries);
    for (size_t i = 0; i < a->n_topics; i++)
        free(a->topic_list[i]);
    for (size_t i = 0; i < a->n_groups; i++)
        free(a->group_list[i]);
    for (size_t i = 0; i < a->n_lanes; i++)
        free(a->lanes[i]);
    free(a->topic_list);
    free(a->group_list);
    free(a->lanes);
    free(a->pairs);
    free(a->doubts);
    map_clear(&a->topics);
    map_clear(&a->groups);
}

/* Room for one more in a list. */
static bool grown(void *list_at, size_t n, size_t *room, size_t size)
{
    void **list = list_at;
    if (n < *room)
        return true;
    size_t more = *room ? 2 * *room : 16;
    void *bigger = realloc(*list, more * size);
    if (!bigger)
        return false;
    *list = bigger;
    *room = more;
    return true;
}

/* ---- topics, queues, groups ---- */

struct audit_topic *audit_topic(struct audit *a, struct bytes name)
{
    struct audit_topic *topic = map_get(&a->topics, name);
    if (topic)
        return topic;
    topic = calloc(1, sizeof *topic + name.len + 1);
    if (!topic || !grown(&a->topic_list, a->n_topics, &a->room_topics, sizeof topic)) {
        free(topic);
        (void)no_memory(a);
        return NULL;
    }
    memcpy(topic->name, name.at, name.len);
    topic->name_len = name.len;
    topic->number = (uint32_t)a->n_topics;
    a->topic_list[a->n_topics++] = topic;
    if (map_put(&a->topics, bytes_of(topic->name, topic->name_len), topic)) {
        (void)no_memory(a);
        return NULL;
    }
    return topic;
}

static struct audit_group *group_of(struct audit *a, struct bytes name)
{
    struct audit_group *group = map_get(&a->groups, name);
    if (group)
        return group;
    group = calloc(1, sizeof *group + name.len + 1);
    if (!group || !grown(&a->group_list, a->n_groups, &a->room_groups, sizeof group)) {
        free(group);
        return NULL;
    }
    if (name.len > 0)
        memcpy(group->name, name.at, name.len);
    group->name_len = name.len;
    group->number = (uint32_t)a->n_groups;
    a->group_list[a->n_groups++] = group;
    return map_put(&a->groups, bytes_of(group->name, group->name_len), group) ? NULL : group;
}

int audit_lane(struct audit *a, struct audit_topic *topic, const char *broker, int32_t queue,
               uint32_t *out)
{
    struct audit_lane *lane = calloc(1, sizeof *lane);
    if (!lane || !grown(&a->lanes, a->n_lanes, &a->room_lanes, sizeof lane)) {
        free(lane);
        return no_memory(a);
    }
    *lane = (struct audit_lane){topic, broker, queue};
    *out = (uint32_t)a->n_lanes;
    a->lanes[a->n_lanes++] = lane;
    return STATUS_OK;
}

/* ---- seeing ---- */

/* The same only for the same topic, name and body; `kind` keeps ids and keys apart. */
static bool print_of(uint8_t out[PRINT], char kind, const struct audit_topic *topic,
                     struct bytes name, struct bytes body)
{
    uint8_t head[1 + 4 + 8], digest[32];
    head[0] = (uint8_t)kind;
    store_u32(head + 1, topic->number);
    store_u64(head + 5, name.len);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) &&
              EVP_DigestUpdate(ctx, head, sizeof head) &&
              EVP_DigestUpdate(ctx, name.at, name.len) &&
              EVP_DigestUpdate(ctx, body.at, body.len) && EVP_DigestFinal_ex(ctx, digest, NULL);
    EVP_MD_CTX_free(ctx);
    memcpy(out, digest, PRINT);
    return ok;
}

int audit_see(struct audit *a, uint32_t lane, const struct audit_message *m)
{
    struct audit_topic *topic = a->lanes[lane]->topic;
    if (m->resent) {
        a->resent++;
        return STATUS_OK;
    }
    uint8_t seen[MESSAGE];
    bool ok = print_of(seen + PRINT, 'i', topic, m->id, m->body);
    if (m->keys.len > 0)
        ok &= print_of(seen, 'k', topic, m->keys, m->body);
    else
        memcpy(seen, seen + PRINT, PRINT);
    if (!ok)
        return no_memory(a);
    store_u64(seen + 2 * PRINT, (uint64_t)m->place);
    store_u32(seen + 2 * PRINT + 8, lane);
    topic->messages++;
    a->n_messages++;
    struct fault why = {0};
    enum err err = pile_add(a->messages, seen, &why);
    return err ? pile_fail(a, err, &why) : STATUS_OK;
}

static const char *text_kept(struct audit *a, struct bytes text)
{
    return admin_format(a->cli, "%.*s", BYTES_ARG(text));
}

static void doubt_note(struct audit *a, struct audit_group *group, const struct ledger_entry *e,
                       const char *event)
{
    if (group->examples == AUDIT_EXAMPLES ||
        !grown(&a->doubts, a->n_doubts, &a->room_doubts, sizeof *a->doubts))
        return;
    group->examples++;
    a->doubts[a->n_doubts++] = (struct audit_doubt){group, text_kept(a, e->name), event, e->at_ms};
}

struct seeing {
    struct audit *audit;
    enum err err;
    struct fault why;
};

static bool entry_see(void *user, const struct ledger_entry *e)
{
    struct seeing *s = user;
    struct audit *a = s->audit;
    struct audit_group *group = group_of(a, e->group);
    if (!group) {
        s->err = ERR_NO_MEMORY;
        return false;
    }
    uint8_t seen[ENTRY];
    bool overtook = e->event == EVENT_CLAIMED && e->flags & LEDGER_OVERTOOK;
    memcpy(seen, e->id, PRINT);
    store_u32(seen + PRINT, group->number);
    store_u64(seen + PRINT + 4, e->token);
    seen[ENTRY - 1] = overtook ? OVERTOOK : e->event;
    if (overtook)
        doubt_note(a, group, e, "taken from a run that never ended");
    else if (e->event == EVENT_LOST)
        doubt_note(a, group, e, "lost while its handler ran");
    a->n_entries++;
    s->err = pile_add(a->entries, seen, &s->why);
    return !s->err;
}

int audit_record(struct audit *a, struct bytes body)
{
    struct seeing s = {.audit = a};
    a->ledger = true;
    if (entries_read(body, entry_see, &s))
        a->bad_entries++;
    return s.err ? pile_fail(a, s.err, &s.why) : STATUS_OK;
}

/* ---- counting messages ---- */

/* All that have one key and body; or one id and body, if they have no key. */
struct bunch {
    uint8_t first[MESSAGE], last[MESSAGE];
    uint64_t n, ids;
};

static void pair_note(struct audit *a, const struct bunch *b, struct audit_topic *topic)
{
    if (topic->examples == AUDIT_EXAMPLES ||
        !grown(&a->pairs, a->n_pairs, &a->room_pairs, sizeof *a->pairs))
        return;
    topic->examples++;
    a->pairs[a->n_pairs++] = (struct audit_pair){
        .lanes = {a->lanes[load_u32(b->first + 2 * PRINT + 8)],
                  a->lanes[load_u32(b->last + 2 * PRINT + 8)]},
        .places = {(int64_t)load_u64(b->first + 2 * PRINT), (int64_t)load_u64(b->last + 2 * PRINT)},
        .by_key = b->ids > 1,
        .copies = b->n,
    };
}

static void bunch_end(struct audit *a, const struct bunch *b)
{
    if (b->n < 2)
        return;
    struct audit_topic *topic = a->lanes[load_u32(b->first + 2 * PRINT + 8)]->topic;
    topic->twice_by_id += b->n - b->ids;
    topic->twice_by_key += b->ids - 1;
    pair_note(a, b, topic);
}

static enum err messages_count(struct audit *a, struct fault *why)
{
    struct bunch b = {.n = 0};
    const uint8_t *seen;
    enum err err = pile_sort(a->messages, why);
    while (!err && !(err = pile_next(a->messages, (const void **)&seen, why)) && seen) {
        if (b.n == 0 || memcmp(b.first, seen, PRINT) != 0) {
            bunch_end(a, &b);
            b = (struct bunch){.ids = 1};
            memcpy(b.first, seen, MESSAGE);
        } else {
            b.ids += memcmp(b.last + PRINT, seen + PRINT, PRINT) != 0;
        }
        memcpy(b.last, seen, MESSAGE);
        b.n++;
    }
    if (!err)
        bunch_end(a, &b);
    return err;
}

/* ---- counting keys ---- */

/* What is known of one key in one group, and of one of those who claimed it. */
struct key_story {
    uint8_t key[ENTRY];
    uint64_t all[OVERTOOK + 1], token[OVERTOOK + 1];
    bool open, unsure;
};

/* Whoever lost what it had claimed and not done; one that never had it proves nothing. */
static void token_end(struct key_story *k)
{
    uint64_t claims = k->token[EVENT_CLAIMED] + k->token[OVERTOOK];
    k->unsure |= k->token[OVERTOOK] > 0 ||
                 (k->token[EVENT_LOST] > 0 && claims > 0 && k->token[EVENT_DONE] == 0);
    for (size_t i = 0; i <= OVERTOOK; i++)
        k->all[i] += k->token[i];
    memset(k->token, 0, sizeof k->token);
}

static void key_end(struct audit *a, struct key_story *k)
{
    token_end(k);
    struct audit_group *group = a->group_list[load_u32(k->key + PRINT)];
    uint64_t claims = k->all[EVENT_CLAIMED] + k->all[OVERTOOK];
    uint64_t told = k->all[EVENT_SUPPRESSED] + k->all[EVENT_REFUSED];
    uint64_t tries = k->all[EVENT_RELEASED] + 1; /* a failure is tried again, on purpose */
    group->keys += claims > 0 || told > 0;
    group->done += k->all[EVENT_DONE] > 0;
    group->suppressed += k->all[EVENT_SUPPRESSED];
    group->refused += k->all[EVENT_REFUSED];
    group->again += claims + told > tries ? claims + told - tries : 0;
    group->unsure += k->unsure;
}

static enum err entries_count(struct audit *a, struct fault *why)
{
    struct key_story k = {.open = false};
    const uint8_t *seen;
    enum err err = pile_sort(a->entries, why);
    while (!err && !(err = pile_next(a->entries, (const void **)&seen, why)) && seen) {
        if (k.open && memcmp(k.key, seen, PRINT + 4) != 0) {
            key_end(a, &k);
            k = (struct key_story){.open = false};
        } else if (k.open && memcmp(k.key, seen, ENTRY - 1) != 0) {
            token_end(&k);
        }
        memcpy(k.key, seen, ENTRY);
        k.token[seen[ENTRY - 1]]++;
        k.open = true;
    }
    if (!err && k.open)
        key_end(a, &k);
    return err;
}

int audit_count(struct audit *a)
{
    struct fault why = {0};
    enum err err = messages_count(a, &why);
    if (!err)
        err = entries_count(a, &why);
    return err ? pile_fail(a, err, &why) : STATUS_OK;
}
