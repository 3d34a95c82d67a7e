/* list.h - intrusive doubly linked lists.
 *
 * An object that sits in lists carries its links; a list never owns its members, so removing never
 * frees. A list is a ring with a head; an unlinked link points to itself or is all zero.
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct link {
    struct link *prev, *next;
};

struct list {
    struct link head;
};

static inline void list_init(struct list *l)
{
    l->head.prev = l->head.next = &l->head;
}

static inline bool list_empty(const struct list *l)
{
    return l->head.next == &l->head;
}

static inline bool link_in_list(const struct link *k)
{
    return k->next != NULL && k->next != k;
}

static inline void list_add_tail(struct list *l, struct link *k)
{
    k->prev = l->head.prev;
    k->next = &l->head;
    k->prev->next = k;
    l->head.prev = k;
}

/* Leaves the link unlinked; calling it twice is harmless. */
static inline void list_remove(struct link *k)
{
    if (!link_in_list(k))
        return;
    k->prev->next = k->next;
    k->next->prev = k->prev;
    k->prev = k->next = k;
}

/* `fresh` takes the place of `k`, which is in a list and leaves it. */
static inline void list_replace(struct link *k, struct link *fresh)
{
    fresh->prev = k->prev;
    fresh->next = k->next;
    fresh->prev->next = fresh;
    fresh->next->prev = fresh;
    k->prev = k->next = k;
}

static inline struct link *list_first(const struct list *l)
{
    return list_empty(l) ? NULL : l->head.next;
}

static inline struct link *list_pop(struct list *l)
{
    struct link *k = list_first(l);
    if (k)
        list_remove(k);
    return k;
}

/* Moves all members of `from` to the tail of `to`. */
static inline void list_append_all(struct list *to, struct list *from)
{
    if (list_empty(from))
        return;
    from->head.next->prev = to->head.prev;
    to->head.prev->next = from->head.next;
    from->head.prev->next = &to->head;
    to->head.prev = from->head.prev;
    list_init(from);
}

#define list_entry(link_, type, member) ((type *)(void *)((char *)(link_)-offsetof(type, member)))

/* `k` may be removed from the list inside the loop. */
#define list_each(k, l)                                                                            \
    for (struct link *k = (l)->head.next, *k##_next = k->next; k != &(l)->head;                    \
         k = k##_next, k##_next = k->next)

#endif
