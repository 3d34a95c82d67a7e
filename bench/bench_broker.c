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
    const char *is = strchr(arg, '=');
    if (!is)
        wrong("%s: expected name=number", arg);
    struct bytes name = bytes_of(arg, (size_t)(is - arg));
    uint64_t value = number(is + 1);
    if (bytes_equal(name, BYTES("conns")) && value > 0)
        load->conns = (unsigned)value;
    else if (bytes_equal(name, BYTES("flight")) && value > 0)
        load->flight = (unsigned)value;
    else if (bytes_equal(name, BYTES("size")) && value >= 8 && value <= 65536)
        load->size = (unsigned)value;
    else if (bytes_equal(name, BYTES("rate")) && value > 0)
        load->rate = (unsigned)value;
    else if (bytes_equal(name, BYTES("count")) && value > 0)
        load->count = (unsigned)value;
    else if (bytes_equal(name, BYTES("rounds")))
        load->rounds = (unsigned)value;
    else if (bytes_equal(name, BYTES("warm_ms")))
        load->warm_ms = value;
    else if (bytes_equal(name, BYTES("run_ms")) && value > 0)
        load->run_ms = value;
    else if (bytes_equal(name, BYTES("asked")))
        load->asked = value;
    else if (bytes_equal(name, BYTES("binary")))
        load->form = value ? HEAD_BINARY : HEAD_JSON;
    else
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
    } loads[] = {{"send", load_send},
                 {"txn", load_txn},
                 {"poll", load_poll},
                 {"pop", load_pop},
                 {"idle", load_idle}};
    if (argc < 4)
        wrong("usage: bench_broker send|txn|poll|pop|idle HOST:PORT PID [name=number ...]");
    struct load load = {.conns = 8,
                        .flight = 32,
                        .size = 1024,
                        .rate = 1000,
                        .rounds = 3,
                        .count = 50000,
                        .warm_ms = 1000,
                        .run_ms = 3000};
    address(&load, argv[2]);
    load.pid = (pid_t)number(argv[3]);
    for (int i = 4; i < argc; i++)
        setting(&load, argv[i]);
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        if (strcmp(argv[1], loads[i].name) == 0)
            return loads[i].run(&load);
    wrong("%s: no such load", argv[1]);
}
