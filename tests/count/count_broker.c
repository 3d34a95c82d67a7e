/* count_broker.c - the command line of the program that is counted: count.h tells its model. */
#include "count.h"

#define MESSAGES_MAX 1000000

int main(int argc, char **argv)
{
    int64_t messages;
    if (argc != 3 || !bytes_to_i64(bytes_str(argv[2]), &messages) || messages <= 0 ||
        messages > MESSAGES_MAX)
        wrong("usage: count_broker send|send1|sync|batch|pull|wait MESSAGES, at most %d",
              MESSAGES_MAX);
    const struct {
        const char *name;
        struct sends how;
        void (*count)(struct house *house, unsigned messages); /* NULL: sends */
    } paths[] = {
        {.name = "send", .how = {.conns = 8, .flight = 32}},
        {.name = "send1", .how = {.conns = CONNS_MAX, .flight = 1}},
        {.name = "sync", .how = {.conns = 8, .flight = 32, .sync = true}},
        {.name = "batch", .how = {.conns = 8, .flight = 32, .batch = true}},
        {.name = "pull", .count = count_pulls},
        {.name = "wait", .count = count_waits},
    };
    size_t n = sizeof paths / sizeof *paths, i = 0;
    while (i < n && strcmp(argv[1], paths[i].name) != 0)
        i++;
    if (i == n)
        wrong("%s: no such path", argv[1]);
    struct house *house = house_open(paths[i].how.sync);
    if (paths[i].count)
        paths[i].count(house, (unsigned)messages);
    else
        count_sends(house, &paths[i].how, (unsigned)messages);
    house_close(house);
    return 0;
}
