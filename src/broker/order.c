/* order.c - queue locks: who of a group may consume a queue in order.
 *
 * A consumer that must see messages in order asks for each queue before it reads it and asks again
 * every 20 s. A lock that was not renewed for lock_life_ms (60 s) is free. Its owner is a client id
 * and not a connection, so a client that comes back on a new connection keeps what it has.
 *
 * Locks live in memory only, as in Apache's RebalanceLockManager: after a restart the first to ask
 * gets the queue, and a consumer that did not get its own again stops reading it.
 *
 * Only queues that exist can be locked, which bounds the table by groups times queues, and
 * LOCKS_MAX bounds it in any case: beyond it a wish is not granted, and its client asks again.
 */
#include "broker/broker_int.h"

#include <stdlib.h>

#define LOCKS_MAX     100000u
#define LOCK_KEY_HEAD sizeof(int32_t)
#define LOCK_KEY_MAX  (LOCK_KEY_HEAD + NAME_MAX_ANY)

/* The locks of one group. Exists while it has one. */
struct lock_group {
    struct map locks; /* queue number and topic → struct lock */
    size_t name_len;
    char name[];
};

struct lock {
    struct link by_time; /* in broker.locks_by_time, longest not renewed first */
    struct lock_group *group;
    uint64_t seen_ns;
    size_t key_len, owner_len;
    uint8_t text[]; /* the key, the owner */
};

static enum err names_check(struct bytes group, struct bytes client_id, size_t n,
                            struct fault *why);
static bool lock_wish(struct broker *b, struct bytes group, struct bytes client_id,
                      const struct lock_wish *wish);
static struct lock *lock_find(struct broker *b, struct bytes group, const struct lock_wish *wish);
static bool lock_is_of(const struct lock *lock, struct bytes client_id);
static void lock_free(struct broker *b, struct lock *lock);

enum err broker_lock(struct broker *b, struct bytes group, struct bytes client_id,
                     struct lock_wish *wishes, size_t n, struct fault *why)
{
    enum err err = names_check(group, client_id, n, why);
    if (err)
        return err;
    room_enter(&b->room);
    locks_expire(b);
    for (size_t i = 0; i < n; i++)
        wishes[i].granted = lock_wish(b, group, client_id, &wishes[i]);
    room_leave(&b->room);
    return OK;
}

enum err broker_unlock(struct broker *b, struct bytes group, struct bytes client_id,
                       const struct lock_wish *wishes, size_t n, struct fault *why)
{
    enum err err = names_check(group, client_id, n, why);
    if (err)
        return err;
    room_enter(&b->room);
    for (size_t i = 0; i < n; i++) {
        struct lock *lock = lock_find(b, group, &wishes[i]);
        if (lock && lock_is_of(lock, client_id))
            lock_free(b, lock);
    }
    room_leave(&b->room);
    return OK;
}

static enum err names_check(struct bytes group, struct bytes client_id, size_t n, struct fault *why)
{
    if (group_name_check(group, why))
        return ERR_INVALID; /* the sentence tells */
    if (client_id.len == 0 || client_id.len > NAME_MAX_ANY)
        return fault_set(why, ERR_INVALID, "a client id of %zu bytes cannot own a lock",
                         client_id.len);
    if (n > LOCK_BATCH_MAX)
        return fault_set(why, ERR_INVALID, "%zu queues in one request, more than %d", n,
                         LOCK_BATCH_MAX);
    return OK;
}

bool broker_is_ordered(struct broker *b, struct bytes group)
{
    room_enter(&b->room);
    bool any = locks_any(b, group);
    room_leave(&b->room);
    return any;
}

/* ---- room: core ---- */

void locks_expire(struct broker *b)
{
    room_held(&b->room);
    uint64_t now_ns = clock_ns(b->peer_clock);
    for (struct link *k; (k = list_first(&b->locks_by_time));) {
        struct lock *lock = list_entry(k, struct lock, by_time);
        if (now_ns - lock->seen_ns <= b->set.lock_life_ms * 1000000)
            break;
        lock_free(b, lock);
    }
}

bool locks_any(struct broker *b, struct bytes group)
{
    room_held(&b->room);
    locks_expire(b);
    return map_get(&b->lock_groups, group) != NULL;
}

