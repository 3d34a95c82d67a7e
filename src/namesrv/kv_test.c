/* Settings: the table, the file, and what is left when writing fails. */
#include "base/json.h"
#include "namesrv/names_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static char folder[64];
static struct vfs *disk;

static int open_on_disk(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/names_kv_test.XXXXXX");
    if (!mkdtemp(folder) || vfs_posix_open(folder, &disk, NULL) != OK)
        return -1;
    test_open((struct names_options){.vfs = disk});
    return 0;
}

static int close_on_disk(void **state)
{
    test_teardown(state);
    static const char *const files[] = {KV_PATH, KV_PATH ".bak", KV_PATH ".tmp", "config"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        (void)disk->calls->remove(disk, files[i], NULL);
    disk->calls->dispose(disk);
    return rmdir(folder);
}

/* As after a restart. */
static enum err reopen(void)
{
    names_close(names);
    names = NULL;
    why = (struct fault){0};
    return names_open(&(struct names_options){.clock = &test_clock.clock, .vfs = disk}, &names,
                      &why);
}

static void put(const char *space, const char *key, const char *value)
{
    enum err err = names_kv_put(names, bytes_str(space), bytes_str(key), bytes_str(value), &why);
    if (err)
        print_error("%s\n", why.text);
    assert_int_equal(err, OK);
}

static const char *get(const char *space, const char *key)
{
    static char text[4096];
    struct bytes value = {0};
    arena_reset(&arena);
    enum err err = names_kv_get(names, bytes_str(space), bytes_str(key), &arena, &value);
    if (err == ERR_NOT_FOUND)
        return "?";
    assert_int_equal(err, OK);
    snprintf(text, sizeof text, "%.*s", BYTES_ARG(value));
    return text;
}

#define assert_value(space, key, wanted) assert_string_equal(get(space, key), wanted)

static void write_file(const char *path, const char *content)
{
    assert_int_equal(disk->calls->mkdir(disk, "config", NULL), OK);
    struct vfs_file *f;
    assert_int_equal(disk->calls->open(disk, path, VFS_FRESH, &f, NULL), OK);
    char copy[512];
    snprintf(copy, sizeof copy, "%s", content);
    assert_int_equal(disk->calls->write(f, 0, &(struct iovec){copy, strlen(copy)}, 1, NULL), OK);
    disk->calls->close(f);
}

/* ---- the table ---- */

static void settings_are_put_got_listed_and_deleted(void **state)
{
    (void)state;
    struct kv *list;
    size_t n;
    assert_value("N", "k", "?");
    assert_int_equal(names_kv_list(names, BYTES("N"), &arena, &list, &n), ERR_NOT_FOUND);
    put("N", "k2", "v2");
    put("N", "k1", "v1");
    put("M", "k1", "other");
    put("N", "k1", "");
    assert_value("N", "k1", "");
    assert_value("N", "k2", "v2");
    assert_value("M", "k1", "other");
    assert_value("M", "k2", "?");
    assert_int_equal(names_kv_list(names, BYTES("N"), &arena, &list, &n), OK);
    assert_int_equal(n, 2);
    assert_bytes_equal(list[0].key, BYTES("k1"));
    assert_bytes_equal(list[1].value, BYTES("v2"));

    assert_int_equal(names_kv_delete(names, BYTES("N"), BYTES("k1"), &why), OK);
    assert_int_equal(names_kv_delete(names, BYTES("N"), BYTES("k1"), &why), OK);
    assert_int_equal(names_kv_delete(names, BYTES("X"), BYTES("k1"), &why), OK);
    assert_value("N", "k1", "?");
    assert_int_equal(names_kv_delete(names, BYTES("N"), BYTES("k2"), &why), OK);
    assert_int_equal(names_kv_list(names, BYTES("N"), &arena, &list, &n), OK);
    assert_int_equal(n, 0); /* used once, the namespace stays */
    assert_int_equal(names_kv_list(names, BYTES("X"), &arena, &list, &n), ERR_NOT_FOUND);
}

static void check_refused(struct bytes space, struct bytes key, struct bytes value, enum err wanted,
                          const char *sentence)
{
    why = (struct fault){0};
    assert_int_equal(names_kv_put(names, space, key, value, &why), wanted);
    if (!strstr(why.text, sentence))
        print_error("got \"%s\"\n", why.text);
    assert_non_null(strstr(why.text, sentence));
}

static void refuses_settings_that_are_none(void **state)
{
    (void)state;
    static char text[NAMES_KV_VALUE_MAX + 2];
    memset(text, 'x', sizeof text - 1);
    struct bytes n = BYTES("N"), k = BYTES("k"), v = BYTES("v"), none = {0};
    check_refused(none, k, v, ERR_INVALID, "has no namespace");
    check_refused(n, none, v, ERR_INVALID, "has no key");
    check_refused(n, k, BYTES("\xff"), ERR_INVALID, "value is not UTF-8");
    check_refused(n, BYTES("\xc3"), v, ERR_INVALID, "key is not UTF-8");
    check_refused(bytes_of(text, 256), k, v, ERR_TOO_BIG, "namespace has 256 bytes");
    check_refused(n, bytes_of(text, 513), v, ERR_TOO_BIG, "key has 513 bytes, more than 512");
    struct bytes big = bytes_of(text, NAMES_KV_VALUE_MAX);
    check_refused(n, k, bytes_of(text, big.len + 1), ERR_TOO_BIG, "value has 65537 bytes");
    assert_value("N", "k", "?");

    /* All together; what a setting replaces makes room. */
    char key[8];
    for (int i = 0; i < NAMES_KV_BYTES_MAX / NAMES_KV_VALUE_MAX - 1; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(names_kv_put(names, n, bytes_str(key), big, &why), OK);
    }
    check_refused(n, k, big, ERR_TOO_BIG, "all settings together would have more than");
    assert_int_equal(names_kv_put(names, n, BYTES("k0"), big, &why), OK);
    assert_int_equal(names_kv_delete(names, n, BYTES("k1"), &why), OK);
    assert_int_equal(names_kv_put(names, n, k, big, &why), OK);
}

static void refuses_too_many_settings(void **state)
{
    (void)state;
    char text[32];
    for (int i = 0; i < NAMES_KV_SPACES_MAX; i++) {
        snprintf(text, sizeof text, "n%d", i);
        put(text, "k", "v");
    }
    check_refused(BYTES("one more"), BYTES("k"), BYTES("v"), ERR_TOO_BIG, "256 namespaces");
    for (int i = 0; i < NAMES_KV_PAIRS_MAX - NAMES_KV_SPACES_MAX; i++) {
        snprintf(text, sizeof text, "k%d", i);
        put("n0", text, "v");
    }
    check_refused(BYTES("n0"), BYTES("one more"), BYTES("v"), ERR_TOO_BIG, "32768 settings");
    put("n0", "k0", "changed");
}

/* ---- the file ---- */

static void settings_outlive_a_restart(void **state)
{
    (void)state;
    put("ORDER_TOPIC_CONFIG", "T1", "a:4;b:4");
    put("N", "quote \" back \\ line \n", "\xe2\x82\xac \t");
    put("N", "gone", "x");
    assert_int_equal(names_kv_delete(names, BYTES("N"), BYTES("gone"), &why), OK);
    put("E", "k", "v");
    assert_int_equal(names_kv_delete(names, BYTES("E"), BYTES("k"), &why), OK);
    assert_int_equal(reopen(), OK);
    assert_string_equal(why.text, "");
    assert_value("ORDER_TOPIC_CONFIG", "T1", "a:4;b:4");
    assert_value("N", "quote \" back \\ line \n", "\xe2\x82\xac \t");
    assert_value("N", "gone", "?");
    struct kv *list;
    size_t n = 99;
    assert_int_equal(names_kv_list(names, BYTES("E"), &arena, &list, &n), OK);
    assert_int_equal(n, 0);
    assert_int_equal(names->settings.n_pairs, 2);
}

static void reads_what_apache_writes(void **state)
{
    (void)state;
    write_file(KV_PATH, "{\"configTable\":{\"ORDER_TOPIC_CONFIG\":{\"T1\":\"a:4\",\"T2\":\"b:8\"},"
                        "\"NUMBERS\":{\"port\":9876,\"on\":true,\"off\":null,7:\"seven\"}}}");
    assert_int_equal(reopen(), OK);
    assert_value("ORDER_TOPIC_CONFIG", "T2", "b:8");
    assert_value("NUMBERS", "port", "9876");
    assert_value("NUMBERS", "on", "true");
    assert_value("NUMBERS", "off", "?");
    assert_value("NUMBERS", "7", "seven");
    put("NUMBERS", "port", "1");
    assert_int_equal(reopen(), OK);
    assert_value("NUMBERS", "port", "1");
    assert_value("ORDER_TOPIC_CONFIG", "T1", "a:4");
}

/* What we write is proper JSON in Apache's form, one of the few things a stranger reads. */
static void writes_what_apache_reads(void **state)
{
    (void)state;
    put("N", "k", "v");
    uint8_t *text = NULL;
    size_t len;
    assert_int_equal(vfs_read_all(disk, KV_PATH, 1000, &text, &len, NULL), OK);
    assert_bytes_equal(bytes_of(text, len), BYTES("{\"configTable\":{\"N\":{\"k\":\"v\"}}}"));
    free(text);
}

static void a_lost_or_damaged_file_is_replaced_by_its_backup(void **state)
{
    (void)state;
    put("N", "k", "old");
    put("N", "k", "new");
    assert_int_equal(disk->calls->remove(disk, KV_PATH, NULL), OK);
    assert_int_equal(reopen(), OK);
    assert_value("N", "k", "old");
    assert_non_null(
        strstr(names_note(names), "the settings were taken from config/kvConfig.json.bak"));

    static const char *const damaged[] = {"",
                                          "{\"configTable\":{\"N\":{\"k\"",
                                          "[]",
                                          "5",
                                          "\"x\"",
                                          "{\"configTable\":[]}",
                                          "{\"configTable\":{\"N\":5}}",
                                          "{\"configTable\":{\"\":{}}}",
                                          "{\"configTable\":{\"N\":{\"k\":[1]}}}",
                                          "{\"configTable\":{\"N\":{{\"a\":1}:\"v\"}}}",
                                          "{\"configTable\":{{\"a\":1}:{\"k\":\"v\"}}}"};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        write_file(KV_PATH, damaged[i]);
        assert_int_equal(reopen(), OK);
        assert_value("N", "k", "old");
        assert_non_null(strstr(names_note(names), "taken from config/kvConfig.json.bak"));
    }
    put("N", "k", "newest");
    assert_int_equal(reopen(), OK);
    assert_value("N", "k", "newest");
    assert_string_equal(names_note(names), "");
}

