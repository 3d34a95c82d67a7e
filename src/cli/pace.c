/* pace.c - steps in time. */
#include "cli/pace.h"

#include <stdlib.h>
#include <string.h>

int pace_read(struct pace *pace, struct cli *cli, const char *option)
{
    const char *text = arg_text(cli, option, NULL);
    *pace = (struct pace){0};
    if (!text)
        return STATUS_OK;
    char *end;
    double n = strtod(text, &end);
    double seconds = strcmp(end, "") == 0 || strcmp(end, "/s") == 0 ? 1
                     : strcmp(end, "/m") == 0                       ? 60
                     : strcmp(end, "/h") == 0                       ? 3600
                                                                    : 0;
    if (end == text || !(n > 0 && n < 1e12) || seconds == 0)
        return cli_fail(cli, STATUS_USAGE, NULL,
                        "--%s %s is not valid: it must be messages a second, a minute or an hour: "
                        "100/s, 30/m",
                        option, printable(cli, bytes_str(text)));
    pace->rate = n / seconds;
    return STATUS_OK;
}

void pace_begin(struct pace *pace)
{
    pace->began_ms = now_ms();
    pace->steps = 0;
}

void pace_step(struct pace *pace)
{
    pace->steps++;
}

int64_t pace_due_ms(const struct pace *pace)
{
    if (pace->rate == 0)
        return 0;
    int64_t due = pace->began_ms + (int64_t)((double)pace->steps * 1000 / pace->rate);
    int64_t now = now_ms();
    return due > now ? due - now : 0;
}
