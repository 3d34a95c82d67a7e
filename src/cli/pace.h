/* pace.h - no faster than so many a second. */
#ifndef CLI_PACE_H
#define CLI_PACE_H

#include "cli/cli.h"

struct pace {
    double rate; /* a second; 0: as fast as it goes */
    uint64_t steps;
    int64_t began_ms;
};

/* From an option of the command such as --rate 100/s (N/m, N/h); NULL: none. An enum status. */
int pace_read(struct pace *pace, struct cli *cli, const char *option);
void pace_begin(struct pace *pace);
void pace_step(struct pace *pace);
int64_t pace_due_ms(const struct pace *pace); /* until the next step; 0: now */

#endif
