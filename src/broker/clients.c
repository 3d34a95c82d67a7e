/* clients.c - who is connected, in which groups, subscribed to what.
 *
 * A *member* is one connection in one group. Members are found by group and connection, listed by
 * group (to be told of changes), by connection (which may close) and by the time they were last
 * heard of. A connection counts, not a client id: one that comes back before its old connection was
 * missed is there twice for a while, as in Apache's tables.
 *
 * Two programs with the same client id are a mistake that costs their owner days: consumers share
 * the queues out by id, so both read the same ones and nobody reads the others. They are told apart
 * from one program that has reconnected by who speaks: that one never speaks over its old
 * connection again, whereas these two take turns.
 */
#include "broker/broker_int.h"

#include <stdlib.h>

#define TELL_AGAIN_NS (UINT64_C(600) * 1000000000) /* of the same two clients */

static enum err member_seen(struct broker *b, const struct client *client, struct map *crowds,
                            struct bytes group, struct member **out, bool *is_new,
                            struct after *after, struct fault *why);
static void member_remove(struct broker *b, struct member *member, struct after *after);
static struct member *member_find(struct broker *b, struct map *crowds, struct bytes group,
                                  const struct counted *session);
static void crowd_tell(struct broker *b, const struct crowd *crowd, struct after *after);
static void crowd_free(struct crowd *crowd);
static struct bytes member_id(const struct member *member);
static enum err caller_put(struct broker *b, struct member *member);

enum err broker_producer_seen(struct broker *b, const struct client *client, struct bytes group,
                              struct fault *why)
{
    enum err err = group_name_check(group, why);
    if (err)
        return ERR_INVALID;
    struct member *member;
    bool is_new;
    struct after after;
    after_init(&after);
    room_enter(&b->room);
    err = member_seen(b, client, &b->producers, group, &member, &is_new, &after, why);
    if (!err)
        err = caller_put(b, member);
    room_leave(&b->room);
    after_run(b, &after);
    return err;
}

/* Room: core. All members of a group must subscribe to the same: the broker knows one table for the
 * whole group, so what one of them wants is at times not what it gets. Told when a member comes or
 * changes; `m` has not been worked in yet. */
static void member_compare(struct broker *b, struct member *member, const struct membership *m,
                           const struct subs_ready *ready, struct after *after)
{
    room_held(&b->room);
    if (member->mark == ready->mark)
        return;
    member->mark = ready->mark;
    list_each(k, &member->crowd->members) {
        const struct member *other = list_entry(k, struct member, in_crowd);
        if (other->mark == 0 || other->mark == member->mark ||
            bytes_equal(member_id(other), member_id(member)))
            continue;
        struct bytes topic = subs_differ(member->crowd, m, ready);
        b->numbers.differing++;
        after_warn(after,
                   "clients [%.*s] and [%.*s] of group [%.*s] do not subscribe to the same%s%.*s; "
                   "messages may be missed: give all members of a group the same topics and "
                   "expressions",
                   BRIEF(member_id(member)), BRIEF(member_id(other)), BRIEF(m->group),
                   topic.len ? ", see topic " : "", BRIEF(topic));
        return;
    }
}

static void crowd_note(struct crowd *crowd, const struct membership *m)
{
    crowd->broadcasting = m->broadcasting;
    crowd->pops = m->pops;
    crowd->actively = m->actively;
    struct wr w = wr_over(crowd->from_where, sizeof crowd->from_where - 1);
    wr_bytes_of(&w, m->from_where);
    crowd->from_where[w.full ? 0 : wr_len(&w)] = 0;
}

