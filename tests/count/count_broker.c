/* count_broker.c - the command line of the program that is counted: count.h tells its model. */
#include "count.h"

#define MESSAGES_MAX 1000000

int main(int argc, char **argv)
{
    int64_t messages;
    if (argc != 3 || !bytes_to_i64(bytes_str(argv[2]), &messages) || messages <= 0 ||
        messages > MESSAGES_MAX)
        wrong("usage: count_broker send|send1|pull MESSAGES, at most %d", MESSAGES_MAX);
    struct house *house = house_open();
    if (strcmp(argv[1], "pull") == 0)
        count_pulls(house, (unsigned)messages);
    else if (strcmp(argv[1], "send") == 0)
        count_sends(house, 8, 32, (unsigned)messages);
    else if (strcmp(argv[1], "send1") == 0)
        count_sends(house, CONNS_MAX, 1, (unsigned)messages);
    else
        wrong("%s: no such path", argv[1]);
    house_close(house);
    return 0;
}
