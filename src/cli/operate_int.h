/* operate_int.h - what operators use: top, doctor, clock. The table of them is in operate.c. */
#ifndef CLI_OPERATE_INT_H
#define CLI_OPERATE_INT_H

#include "cli/admin.h"

/* ---- top.c ---- */

extern const struct column top_columns[];
extern const struct opt top_options[];
int top_run(struct cli *cli);

/* ---- doctor.c ---- */

extern const struct column doctor_columns[];
extern const struct opt doctor_options[];
int doctor_run(struct cli *cli);

/* ---- clock.c ---- */

extern const struct column clock_columns[], clock_advance_columns[];
extern const struct opt clock_options[];
int clock_show(struct cli *cli);
int clock_advance(struct cli *cli);

/* How far the clock that dates a broker's messages is ahead of ours, and how exactly that is known:
 * half of what the question took. An enum omq_code. */
struct clock_lead {
    int64_t ms, exact_ms;
};
int clock_ask(struct cli *cli, const char *broker, struct clock_lead *out, struct omq_error *why);

#endif