/* Room: core. */
static enum err consumer_seen(struct broker *b, const struct client *client,
                              const struct membership *m, struct subs_ready *ready,
                              struct after *after, struct fault *why)
{
    room_held(&b->room);
    struct group *group;
    enum err err = group_need(b, m->group, &group, why);
    if (err)
        return err;
    struct topic *retry;
    err = topic_for_retry(b, group, after, &retry, why);
    if (err)
        return err;
    struct member *member = NULL;
    bool changed = false;
    err = member_seen(b, client, &b->consumers, m->group, &member, &changed, after, why);
    if (err)
        return err;
    invariant(member);
    crowd_note(member->crowd, m);
    if (!m->without_subs) {
        bool subs_changed = false;
        member_compare(b, member, m, ready, after);
        err = subs_update(b, member->crowd, m, ready, &subs_changed);
        changed = changed || subs_changed;
    }
    if (changed)
        crowd_tell(b, member->crowd, after);
    return err;
}

enum err broker_consumer_seen(struct broker *b, const struct client *client,
                              const struct membership *m, struct fault *why)
{
    enum err err = group_name_check(m->group, why) ? ERR_INVALID : subs_check(m, why);
    if (err)
        return err;
    struct subs_ready ready;
    err = subs_prepare(b, m, &ready);
    if (err)
        return err;
    struct after after;
    after_init(&after);
    room_enter(&b->room);
    err = consumer_seen(b, client, m, &ready, &after, why);
    room_leave(&b->room);
    subs_ready_clear(&ready);
    after_run(b, &after);
    return err;
}

enum err broker_consumer_joins(struct broker *b, const struct client *client, struct bytes group)
{
    struct member *member = NULL;
    bool is_new = false;
    struct after after;
    after_init(&after);
    room_enter(&b->room);
    enum err err = consumers_find(b, group) ? OK : ERR_NOT_FOUND;
    if (!err)
        err = member_seen(b, client, &b->consumers, group, &member, &is_new, &after, NULL);
    if (!err && is_new)
        crowd_tell(b, member->crowd, &after);
    room_leave(&b->room);
    after_run(b, &after);
    return err;
}

void broker_client_leaves(struct broker *b, struct counted *session, struct bytes client_id,
                          struct bytes producer_group, struct bytes consumer_group)
{
    (void)client_id; /* the connection says who it is */
    struct after after;
    after_init(&after);
    room_enter(&b->room);
    struct member *member = member_find(b, &b->producers, producer_group, session);
    if (member)
        member_remove(b, member, &after);
    member = member_find(b, &b->consumers, consumer_group, session);
    if (member)
        member_remove(b, member, &after);
    room_leave(&b->room);
    after_run(b, &after);
}

void broker_session_gone(struct broker *b, struct counted *session)
{
    struct after after;
    after_init(&after);
    room_enter(&b->room);
    struct visitor *visitor;
    while ((visitor = map_get(&b->visitors, pointer_key(&session)))) /* gone with its last */
        member_remove(b, list_entry(list_first(&visitor->members), struct member, in_session),
                      &after);
    room_leave(&b->room);
    after_run(b, &after);
}

void broker_client_turn(struct broker *b)
{
    struct after after;
    after_init(&after);
    uint64_t now_ns = clock_ns(b->peer_clock);
    room_enter(&b->room);
    for (struct link *k; (k = list_first(&b->members_by_time));) {
        struct member *member = list_entry(k, struct member, by_time);
        if (now_ns - member->seen_ns <= b->set.client_expire_ms * 1000000)
            break;
        member->expired = true;
        member_remove(b, member, &after);
    }
    locks_expire(b);
    room_leave(&b->room);
    after_run(b, &after);
}

static int names_compare(const void *a, const void *b)
{
    return bytes_compare(*(const struct bytes *)a, *(const struct bytes *)b);
}

size_t names_tidy(struct bytes *ids, size_t n)
{
    size_t kept = 0;
    qsort(ids, n, sizeof *ids, names_compare);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || !bytes_equal(ids[i], ids[kept - 1]))
            ids[kept++] = ids[i];
    return kept;
}

enum err broker_consumer_ids(struct broker *b, struct bytes group, struct arena *arena,
                             struct bytes **ids, size_t *n)
{
    enum err err = OK;
    size_t at = 0;
    struct bytes *copies = NULL;

