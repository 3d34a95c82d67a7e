/* report.c - names for what a result holds. */
#include "load/load_int.h"

const char *load_kind_name(enum load_kind kind)
{
    static const char *const names[] = {"send", "consume", "e2e", "once"};
    return names[kind];
}

const char *load_phase_name(enum load_phase phase)
{
    static const char *const names[] = {"preparing", "filling", "warming up", "measuring",
                                        "waiting for the last"};
    return names[phase];
}

const char *load_times_name(enum load_kind kind, enum load_times times)
{
    static const char *const took[] = {"send", "wait for the next batch", "end to end",
                                       "fresh key"};
    static const char *const other[] = {NULL, NULL, "send", "repeated key"};
    return times == LOAD_TOOK ? took[kind] : times == LOAD_OTHER ? other[kind] : "late";
}
