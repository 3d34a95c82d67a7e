/* Any text as a configuration file: refused with a sentence, or accepted and then printed and read
 * back as the same settings. */
#include "base/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct settings {
    int64_t port;
    bool create;
    char name[CONF_TEXT_MAX];
    int role;
};

static const char *const roles[] = {"ASYNC_MASTER", "SYNC_MASTER", "SLAVE", NULL};

static const struct conf_option options[] = {
    {.key = "listenPort",
     .type = CONF_INT,
     .offset = offsetof(struct settings, port),
     .initial = "10911",
     .min = 0,
     .max = 65535,
     .help = "a number"},
    {.key = "autoCreateTopicEnable",
     .type = CONF_BOOL,
     .offset = offsetof(struct settings, create),
     .initial = "true",
     .help = "yes or no"},
    {.key = "brokerName",
     .type = CONF_TEXT,
     .offset = offsetof(struct settings, name),
     .initial = "broker-a",
     .help = "a text"},
    {.key = "brokerRole",
     .type = CONF_CHOICE,
     .offset = offsetof(struct settings, role),
     .initial = "ASYNC_MASTER",
     .choices = roles,
     .help = "a choice"},
};
static const struct conf_table table = {options, sizeof options / sizeof options[0]};

static void tell(void *user, const char *where, const char *key, const char *nearest)
{
    (void)user;
    invariant(where[0] != '\0');
    invariant(key[0] != '\0');
    invariant(nearest == NULL || conf_find(&table, nearest) != NULL);
}

static void count(void *user, const char *key, const char *value)
{
    invariant(key[0] != '\0');
    invariant(strlen(value) < CONF_TEXT_MAX);
    ++*(size_t *)user;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct conf_unknown unknown = {tell, NULL};
    struct settings first = {0}, second = {0};
    struct fault why = {0};
    size_t entries = 0, lines = 1;
    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n' || data[i] == '\r';
    enum err each = conf_each("fuzz.conf", bytes_of(data, size), count, &entries, NULL);
    invariant(entries <= lines);
    invariant(conf_defaults(&table, &first, NULL) == OK);

    enum err err = conf_parse(&table, &first, "fuzz.conf", bytes_of(data, size), &unknown, &why);
    if (err) {
        invariant(err == ERR_INVALID);
        invariant(strncmp(why.text, "fuzz.conf:", 10) == 0);
        return 0;
    }
    invariant(each == OK);
    struct buf out = buf_upto(1 << 16);
    conf_print(&table, &first, &out);
    invariant(out.err == OK);
    invariant(conf_parse(&table, &second, "again", buf_bytes(&out), &unknown, NULL) == OK);
    invariant(first.port == second.port);
    invariant(first.create == second.create);
    invariant(first.role == second.role);
    invariant(strcmp(first.name, second.name) == 0);
    buf_clear(&out);
    return 0;
}