    room_enter(&b->room);
    const struct crowd *crowd = consumers_find(b, group);
    if (!crowd)
        err = ERR_NOT_FOUND;
    else if (!(copies = arena_alloc(arena, crowd->n_members * sizeof *copies)))
        err = ERR_TOO_BIG;
    if (!err) {
        list_each(k, &crowd->members) {
            const struct member *member = list_entry(k, struct member, in_crowd);
            if (!member->id)
                continue; /* there was no memory for it */
            copies[at] = arena_copy(arena, bytes_of(member->id, member->id_len));
            if (!copies[at++].at)
                err = ERR_TOO_BIG;
        }
    }
    room_leave(&b->room);
    if (err)
        return err;
    /* Twice the same would make every client of the group leave a share of the queues to one that
     * does not exist. */
    *n = names_tidy(copies, at);
    *ids = copies;
    return OK;
}

/* ---- crowds ---- */

/* Room: core. */
const struct crowd *consumers_find(struct broker *b, struct bytes group)
{
    room_held(&b->room);
    return map_get(&b->consumers, group);
}

/* Room: core. */
static enum err crowd_need(struct broker *b, struct map *crowds, struct bytes group,
                           struct crowd **out)
{
    room_held(&b->room);
    struct crowd *crowd = map_get(crowds, group);
    if (!crowd) {
        crowd = calloc(1, sizeof *crowd + group.len);
        if (!crowd)
            return ERR_NO_MEMORY;
        crowd->consumes = crowds == &b->consumers;
        list_init(&crowd->members);
        map_init(&crowd->subs, dice_next(&b->dice));
        map_init(&crowd->speakers, dice_next(&b->dice));
        crowd->name_len = group.len;
        memcpy(crowd->name, group.at, group.len);
        enum err err = map_put(crowds, bytes_of(crowd->name, crowd->name_len), crowd);
        if (err) {
            crowd_free(crowd);
            return err;
        }
    }
    *out = crowd;
    return OK;
}

static void crowd_free(struct crowd *crowd)
{
    subs_clear(crowd);
    map_clear(&crowd->speakers);
    free(crowd);
}

/* Room: core. */
static void crowd_forget_if_empty(struct broker *b, struct crowd *crowd)
{
    room_held(&b->room);
    if (crowd->n_members > 0)
        return;
    struct map *crowds = crowd->consumes ? &b->consumers : &b->producers;
    void *removed = map_remove(crowds, bytes_of(crowd->name, crowd->name_len));
    invariant(removed == crowd);
    crowd_free(crowd);
}

/* Room: core. Without memory nobody is told: clients look for themselves every 20 s. */
static void crowd_tell(struct broker *b, const struct crowd *crowd, struct after *after)
{
    room_held(&b->room);
    const struct group *group = group_find(b, bytes_of(crowd->name, crowd->name_len));
    if (!crowd->consumes || crowd->broadcasting || crowd->n_members == 0)
        return;
    if (group && !group->set.notify_changes)
        return;

    struct notice *notice = calloc(1, sizeof *notice + crowd->name_len);
    struct counted **sessions = calloc(crowd->n_members, sizeof(struct counted *));
    if (!notice || !sessions) {
        free(notice);
        free(sessions);
        return;
    }
    notice->sessions = sessions;
    notice->group_len = crowd->name_len;
    memcpy(notice->group, crowd->name, crowd->name_len);
    list_each(k, &crowd->members) {
        struct counted *session = list_entry(k, struct member, in_crowd)->session;
        counted_hold(session);
        sessions[notice->n++] = session;
    }
    notice->next = after->notices;
    after->notices = notice;
}

/* ---- members ---- */

/* Room: core. */
static struct member *member_find(struct broker *b, struct map *crowds, struct bytes group,
                                  const struct counted *session)
{
    room_held(&b->room);
    const struct crowd *crowd = map_get(crowds, group);
    if (!crowd)
        return NULL;
    __typeof__(((struct member *)0)->key) key = {crowd, session};
    return map_get(&b->members, bytes_of(&key, sizeof key));
}

