/* admin_words.c - names and permissions as people write and read them. */
#include "cli/admin_int.h"

#include <stdlib.h>

int admin_topic_check(struct cli *cli, const char *topic)
{
    struct fault why = {0};
    return topic_name_check(bytes_str(topic), &why)
               ? cli_fail(cli, STATUS_USAGE, NULL, "%s", why.text)
               : STATUS_OK;
}

int admin_group_check(struct cli *cli, const char *group)
{
    struct fault why = {0};
    return group_name_check(bytes_str(group), &why)
               ? cli_fail(cli, STATUS_USAGE, NULL, "%s", why.text)
               : STATUS_OK;
}

static int missing(struct cli *cli, const char *what, const char *name,
                   const struct admin_names *all)
{
    const char *near = nearest_word(name, all->names, all->n);
    const char *hint = near ? admin_format(cli, "did you mean %s?", printable(cli, bytes_str(near)))
                            : admin_format(cli, "oncemq %s list shows what there is", what);
    return cli_fail(cli, STATUS_NOT_FOUND, hint, "there is no %s %s", what,
                    printable(cli, bytes_str(name)));
}

int admin_topic_missing(struct cli *cli, const char *topic)
{
    struct admin_names all;
    int status = admin_topics(cli, &all);
    return status ? status : missing(cli, "topic", topic, &all);
}

int admin_group_missing(struct cli *cli, const struct admin_cluster *on, const char *group)
{
    struct admin_group *groups;
    size_t n;
    int status = admin_groups(cli, on, &groups, &n);
    if (admin_none(status))
        return status;
    struct admin_names all = {admin_alloc(cli, n, sizeof *all.names), 0};
    for (size_t i = 0; i < n; i++)
        all.names[all.n++] = groups[i].group;
    admin_names_tidy(&all);
    return missing(cli, "group", group, &all);
}

const char *admin_change_text(bool differs, bool done, bool existed)
{
    if (!differs)
        return "unchanged";
    if (!done)
        return "failed";
    return existed ? "changed" : "created";
}

const char *admin_perm_text(int32_t perm)
{
    static const char *const texts[] = {"-", "w", "r", "rw"};
    return texts[(perm & PERM_READ ? 2 : 0) + (perm & PERM_WRITE ? 1 : 0)];
}

bool admin_perm_value(const char *text, int32_t *perm)
{
    static const struct {
        const char *text;
        int32_t perm;
    } known[] = {{"rw", 6}, {"wr", 6}, {"r", 4}, {"w", 2},    {"-", 0},
                 {"6", 6},  {"4", 4},  {"2", 2}, {"none", 0}, {"0", 0}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].text, text) == 0) {
            *perm = known[i].perm;
            return true;
        }
    return false;
}

const char *admin_list_text(struct cli *cli, const char *const *names, size_t n, size_t max)
{
    const char *text = "";
    for (size_t i = 0; i < n && i < max; i++)
        text = admin_format(cli, "%s%s%s", text, i > 0 ? ", " : "",
                            printable(cli, bytes_str(names[i])));
    return n > max ? admin_format(cli, "%s and %zu more", text, n - max) : text;
}
