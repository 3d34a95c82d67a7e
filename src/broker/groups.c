/* groups.c - the settings of subscription groups. */
#include "broker/broker_int.h"

#include <stdlib.h>

#define SYSTEM_PREFIX BYTES("CID_RMQ_SYS_")

/* Room: core. */
struct group *group_find(struct broker *b, struct bytes name)
{
    room_held(&b->room);
    return map_get(&b->groups, name);
}

/* Room: core. Adds or replaces, without asking for the limit. */
enum err group_put(struct broker *b, const struct group_settings *set, struct group **out)
{
    room_held(&b->room);
    size_t texts = set->name.len + set->attributes.len + set->retry_policy.len;
    struct group *group = calloc(1, sizeof *group + texts);
    if (!group)
        return ERR_NO_MEMORY;
    group->set = *set;
    struct wr w = wr_over(group->text, texts);
    struct bytes *kept[] = {&group->set.name, &group->set.attributes, &group->set.retry_policy};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        struct bytes text = *kept[i];
        *kept[i] = bytes_of(w.at, text.len);
        wr_bytes_of(&w, text);
    }

    struct group *old = map_remove(&b->groups, set->name);
    enum err err = map_put(&b->groups, group->set.name, group);
    free(old);
    if (err) {
        free(group);
        return err;
    }
    *out = group;
    return OK;
}

/* Room: core. Groups of the system are made in any case, as
 * SubscriptionGroupManager.findSubscriptionGroupConfig does. */
enum err group_need(struct broker *b, struct bytes name, struct group **out, struct fault *why)
{
    room_held(&b->room);
    struct group *group = group_find(b, name);
    if (group) {
        *out = group;
        return OK;
    }
    enum err err = group_name_check(name, why);
    if (err)
        return ERR_INVALID;
    if (!b->set.auto_groups && !bytes_start(name, SYSTEM_PREFIX))
        return fault_set(why, ERR_UNKNOWN_GROUP,
                         "subscription group [%.*s] does not exist, and automatic creation is off "
                         "(autoCreateSubscriptionGroup)",
                         BRIEF(name));
    if (b->groups.n >= b->set.max_groups)
        return fault_set(
            why, ERR_BUSY,
            "group [%.*s] cannot be created: the limit of %u groups (maxGroups) is reached",
            BRIEF(name), b->set.max_groups);
    struct group_settings set = group_settings_default(name);
    err = group_put(b, &set, out);
    if (!err)
        table_changed(b, TABLE_GROUPS);
    return err;
}

/* Room: core. */
enum err groups_add_system(struct broker *b)
{
    room_held(&b->room);
    static const char *const names[] = {
        "TOOLS_CONSUMER",  "FILTERSRV_CONSUMER",    "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",  "CID_RMQ_SYS_TRANS",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct group_settings set = group_settings_default(bytes_str(names[i]));
        struct group *made;
        if (group_find(b, set.name))
            continue;
        enum err err = group_put(b, &set, &made);
        if (err)
            return err;
        b->tables[TABLE_GROUPS].changes++;
    }
    return OK;
}