bool consumer_is(struct broker *b, struct bytes group, const struct counted *session)
{
    return session && member_find(b, &b->consumers, group, session);
}

/* Room: core. */
static enum err visitor_need(struct broker *b, const struct counted *session, struct visitor **out)
{
    room_held(&b->room);
    struct visitor *visitor = map_get(&b->visitors, pointer_key(&session));
    if (!visitor) {
        visitor = calloc(1, sizeof *visitor);
        if (!visitor)
            return ERR_NO_MEMORY;
        visitor->session = session;
        list_init(&visitor->members);
        enum err err = map_put(&b->visitors, pointer_key(&visitor->session), visitor);
        if (err) {
            free(visitor);
            return err;
        }
    }
    *out = visitor;
    return OK;
}

/* Room: core. */
static void visitor_forget_if_empty(struct broker *b, struct visitor *visitor)
{
    room_held(&b->room);
    if (!list_empty(&visitor->members))
        return;
    (void)map_remove(&b->visitors, pointer_key(&visitor->session));
    free(visitor);
}

/* Room: core. Allocates nothing but the member itself, whose lists are still empty. */
static enum err member_put(struct broker *b, struct crowd *crowd, struct visitor *visitor,
                           struct counted *session, struct member **out)
{
    room_held(&b->room);
    struct member *member = calloc(1, sizeof *member);
    if (!member)
        return ERR_NO_MEMORY;
    member->key.crowd = member->crowd = crowd;
    member->key.session = member->session = session;
    member->visitor = visitor;
    enum err err = map_put(&b->members, bytes_of(&member->key, sizeof member->key), member);
    if (err) {
        free(member);
        return err;
    }
    counted_hold(session);
    list_add_tail(&crowd->members, &member->in_crowd);
    crowd->n_members++;
    list_add_tail(&visitor->members, &member->in_session);
    *out = member;
    return OK;
}

/* Room: core. */
static enum err member_add(struct broker *b, const struct client *client, struct map *crowds,
                           struct bytes group, struct member **out, struct fault *why)
{
    room_held(&b->room);
    if (b->members.n >= b->set.max_clients)
        return fault_set(
            why, ERR_BUSY,
            "group [%.*s] takes no more clients: the limit of %u (maxClients) is reached",
            BRIEF(group), b->set.max_clients);
    struct crowd *crowd;
    enum err err = crowd_need(b, crowds, group, &crowd);
    if (err)
        return err;
    struct visitor *visitor;
    err = visitor_need(b, client->session, &visitor);
    if (!err) {
        err = member_put(b, crowd, visitor, client->session, out);
        visitor_forget_if_empty(b, visitor);
    }
    crowd_forget_if_empty(b, crowd);
    return err;
}

static struct bytes member_id(const struct member *member)
{
    return bytes_of(member->id, member->id ? member->id_len : 0);
}

/* Room: core. */
static enum err caller_put(struct broker *b, struct member *member)
{
    room_held(&b->room);
    if (map_get(&b->callers, member_id(member)) == member)
        return OK;
    (void)map_remove(&b->callers, member_id(member)); /* its key is another member's text */
    return map_put(&b->callers, member_id(member), member);
}

/* Room: core. It speaks no more under its present id. */
static void member_hush(struct broker *b, struct member *member)
{
    room_held(&b->room);
    struct map *maps[] = {&member->crowd->speakers, &b->callers};
    for (size_t i = 0; i < 2; i++)
        if (map_get(maps[i], member_id(member)) == member)
            (void)map_remove(maps[i], member_id(member));
}

/* Room: core. The same connection may come back under another client id. */
static enum err member_rename(struct broker *b, struct member *member, struct bytes id,
                              bool *renamed)
{
    *renamed = !member->id || !bytes_equal(member_id(member), id);
    if (!*renamed)
        return OK;
    member_hush(b, member);
    char *copy = malloc(id.len + 1);
    if (!copy)
        return ERR_NO_MEMORY;
    if (id.len)
        memcpy(copy, id.at, id.len);
    copy[id.len] = 0;
    free(member->id);
    member->id = copy;
    member->id_len = id.len;
    return OK;
}