static void damage_without_a_backup_is_a_reason_not_to_start(void **state)
{
    (void)state;
    write_file(KV_PATH, "{\"configTable\":{\"N\":{");
    assert_int_equal(reopen(), ERR_DAMAGED);
    assert_non_null(
        strstr(why.text, "config/kvConfig.json: is not the JSON it should be, at byte"));
    write_file(KV_PATH ".bak", "also bad");
    assert_int_equal(reopen(), ERR_DAMAGED);
    assert_int_equal(disk->calls->remove(disk, KV_PATH, NULL), OK);
    assert_int_equal(reopen(), ERR_DAMAGED);
    assert_non_null(strstr(why.text, "kvConfig.json.bak: is not"));
    write_file(KV_PATH, "{\"configTable\":null}");
    assert_int_equal(reopen(), OK);
    write_file(KV_PATH, "{}");
    assert_int_equal(reopen(), OK);
}

/* ---- a disk that fails ---- */

/* Stands between the name server and the disk and fails operation `fail_at`. */
static int operation, fail_at;

static bool fails(void)
{
    return ++operation == fail_at;
}
static enum err f_open(struct vfs *w, const char *path, enum vfs_mode mode, struct vfs_file **out,
                       struct fault *f)
{
    (void)w;
    return fails() ? ERR_IO : disk->calls->open(disk, path, mode, out, f);
}
static enum err f_size(struct vfs_file *file, uint64_t *out, struct fault *f)
{
    return fails() ? ERR_IO : disk->calls->size(file, out, f);
}
static enum err f_write(struct vfs_file *file, uint64_t at, const struct iovec *parts, int n,
                        struct fault *f)
{
    return fails() ? ERR_DISK_FULL : disk->calls->write(file, at, parts, n, f);
}
static enum err f_read(struct vfs_file *file, uint64_t at, void *into, size_t n, struct fault *f)
{
    return fails() ? ERR_IO : disk->calls->read(file, at, into, n, f);
}
static enum err f_sync(struct vfs_file *file, struct fault *f)
{
    return fails() ? ERR_IO : disk->calls->sync(file, f);
}
static enum err f_mkdir(struct vfs *w, const char *path, struct fault *f)
{
    (void)w;
    return fails() ? ERR_IO : disk->calls->mkdir(disk, path, f);
}
static enum err f_rename(struct vfs *w, const char *from, const char *to, struct fault *f)
{
    (void)w;
    return fails() ? ERR_IO : disk->calls->rename(disk, from, to, f);
}
static enum err f_remove(struct vfs *w, const char *path, struct fault *f)
{
    (void)w;
    return disk->calls->remove(disk, path, f);
}
static enum err f_sync_dir(struct vfs *w, const char *path, struct fault *f)
{
    (void)w;
    return fails() ? ERR_IO : disk->calls->sync_dir(disk, path, f);
}
static void f_close(struct vfs_file *file)
{
    disk->calls->close(file);
}

