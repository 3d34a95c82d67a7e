/* doctor_brokers.c - brokers: whether they answer, their roles, versions, clocks and disks. */
#include "cli/doctor_int.h"
#include "cli/out_int.h"

#include <stdlib.h>

#define CLOCK_WARN_MS 1000
#define CLOCK_BAD_MS  60000
#define DISK_NEAR     0.05 /* below a limit, where it is worth a word */

static void answer_check(struct doctor *d)
{
    check_begin(d, "broker.answer");
    (void)admin_runtime(d->cli, &d->all, true, true, &d->nodes, &d->n_nodes);
    d->up = (struct admin_cluster){admin_alloc(d->cli, d->all.n, sizeof *d->up.brokers), 0};
    for (size_t i = 0; i < d->n_nodes; i++) {
        const struct admin_node *node = &d->nodes[i];
        if (node->n == 0)
            wrong(d, HEALTH_BAD, node->broker->name,
                  "start it; if it runs, see whether this machine reaches that address (brokerIP1 "
                  "is what it announces)",
                  "%s %s does not answer: %s", node->id == 0 ? "the master" : "the slave",
                  node->address, node->why.text);
        else if (strcmp(admin_value(node, "brokerActive", "true"), "true") != 0)
            wrong(d, HEALTH_WARN, node->broker->name, "look at the log of the broker",
                  "%s says that it is not active", node->address);
        if (node->n > 0 && node->address == admin_reader(node->broker))
            d->up.brokers[d->up.n++] = *node->broker;
    }
    check_end(d, "all addresses (%zu) of all brokers (%zu) answer", d->n_nodes, d->all.n);
}

static void role_check(struct doctor *d)
{
    check_begin(d, "broker.role");
    size_t slaves = 0;
    for (size_t i = 0; i < d->all.n; i++) {
        const struct admin_broker *b = &d->all.brokers[i];
        slaves += b->n_addresses - (b->master != NULL);
        if (!b->master)
            wrong(d, HEALTH_BAD, b->name,
                  "start the master (brokerId=0); until then nothing can be sent to this broker",
                  "there is no master");
    }
    for (size_t i = 0; i < d->n_settings; i++) {
        int64_t perm = admin_value_number(&d->settings[i], "brokerPermission", 6);
        if ((perm & 6) != 6)
            wrong(d, HEALTH_WARN, d->settings[i].broker->name,
                  "set brokerPermission=6 when it is to serve again",
                  "brokerPermission is %lld: %s", (long long)perm,
                  perm & 4   ? "nothing can be sent to it"
                  : perm & 2 ? "nothing can be read from it"
                             : "nothing can be sent to it or read from it");
    }
    check_end(d, "all brokers (%zu) have a master%s", d->all.n,
              slaves ? "" : "; there are no slaves");
}

static void version_check(struct doctor *d)
{
    check_begin(d, "broker.version");
    const char *first = NULL, *at = NULL;
    for (size_t i = 0; i < d->n_nodes; i++) {
        const struct admin_node *node = &d->nodes[i];
        const char *version = node->n > 0 ? admin_value(node, "brokerVersionDesc", NULL) : NULL;
        if (!version)
            continue;
        if (!first) {
            first = version;
            at = node->address;
        } else if (strcmp(version, first) != 0)
            wrong(d, HEALTH_WARN, node->broker->name,
                  "bring them to the same version, slaves first; clients see the features of "
                  "whichever broker they meet",
                  "%s is %s, %s is %s", node->address, version, at, first);
    }
    check_end(d, "all brokers are %s", first ? first : "silent about it");
}

/* ---- clocks ---- */

static void lead_text(int64_t ms, char out[40])
{
    char text[32];
    ms = ms > 10000 || ms < -10000 ? (ms + (ms < 0 ? -500 : 500)) / 1000 * 1000 : ms;
    duration_text(ms < 0 ? -ms : ms, text);
    (void)snprintf(out, 40, "%s %s", text, ms < 0 ? "behind" : "ahead of");
}

static enum health clock_health(int64_t ms, int64_t exact_ms)
{
    int64_t off = (ms < 0 ? -ms : ms) - exact_ms;
    return off >= CLOCK_BAD_MS ? HEALTH_BAD : off >= CLOCK_WARN_MS ? HEALTH_WARN : HEALTH_OK;
}

#define CLOCK_ADVICE                                                                               \
    "let both follow the same time (chrony, systemd-timesyncd): delays, retention and --from go "  \
    "by the broker's clock"

