#include "daemon/limits.h"

#include <sys/resource.h>

uint64_t descriptors_raise(uint64_t connections)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return connections + DESCRIPTORS_KEPT; /* nobody knows, so nothing is held back */
    uint64_t need = connections + DESCRIPTORS_KEPT - FILES_LEAST + FILES_MOST;
    uint64_t had = limit.rlim_cur;
    if (had >= need)
        return had;
    limit.rlim_cur = limit.rlim_max < need ? limit.rlim_max : need;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : had;
}

unsigned connections_allowed(uint64_t descriptors, unsigned wanted)
{
    uint64_t spare = descriptors > DESCRIPTORS_KEPT ? descriptors - DESCRIPTORS_KEPT : 0;
    uint64_t quarter = descriptors / 4; /* where there are too few for both, both go short */
    uint64_t allowed = spare > quarter ? spare : quarter;
    if (allowed >= wanted)
        return wanted;
    return allowed ? (unsigned)allowed : 1;
}

unsigned files_allowed(uint64_t descriptors, unsigned connections)
{
    uint64_t others = (uint64_t)connections + DESCRIPTORS_KEPT - FILES_LEAST;
    uint64_t spare = descriptors > others ? descriptors - others : 0;
    if (spare < FILES_LEAST)
        return FILES_LEAST;
    return spare < FILES_MOST ? (unsigned)spare : FILES_MOST;
}
