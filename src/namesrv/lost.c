/* lost.c - topics that had a broker until a while ago, for the answer to whoever still asks.
 *
 * "No route" has many causes, and a user looks for them in the wrong place first. That a broker was
 * lost, which and when, is what helps; so it is remembered with each topic that went with it, for
 * the latest of them. Nothing depends on it: without memory there is merely less to say.
 */
#include "namesrv/names_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LOST_MAX 4096

struct lost {
    struct link by_age;
    uint64_t at_ns;
    enum loss how;
    struct bytes topic, broker; /* kept behind the struct */
};

void lost_init(struct names *names)
{
    map_init(&names->lost, names->options.seed);
    list_init(&names->lost_by_age);
}

static void lost_drop(struct names *names, struct lost *lost)
{
    (void)map_remove(&names->lost, lost->topic);
    list_remove(&lost->by_age);
    free(lost);
}

void lost_forget(struct names *names, struct bytes topic)
{
    struct lost *known = map_get(&names->lost, topic);
    if (known)
        lost_drop(names, known);
}

void lost_add(struct names *names, struct bytes topic, const struct team *team, enum loss how)
{
    lost_forget(names, topic);
    if (names->lost.n >= LOST_MAX)
        lost_drop(names, list_entry(list_first(&names->lost_by_age), struct lost, by_age));
    struct lost *lost = calloc(1, sizeof *lost + topic.len + team->name.len);
    if (!lost)
        return;
    uint8_t *behind = (uint8_t *)(lost + 1);
    lost->topic = put_behind(&behind, topic);
    lost->broker = put_behind(&behind, team->name);
    lost->at_ns = clock_ns(names->options.clock);
    lost->how = how;
    if (map_put(&names->lost, lost->topic, lost)) {
        free(lost);
        return;
    }
    list_add_tail(&names->lost_by_age, &lost->by_age);
}

bool lost_tell(const struct names *names, struct bytes topic, char *out, size_t size)
{
    static const char *const words[] = {
        [LOSS_LEFT] = "unregistered",
        [LOSS_CLOSED] = "lost its connection to this name server",
        [LOSS_SILENT] = "expired, for want of a sign of life,",
    };
    const struct lost *lost = map_get(&names->lost, topic);
    if (!lost)
        return false;
    uint64_t ago_s = (clock_ns(names->options.clock) - lost->at_ns) / 1000000000;
    (void)snprintf(out, size, "broker %.*s had it and %s %" PRIu64 " s ago", SHOWN(lost->broker),
                   words[lost->how], ago_s);
    return true;
}

void lost_clear(struct names *names)
{
    for (struct link *k; (k = list_first(&names->lost_by_age));)
        lost_drop(names, list_entry(k, struct lost, by_age));
    map_clear(&names->lost);
}