static void clock_check(struct doctor *d)
{
    struct clock_lead least = {0}, most = {0};
    const char *slow = NULL, *fast = NULL;
    size_t n = 0;
    check_begin(d, "clock.here");
    for (size_t i = 0; i < d->up.n; i++) {
        const struct admin_broker *b = &d->up.brokers[i];
        struct clock_lead lead;
        struct omq_error why;
        if (clock_ask(d->cli, admin_reader(b), &lead, &why))
            continue;
        char text[40];
        lead_text(lead.ms, text);
        enum health health = clock_health(lead.ms, lead.exact_ms);
        if (health)
            wrong(d, health, b->name, CLOCK_ADVICE, "its clock is %s ours", text);
        if (n == 0 || lead.ms < least.ms)
            least = lead, slow = b->name;
        if (n == 0 || lead.ms > most.ms)
            most = lead, fast = b->name;
        n++;
    }
    check_end(d, "the clocks of all brokers (%zu) are within %lld ms of ours", n,
              (long long)(llabs(least.ms) > llabs(most.ms) ? llabs(least.ms) : llabs(most.ms)));
    if (n < 2)
        return;
    check_begin(d, "clock.brokers");
    char text[40];
    lead_text(most.ms - least.ms, text);
    enum health health = clock_health(most.ms - least.ms, most.exact_ms + least.exact_ms);
    if (health)
        wrong(d, health, fast, CLOCK_ADVICE, "its clock is %s that of %s", text, slow);
    check_end(d, "the clocks of all brokers are within %lld ms of each other",
              (long long)(most.ms - least.ms));
}

/* ---- disks ---- */

static double part_of(const struct admin_node *settings, const char *name, int64_t fallback,
                      int64_t low, int64_t high)
{
    int64_t percent = admin_value_number(settings, name, fallback);
    return (double)(percent < low ? low : percent > high ? high : percent) / 100;
}

/* The limits are Apache's, with the bounds within which both brokers take them. */
static void disk_look(struct doctor *d, const struct admin_node *node,
                      const struct admin_node *settings)
{
    double used = admin_value_real(node, "commitLogDiskRatio", -1);
    double clean = part_of(settings, "diskMaxUsedSpaceRatio", 75, 10, 95),
           force = part_of(settings, "diskSpaceCleanForciblyRatio", 85, 30, 85),
           refuse = part_of(settings, "diskSpaceWarningLevelRatio", 90, 35, 90);
    int64_t hours = admin_value_number(settings, "fileReservedTime", 72);
    const char *name = node->broker->name;
    if (used < 0)
        return;
    if (used >= refuse)
        wrong(d, HEALTH_BAD, name,
              "make space at once: a larger disk, or a smaller fileReservedTime and then mqadmin "
              "deleteExpiredCommitLog",
              "the disk is %.0f %% full: no messages are taken from %.0f %% on", used * 100,
              refuse * 100);
    else if (used >= force)
        wrong(d, HEALTH_BAD, name,
              "make space: messages that nobody has read yet are being lost to the disk",
              "the disk is %.0f %% full: from %.0f %% on the oldest messages are deleted whatever "
              "their age",
              used * 100, force * 100);
    else if (used >= clean)
        wrong(
            d, HEALTH_WARN, name, "make space, or lower fileReservedTime",
            "the disk is %.0f %% full: from %.0f %% on what is older than %lld h is deleted at any "
            "hour",
            used * 100, clean * 100, (long long)hours);
    else if (used >= clean - DISK_NEAR)
        wrong(d, HEALTH_WARN, name, "make space before it is needed, or lower fileReservedTime",
              "the disk is %.0f %% full; at %.0f %% deleting begins outside of its hour",
              used * 100, clean * 100);
}

static void disk_check(struct doctor *d)
{
    check_begin(d, "disk");
    double most = 0;
    for (size_t i = 0; i < d->n_settings; i++)
        for (size_t k = 0; k < d->n_nodes; k++) {
            if (d->nodes[k].n == 0 || strcmp(d->nodes[k].address, d->settings[i].address) != 0)
                continue;
            disk_look(d, &d->nodes[k], &d->settings[i]);
            double used = admin_value_real(&d->nodes[k], "commitLogDiskRatio", 0);
            most = used > most ? used : most;
        }
    check_end(d, "the fullest disk is %.0f %% full; messages are kept for %lld h", most * 100,
              (long long)(d->retention_ms / 3600000));
}

static void settings_take(struct doctor *d)
{
    if (d->up.n == 0 ||
        admin_none(admin_settings(d->cli, &d->up, false, &d->settings, &d->n_settings)))
        d->n_settings = 0;
    for (size_t i = 0; i < d->n_settings; i++) {
        int64_t hours = admin_value_number(&d->settings[i], "fileReservedTime", 72);
        int64_t ms = hours > 0 && hours < 10000000 ? hours * 3600000 : 0;
        if (ms > 0 && (d->retention_ms == 0 || ms < d->retention_ms))
            d->retention_ms = ms;
    }
}

void doctor_brokers(struct doctor *d)
{
    answer_check(d);
    settings_take(d);
    role_check(d);
    if (d->up.n == 0)
        return;
    version_check(d);
    clock_check(d);
    disk_check(d);
}
