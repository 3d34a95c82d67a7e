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
    bool closing, alone;
    unsigned n, idle;
    pthread_t threads[];
};

static _Thread_local const struct omq_client *hand_of; /* the client that this thread serves */

static void *hand_run(void *arg)
{
    struct hands *hands = arg;
    hand_of = hands->client;
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
        struct list mine; /* one alone takes all there is */
        list_init(&mine);
        if (hands->alone)
            list_append_all(&mine, &hands->tasks);
        else
            list_add_tail(&mine, list_pop(&hands->tasks));
        room_leave(&hands->room);
        struct link *next;
        while ((next = list_pop(&mine))) {
            struct task *task = list_entry(next, struct task, link);
            task->run(task);
        }
        room_enter(&hands->room);
    }
    room_leave(&hands->room);
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

enum err hands_open(const struct omq_client *client, unsigned threads, struct hands **out)
{
    struct hands *hands = calloc(1, sizeof *hands + threads * sizeof hands->threads[0]);
    if (!hands)
        return ERR_NO_MEMORY;
    room_init(&hands->room, "hands", ROOM_LEAF);
    list_init(&hands->tasks);
    hands->client = client;
    hands->alone = threads == 1;
    for (; hands->n < threads; hands->n++) {
        if (thread_start(&hands->threads[hands->n], hand_run, hands)) {
            hands_close(hands);
            return ERR_NO_MEMORY;
        }
    }
    *out = hands;
    return OK;
}

void hands_give(struct hands *hands, struct task *task)
{
    room_enter(&hands->room);
    list_add_tail(&hands->tasks, &task->link);
    if (hands->idle > 0)
        room_tell_one(&hands->room);
    room_leave(&hands->room);
}

void hands_give_all(struct hands *hands, struct list *tasks)
{
    room_enter(&hands->room);
    list_append_all(&hands->tasks, tasks);
    if (hands->idle > 0)
        room_tell(&hands->room);
    room_leave(&hands->room);
}

bool hands_of(const struct omq_client *client)
{
    return hand_of == client;
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
    if (!hands)
        return;
    room_enter(&hands->room);
    hands->closing = true;
    room_tell(&hands->room);
    room_leave(&hands->room);
    for (unsigned i = 0; i < hands->n; i++)
        (void)pthread_join(hands->threads[i], NULL);
    room_clear(&hands->room);
    free(hands);
}