/* Operation 1 fails, then 2, and so on until nothing fails. A change that was refused is not seen;
 * after a restart it is there wholly or not at all, and nothing else is lost. */
static void a_failing_disk_refuses_the_change_and_keeps_the_rest(void **state)
{
    (void)state;
    static const struct vfs_calls calls = {.open = f_open,
                                           .close = f_close,
                                           .size = f_size,
                                           .write = f_write,
                                           .read = f_read,
                                           .sync = f_sync,
                                           .mkdir = f_mkdir,
                                           .rename = f_rename,
                                           .remove = f_remove,
                                           .sync_dir = f_sync_dir};
    struct vfs failing = {&calls};
    enum err err = ERR_IO;
    for (int n = 1; err; n++) {
        assert_true(n < 50);
        fail_at = 0;
        put("N", "kept", "1");
        put("N", "k", "old");
        names->options.vfs = &failing;
        operation = 0;
        fail_at = n;
        err = names_kv_put(names, BYTES("N"), BYTES("k"), BYTES("new"), &why);
        assert_value("N", "k", err ? "old" : "new");
        assert_int_equal(reopen(), OK);
        assert_value("N", "kept", "1");
        assert_true(strcmp(get("N", "k"), "new") == 0 ||
                    (err && strcmp(get("N", "k"), "old") == 0));
    }
}

