/* bench_broker.c - the load generator's command line; bench_broker.h tells what it does. */
#include "bench_broker.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t number(const char *text)
{
    int64_t value;
    if (!bytes_to_i64(bytes_str(text), &value) || value < 0 || value > 1000000000)
        wrong("%s is not a number that makes sense here", text);
    return (uint64_t)value;
}

static void setting(struct load *load, const char *arg)
{
    const struct {
        const char *name;
        unsigned *to;
        uint64_t least, most;
    } numbers[] = {
        {"conns", &load->conns, 1, UINT16_MAX},   {"flight", &load->flight, 1, UINT16_MAX},
        {"size", &load->size, 8, 65536},          {"rate", &load->rate, 1, UINT32_MAX},
        {"count", &load->count, 1, UINT32_MAX},   {"rounds", &load->rounds, 0, UINT32_MAX},
        {"topics", &load->topics, 1, 1000000},    {"queues", &load->queues, 1, 65536},
        {"groups", &load->groups, 1, 1000000},    {"idle", &load->idle, 0, UINT16_MAX},
        {"batch", &load->batch, 1, 32},           {"warm_ms", &load->warm_ms, 0, UINT32_MAX},
        {"run_ms", &load->run_ms, 1, UINT32_MAX}, {"asked", &load->asked, 0, 1},
        {"binary", &load->binary, 0, 1},
    };
    const char *is = strchr(arg, '=');
    if (!is)
        wrong("%s: expected name=number", arg);
    struct bytes name = bytes_of(arg, (size_t)(is - arg));
    uint64_t value = number(is + 1);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (bytes_equal(name, bytes_str(numbers[i].name)) && value >= numbers[i].least &&
            value <= numbers[i].most) {
            *numbers[i].to = (unsigned)value;
            return;
        }
    wrong("%s: no such setting, or not in its range", arg);
}

static void address(struct load *load, char *text)
{
    char *colon = strrchr(text, ':');
    if (!colon)
        wrong("%s: expected host:port", text);
    *colon = 0;
    load->host = text;
    load->port = (uint16_t)number(colon + 1);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const struct load *load);
    } loads[] = {{"send", load_send}, {"txn", load_txn},   {"poll", load_poll},
                 {"pop", load_pop},   {"idle", load_idle}, {"grow", load_grow}};
    if (argc < 4)
        wrong("usage: bench_broker send|txn|poll|pop|idle|grow HOST:PORT PID [name=number ...]");
    struct load load = {.conns = 8,
                        .flight = 32,
                        .size = 1024,
                        .rate = 1000,
                        .rounds = 3,
                        .count = 50000,
                        .warm_ms = 1000,
                        .run_ms = 3000,
                        .topics = 1,
                        .queues = QUEUES,
                        .groups = 1,
                        .batch = 8};
    address(&load, argv[2]);
    load.pid = (pid_t)number(argv[3]);
    for (int i = 4; i < argc; i++)
        setting(&load, argv[i]);
    load.form = load.binary ? HEAD_BINARY : HEAD_JSON;
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        if (strcmp(argv[1], loads[i].name) == 0)
            return loads[i].run(&load);
    wrong("%s: no such load", argv[1]);
}
