/* check_text.c - what a check found, in words. */
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>

void check_finding_text(const struct check_finding *f, char out[CHECK_TEXT_MAX])
{
    const char *grade = f->grade == CHECK_DAMAGE ? "damage" : "note";
    char at[32] = "";
    if (f->at >= 0)
        (void)snprintf(at, sizeof at, " at %" PRId64, f->at);
    (void)snprintf(out, CHECK_TEXT_MAX, "%s: %s%s: %s", grade, f->file, at, f->text);
}

void check_summary_text(const struct check_summary *s, char out[CHECK_TEXT_MAX])
{
    (void)snprintf(out, CHECK_TEXT_MAX,
                   "%s: %" PRIu64 " records, %" PRIu64 " bytes, in %" PRIu64
                   " log files of %" PRIu64 " (positions %" PRIu64 " to %" PRIu64 "); %" PRIu64
                   " units in %" PRIu64 " queues, files of %" PRIu64 "; %" PRIu64
                   " keys in %" PRIu64 " index files; %" PRIu64 " timers in %" PRIu64
                   " files; damage %" PRIu64 ", notes %" PRIu64 ", last stop %s",
                   s->damages ? "damaged" : "sound", s->records, s->bytes, s->log_files,
                   s->log_file_size, s->log_first, s->log_end, s->units, s->queues,
                   s->queue_file_size, s->index_entries, s->index_files, s->timer_units,
                   s->timer_files, s->damages, s->notes, s->clean ? "clean" : "not clean");
}
