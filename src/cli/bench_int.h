/* bench_int.h - one run of `oncemq bench`: bench.c runs it, bench_show.c shows it. */
#ifndef CLI_BENCH_INT_H
#define CLI_BENCH_INT_H

#include "cli/cli_int.h"
#include "load/load.h"

#define BENCH_TABLE "oncemq_bench" /* first part of the names that a store gets */
#define BENCH_GROUP "oncemq-bench"

struct bench {
    struct cli *cli;
    struct load_options load;
    char topic[LOAD_TOPIC_MAX + 1];
    bool own;    /* its topics are to be deleted */
    int plot_fd; /* of the file beside the one that is wanted; -1: none */
    char plot[4096];
    bool drawn;
};

/* The form of what is printed. */
extern const struct column bench_columns[];

/* While it runs. `user` is the bench. */
void bench_progress(void *user, const struct load_progress *p);
void bench_progress_end(const struct bench *b);

/* The plot's file is made before the run, so that it does not fail behind it. */
int bench_plot_begin(struct bench *b);
void bench_plot_forget(struct bench *b);
int bench_plot_end(struct bench *b, const struct load_result *r);

/* The record. `deleted`: its topics are gone. */
void bench_put(struct bench *b, const struct load_result *r, bool deleted);

#endif
