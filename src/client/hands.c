/* hands.c - threads that call the application.
 *
 * Room: the list of tasks (leaf). A thread that is done with its task takes the next one without
 * being woken. */
#include "client/client_int.h"

#include <signal.h>
#include <stdlib.h>

struct hands {
    struct room room;
    struct list tasks;
    const struct omq_client *client;
    bool closing, whole;
    bool left; /* closed, with threads that are still in a call: the last one frees it */
    unsigned n, alive, idle;
    size_t waiting; /* tasks */
    pthread_t threads[];
};

static _Thread_local struct hands *hand_of; /* those that this thread belongs to */

static void hands_free(struct hands *hands)
{
    room_clear(&hands->room);
    free(hands);
}

static void *hand_run(void *arg)
{
    struct hands *hands = arg;
    hand_of = hands;
    room_enter(&hands->room);
    for (;;) {
        if (list_empty(&hands->tasks) && hands->closing)
            break;
        if (list_empty(&hands->tasks)) {
            hands->idle++;
            room_wait(&hands->room, -1);
            hands->idle--;
            continue;
        }
        struct list mine; /* if it may, all there is */
        list_init(&mine);
        if (hands->whole)
            list_append_all(&mine, &hands->tasks);
        else
            list_add_tail(&mine, list_pop(&hands->tasks));
        hands->waiting = hands->whole ? 0 : hands->waiting - 1;
        room_leave(&hands->room);
        struct link *next;
        while ((next = list_pop(&mine))) {
            struct task *task = list_entry(next, struct task, link);
            task->run(task);
        }
        room_enter(&hands->room);
    }
    bool last = --hands->alive == 0 && hands->left;
    room_tell(&hands->room);
    room_leave(&hands->room);
    if (last)
        hands_free(hands);
    return NULL;
}

enum err thread_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(out, NULL, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? ERR_NO_MEMORY : OK;
}

enum err hands_open(const struct omq_client *client, unsigned threads, bool whole,
                    struct hands **out)
{
    struct hands *hands = calloc(1, sizeof *hands + threads * sizeof hands->threads[0]);
    if (!hands)
        return ERR_NO_MEMORY;
    room_init(&hands->room, "hands", ROOM_LEAF);
    list_init(&hands->tasks);
    hands->client = client;
    hands->whole = whole;
    hands->alive = threads;
    while (hands->n < threads && thread_start(&hands->threads[hands->n], hand_run, hands) == OK)
        hands->n++;
    if (hands->n < threads) {
        room_enter(&hands->room);
        hands->alive -= threads - hands->n;
        room_leave(&hands->room);
        hands_close(hands);
        return ERR_NO_MEMORY;
    }
    *out = hands;
    return OK;
}

void hands_give(struct hands *hands, struct task *task)
{
    room_enter(&hands->room);
    list_add_tail(&hands->tasks, &task->link);
    hands->waiting++;
    if (hands->idle > 0)
        room_tell_one(&hands->room);
    room_leave(&hands->room);
}

void hands_give_all(struct hands *hands, struct list *tasks)
{
    room_enter(&hands->room);
    list_each(k, tasks)
        hands->waiting++;
    list_append_all(&hands->tasks, tasks);
    if (hands->idle > 0)
        room_tell(&hands->room);
    room_leave(&hands->room);
}

bool hands_of(const struct omq_client *client)
{
    return hand_of && hand_of->client == client;
}

void hands_recall(struct hands *hands, bool (*wanted)(struct task *task, void *user), void *user,
                  struct list *out)
{
    room_enter(&hands->room);
    list_each(k, &hands->tasks) {
        if (!wanted(list_entry(k, struct task, link), user))
            continue;
        list_remove(k);
        list_add_tail(out, k);
        hands->waiting--;
    }
    room_leave(&hands->room);
}

void hands_more(bool (*wanted)(struct task *task, void *user), void *user, size_t most,
                struct list *out)
{
    struct hands *hands = hand_of;
    room_enter(&hands->room);
    size_t share = hands->waiting / (hands->idle + 1);
    size_t left = share < most ? share : most;
    while (left-- > 0) {
        struct link *k = list_first(&hands->tasks);
        if (!wanted(list_entry(k, struct task, link), user))
            break;
        list_remove(k);
        list_add_tail(out, k);
        hands->waiting--;
    }
    room_leave(&hands->room);
}

void hands_help(struct task *task)
{
    hands_give(hand_of, task);
}

struct flush {
    struct task task;
    struct waiter waiter;
};

static void flush_run(struct task *task)
{
    waiter_tell(&list_entry(task, struct flush, task)->waiter);
}

void hands_flush(struct hands *hands)
{
    struct flush flush = {.task.run = flush_run};
    waiter_init(&flush.waiter);
    hands_give(hands, &flush.task);
    waiter_wait(&flush.waiter);
}

void hands_close(struct hands *hands)
{
    hands_leave(hands, 0);
}

void hands_leave(struct hands *hands, unsigned stuck)
{
    if (!hands)
        return;
    room_enter(&hands->room);
    hands->closing = true;
    room_tell(&hands->room);
    while (hands->alive > stuck)
        room_wait(&hands->room, -1);
    bool all = hands->alive == 0;
    unsigned n = hands->n;
    pthread_t *threads = all ? hands->threads : NULL;
    if (!all) { /* once it is left, a thread that ends may free it */
        for (unsigned i = 0; i < n; i++)
            (void)pthread_detach(hands->threads[i]);
        hands->left = true;
    }
    room_leave(&hands->room);
    for (unsigned i = 0; threads && i < n; i++)
        (void)pthread_join(threads[i], NULL);
    if (threads)
        hands_free(hands);
}