/* ---- several at once ---- */

static void *put_many(void *user)
{
    const char *space = user;
    for (int i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        invariant(names_kv_put(names, bytes_str(space), bytes_str(key), BYTES("v"), NULL) == OK);
    }
    return NULL;
}

/* Each change is in the file when it returns, so none may be overwritten by one beside it. */
static void changes_from_several_threads_are_all_kept(void **state)
{
    (void)state;
    static char spaces[][2] = {"A", "B", "C", "D"};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, put_many, spaces[i]), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(names->settings.n_pairs, 80);
    assert_int_equal(reopen(), OK);
    assert_int_equal(names->settings.n_pairs, 80);
    assert_value("C", "k19", "v");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, test_setup, test_teardown)
#define DISK(name) cmocka_unit_test_setup_teardown(name, open_on_disk, close_on_disk)
    const struct CMUnitTest tests[] = {
        CASE(settings_are_put_got_listed_and_deleted),
        CASE(refuses_settings_that_are_none),
        CASE(refuses_too_many_settings),
        DISK(settings_outlive_a_restart),
        DISK(reads_what_apache_writes),
        DISK(writes_what_apache_reads),
        DISK(a_lost_or_damaged_file_is_replaced_by_its_backup),
        DISK(damage_without_a_backup_is_a_reason_not_to_start),
        DISK(a_failing_disk_refuses_the_change_and_keeps_the_rest),
        DISK(changes_from_several_threads_are_all_kept),
    };
    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