void locks_clear(struct broker *b)
{
    for (struct link *k; (k = list_pop(&b->locks_by_time));)
        free(list_entry(k, struct lock, by_time));
    struct lock_group *group;
    for (size_t i = 0; (group = map_next(&b->lock_groups, &i));) {
        map_clear(&group->locks);
        free(group);
    }
    map_clear(&b->lock_groups);
}

static struct bytes key_make(uint8_t text[LOCK_KEY_MAX], const struct lock_wish *wish)
{
    if (wish->topic.len == 0 || wish->topic.len > NAME_MAX_ANY)
        return (struct bytes){0};
    memcpy(text, &wish->queue_id, LOCK_KEY_HEAD);
    memcpy(text + LOCK_KEY_HEAD, wish->topic.at, wish->topic.len);
    return bytes_of(text, LOCK_KEY_HEAD + wish->topic.len);
}

static struct lock *lock_find(struct broker *b, struct bytes name, const struct lock_wish *wish)
{
    room_held(&b->room);
    uint8_t text[LOCK_KEY_MAX];
    struct bytes key = key_make(text, wish);
    const struct lock_group *group = map_get(&b->lock_groups, name);
    return group && key.len ? map_get(&group->locks, key) : NULL;
}

static bool lock_is_of(const struct lock *lock, struct bytes client_id)
{
    return bytes_equal(bytes_of(lock->text + lock->key_len, lock->owner_len), client_id);
}

static enum err group_of_locks(struct broker *b, struct bytes name, struct lock_group **out)
{
    struct lock_group *group = map_get(&b->lock_groups, name);
    if (!group) {
        group = calloc(1, sizeof *group + name.len);
        if (!group)
            return ERR_NO_MEMORY;
        map_init(&group->locks, dice_next(&b->dice));
        group->name_len = name.len;
        memcpy(group->name, name.at, name.len);
        enum err err = map_put(&b->lock_groups, bytes_of(group->name, name.len), group);
        if (err) {
            free(group);
            return err;
        }
    }
    *out = group;
    return OK;
}

static void group_forget_if_empty(struct broker *b, struct lock_group *group)
{
    if (group->locks.n > 0)
        return;
    (void)map_remove(&b->lock_groups, bytes_of(group->name, group->name_len));
    map_clear(&group->locks);
    free(group);
}

static void lock_free(struct broker *b, struct lock *lock)
{
    room_held(&b->room);
    void *removed = map_remove(&lock->group->locks, bytes_of(lock->text, lock->key_len));
    invariant(removed == lock);
    b->n_locks--;
    list_remove(&lock->by_time);
    group_forget_if_empty(b, lock->group);
    free(lock);
}

static enum err lock_add(struct broker *b, struct lock_group *group, struct bytes key,
                         struct bytes client_id)
{
    struct lock *lock = calloc(1, sizeof *lock + key.len + client_id.len);
    if (!lock)
        return ERR_NO_MEMORY;
    lock->group = group;
    lock->seen_ns = clock_ns(b->peer_clock);
    lock->key_len = key.len;
    lock->owner_len = client_id.len;
    memcpy(lock->text, key.at, key.len);
    memcpy(lock->text + key.len, client_id.at, client_id.len);
    enum err err = map_put(&group->locks, bytes_of(lock->text, key.len), lock);
    if (err) {
        free(lock);
        return err;
    }
    list_add_tail(&b->locks_by_time, &lock->by_time);
    b->n_locks++;
    return OK;
}

static bool queue_exists(struct broker *b, const struct lock_wish *wish)
{
    const struct topic *topic = topic_find(b, wish->topic);
    return topic && wish->queue_id >= 0 && wish->queue_id < topic_width(topic);
}

/* Expired ones are gone by now. */
static bool lock_wish(struct broker *b, struct bytes name, struct bytes client_id,
                      const struct lock_wish *wish)
{
    room_held(&b->room);
    struct lock *lock = lock_find(b, name, wish);
    if (lock && !lock_is_of(lock, client_id))
        return false;
    if (lock) {
        lock->seen_ns = clock_ns(b->peer_clock);
        list_remove(&lock->by_time);
        list_add_tail(&b->locks_by_time, &lock->by_time);
        return true;
    }
    uint8_t text[LOCK_KEY_MAX];
    struct lock_group *group = NULL;
    if (!queue_exists(b, wish) || b->n_locks >= LOCKS_MAX || group_of_locks(b, name, &group))
        return false;
    enum err err = lock_add(b, group, key_make(text, wish), client_id);
    group_forget_if_empty(b, group);
    return err == OK;
}
