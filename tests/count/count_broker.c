/* count_broker.c - the command line of the program that is counted: count.h tells its model. */
#include "count.h"

#define MESSAGES_MAX 1000000

int main(int argc, char **argv)
{
    int64_t messages;
    if (argc != 3 || !bytes_to_i64(bytes_str(argv[2]), &messages) || messages <= 0 ||
        messages > MESSAGES_MAX)
        wrong("usage: count_broker send|send1|sync|pull MESSAGES, at most %d", MESSAGES_MAX);
    const struct {
        const char *name;
        struct sends how;
    } sends[] = {
        {"send", {8, 32, false}}, {"send1", {CONNS_MAX, 1, false}}, {"sync", {8, 32, true}}};
    bool sync = strcmp(argv[1], "sync") == 0, known = strcmp(argv[1], "pull") == 0;
    struct house *house = house_open(sync);
    if (known)
        count_pulls(house, (unsigned)messages);
    for (size_t i = 0; i < sizeof sends / sizeof *sends; i++)
        if (strcmp(argv[1], sends[i].name) == 0) {
            count_sends(house, &sends[i].how, (unsigned)messages);
            known = true;
        }
    house_close(house);
    if (!known)
        wrong("%s: no such path", argv[1]);
    return 0;
}
