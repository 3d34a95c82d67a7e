/* doctor_here.c - the machine that the doctor runs on, and so perhaps the clients. */
#include "cli/doctor_int.h"

#include <sys/resource.h>

/* What a program has open beside its connections: loops, bells, logs, a store, pipes to workers. */
#define FILES_BESIDE 64

void doctor_here(struct doctor *d)
{
    struct rlimit files;
    check_begin(d, "here.files");
    if (getrlimit(RLIMIT_NOFILE, &files))
        return;
    unsigned long long allowed = files.rlim_cur, need = d->servers.n + d->n_nodes + FILES_BESIDE;
    if (allowed < need)
        wrong(d, HEALTH_WARN, NULL,
              "ulimit -n 1024 before a program is started, or LimitNOFILE= of its service",
              "a program here may have %llu files open; one that talks to all servers (%zu) wants "
              "%llu",
              allowed, d->servers.n + d->n_nodes, need);
    check_end(d,
              "a program here may have enough files open: one that talks to all servers wants %llu",
              need);
}