/* Room: core. The member has just spoken, as before or for the first time under this id. If another
 * has spoken under it since, both are alive. */
static void member_speaks(struct broker *b, struct member *member, bool as_before,
                          struct after *after)
{
    room_held(&b->room);
    struct bytes id = member_id(member);
    struct map *speakers = &member->crowd->speakers;
    struct member *last = map_get(speakers, id);
    if (last == member || id.len == 0 || map_put(speakers, id, member))
        return; /* without memory there is no warning */
    bool told = member->warned_ns && member->seen_ns - member->warned_ns < TELL_AGAIN_NS;
    if (!last || !as_before || told)
        return;
    member->warned_ns = last->warned_ns = member->seen_ns;
    char here[ADDR_TEXT_MAX], there[ADDR_TEXT_MAX];
    addr_format(&member->addr, here);
    addr_format(&last->addr, there);
    const struct crowd *crowd = member->crowd;
    struct bytes group = bytes_of(crowd->name, crowd->name_len);
    after_warn(
        after,
        "two live %s of group [%.*s] have the same client id [%.*s]: %s and %s; %s; give each an "
        "instance name of its own",
        crowd->consumes ? "consumers" : "producers", BRIEF(group), BRIEF(id), here, there,
        crowd->consumes ? "they read the same queues, and some queues may have no reader"
                        : "a question to one of them may reach the other");
}

/* Room: core. */
static enum err member_seen(struct broker *b, const struct client *client, struct map *crowds,
                            struct bytes group, struct member **out, bool *is_new,
                            struct after *after, struct fault *why)
{
    room_held(&b->room);
    if (client->id.len > NAME_MAX_ANY)
        return fault_set(why, ERR_INVALID, "a client id of %zu bytes is too long", client->id.len);
    struct member *member = member_find(b, crowds, group, client->session);
    bool fresh = !member;
    enum err err = fresh ? member_add(b, client, crowds, group, &member, why) : OK;
    if (err)
        return err;
    invariant(member);
    member->seen_ns = clock_ns(b->peer_clock);
    list_remove(&member->by_time);
    list_add_tail(&b->members_by_time, &member->by_time);
    member->language = client->language;
    member->version = client->version;
    member->addr = client->addr;
    bool renamed;
    err = member_rename(b, member, client->id, &renamed);
    if (err)
        return err; /* it stays under its old name, a new one without */
    member_speaks(b, member, !fresh && !renamed, after);
    *out = member;
    *is_new = fresh;
    return OK;
}

/* Room: core. The others of the group are told; memory and session go when the key is back. */
static void member_remove(struct broker *b, struct member *member, struct after *after)
{
    room_held(&b->room);
    struct crowd *crowd = member->crowd;
    void *removed = map_remove(&b->members, bytes_of(&member->key, sizeof member->key));
    invariant(removed == member);
    member_hush(b, member);
    list_remove(&member->in_crowd);
    crowd->n_members--;
    list_remove(&member->in_session);
    list_remove(&member->by_time);
    list_add_tail(&after->gone, &member->by_time);
    visitor_forget_if_empty(b, member->visitor);
    crowd_tell(b, crowd, after);
    crowd_forget_if_empty(b, crowd);
}

void clients_clear(struct broker *b)
{
    struct after after;
    after_init(&after);
    list_append_all(&after.gone, &b->members_by_time);
    after_run(b, &after);
    struct map *crowds[] = {&b->consumers, &b->producers};
    for (size_t c = 0; c < 2; c++) {
        struct crowd *crowd;
        for (size_t i = 0; (crowd = map_next(crowds[c], &i));)
            crowd_free(crowd);
        map_clear(crowds[c]);
    }
    struct visitor *visitor;
    for (size_t i = 0; (visitor = map_next(&b->visitors, &i));)
        free(visitor);
    map_clear(&b->callers);
    map_clear(&b->visitors);
    map_clear(&b->members);
}
