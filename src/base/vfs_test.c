/* The posix files in a folder of their own, and replacing a file when anything may fail. */
#include "base/buf.h"
#include "base/test.h"
#include "base/vfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];
static struct vfs *v;

static int open_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/vfs_test.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    return vfs_posix_open(folder, &v, NULL) == OK ? 0 : -1;
}

static void remove_all(int at, const char *name)
{
    if (unlinkat(at, name, 0) == 0)
        return;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY);
    DIR *dir = fdopendir(fd);
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            remove_all(dirfd(dir), e->d_name);
    (void)closedir(dir);
    (void)unlinkat(at, name, AT_REMOVEDIR);
}

static int remove_folder(void **state)
{
    (void)state;
    v->calls->dispose(v);
    remove_all(AT_FDCWD, folder);
    return 0;
}

static struct vfs_file *opened(const char *path, enum vfs_mode mode)
{
    struct vfs_file *f = NULL;
    struct fault why = {0};
    if (v->calls->open(v, path, mode, &f, &why) != OK)
        print_error("%s\n", why.text);
    assert_non_null(f);
    return f;
}

static void put(struct vfs_file *f, uint64_t at, const char *text)
{
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    assert_int_equal(v->calls->write(f, at, &(struct iovec){copy, strlen(copy)}, 1, NULL), OK);
}

static void check_content(const char *path, struct bytes wanted)
{
    cleanup(free_at) uint8_t *text = NULL;
    size_t len = 0;
    assert_int_equal(vfs_read_all(v, path, 1 << 20, &text, &len, NULL), OK);
    assert_bytes_equal(bytes_of(text, len), wanted);
    assert_int_equal(text[len], 0);
}

/* ---- files ---- */

static void opens_as_the_mode_says(void **state)
{
    (void)state;
    struct vfs_file *f = NULL;
    struct fault why = {0};
    assert_int_equal(v->calls->open(v, "a", VFS_READ, &f, &why), ERR_NOT_FOUND);
    assert_non_null(strstr(why.text, folder));
    assert_non_null(strstr(why.text, "/a: No such file"));
    assert_int_equal(v->calls->open(v, "a", VFS_WRITE, &f, NULL), ERR_NOT_FOUND);
    assert_null(f);

    f = opened("a", VFS_CREATE);
    put(f, 0, "one");
    v->calls->close(f);
    v->calls->close(opened("a", VFS_CREATE));
    v->calls->close(opened("a", VFS_WRITE));
    check_content("a", BYTES("one"));
    v->calls->close(opened("a", VFS_FRESH));
    check_content("a", BYTES(""));
}

/* What is written past the kernel's memory is what others read, also where it was read before. */
static void writes_around_memory(void **state)
{
    (void)state;
    static _Alignas(4096) uint8_t page[2 * 4096];
    struct vfs_file *f = NULL;
    assert_int_equal(v->calls->open(v, "a", VFS_AROUND, &f, NULL), ERR_NOT_FOUND);
    v->calls->close(opened("a", VFS_CREATE));
    f = opened("a", VFS_AROUND);
    for (uint8_t with = 1; with <= 2; with++) {
        memset(page, with, sizeof page);
        assert_int_equal(v->calls->write(f, 0, &(struct iovec){page, sizeof page}, 1, NULL), OK);
        check_content("a", bytes_of(page, sizeof page));
    }
    v->calls->close(f);
}

static void knows_and_changes_the_size(void **state)
{
    (void)state;
    struct vfs_file *f = opened("a", VFS_FRESH);
    uint64_t size = 99;
    assert_int_equal(v->calls->size(f, &size, NULL), OK);
    assert_int_equal(size, 0);
    put(f, 0, "12345");
    assert_int_equal(v->calls->resize(f, 7, NULL), OK);
    assert_int_equal(v->calls->size(f, &size, NULL), OK);
    assert_int_equal(size, 7);
    check_content("a", BYTES("12345\0\0"));
    assert_int_equal(v->calls->resize(f, 2, NULL), OK);
    check_content("a", BYTES("12"));
    v->calls->close(f);
}

/* Zeros from the middle of a page on, also for who mapped the file before, and the size stays. */
static void clears_a_part_and_keeps_the_size(void **state)
{
    (void)state;
    enum { SIZE = 20000, FROM = 5000, UPTO = 17000 };
    static uint8_t content[SIZE];
    memset(content, 'x', SIZE);
    struct vfs_file *f = opened("a", VFS_FRESH);
    struct fault why = {0};
    const uint8_t *map;
    uint64_t size = 0;
    assert_int_equal(v->calls->write(f, 0, &(struct iovec){content, SIZE}, 1, NULL), OK);
    assert_int_equal(v->calls->map(f, SIZE, &map, NULL), OK);
    enum err err = v->calls->clear(f, FROM, UPTO - FROM, &why);
    if (!err) {
        memset(content + FROM, 0, UPTO - FROM);
        assert_int_equal(v->calls->size(f, &size, NULL), OK);
        assert_int_equal(size, SIZE);
        assert_memory_equal(map, content, SIZE);
        check_content("a", bytes_of(content, SIZE));
    }
    v->calls->unmap(f, map, SIZE);
    v->calls->close(f);
    if (err) /* not every file system makes holes */
        assert_non_null(strstr(why.text, "/a from 5000 on: Operation not supported"));

    f = opened("a", VFS_READ);
    assert_int_equal(v->calls->clear(f, 0, SIZE, &why), ERR_IO);
    assert_non_null(strstr(why.text, "/a from 0 on: Bad file descriptor"));
    v->calls->close(f);
}

/* What can be read stays what it was, and the size, too. */
static void reserves_and_changes_nothing(void **state)
{
    (void)state;
    struct vfs_file *f = opened("a", VFS_FRESH);
    struct fault why = {0};
    uint64_t size = 0;
    put(f, 0, "abc");
    assert_int_equal(v->calls->resize(f, 6, NULL), OK);
    enum err err = v->calls->reserve(f, 1, 1 << 20, &why);
    if (err) /* not every file system has places, or says so */
        print_message("# %s\n", why.text);
    assert_int_equal(v->calls->size(f, &size, NULL), OK);
    assert_int_equal(size, 6);
    check_content("a", BYTES("abc\0\0\0"));
    v->calls->close(f);

    f = opened("a", VFS_READ);
    assert_int_not_equal(v->calls->reserve(f, 0, 4096, NULL), OK);
    v->calls->close(f);
}

/* More parts than one system call takes, empty ones among them, each with its own content. */
static void writes_all_parts(void **state)
{
    (void)state;
    enum { N = 300 };
    static char texts[N][8];
    struct iovec parts[N];
    cleanup(buf_clear) struct buf wanted = buf_upto(1 << 20);
    buf_add_str(&wanted, "ab");
    for (int i = 0; i < N; i++) {
        snprintf(texts[i], sizeof texts[i], "<%d>", i);
        parts[i] = (struct iovec){texts[i], i % 7 == 0 ? 0 : strlen(texts[i])};
        buf_add(&wanted, bytes_of(texts[i], parts[i].iov_len));
    }
    struct vfs_file *f = opened("a", VFS_FRESH);
    put(f, 0, "abcdef");
    assert_int_equal(v->calls->write(f, 2, parts, N, NULL), OK);
    check_content("a", buf_bytes(&wanted));
    assert_int_equal(v->calls->write(f, 0, parts, 0, NULL), OK);
    assert_int_equal(v->calls->write(f, 0, parts, 1, NULL), OK); /* an empty one */
    check_content("a", buf_bytes(&wanted));
    assert_int_equal(v->calls->sync(f, NULL), OK);
    assert_int_equal(v->calls->push(f, 0, 4096, NULL), OK); /* beyond its end is fine */
    check_content("a", buf_bytes(&wanted));
    v->calls->close(f);
}

/* /dev/full has no space for anybody. */
static void a_full_disk_is_an_error_with_a_sentence(void **state)
{
    (void)state;
    struct vfs *dev;
    struct vfs_file *f;
    struct fault why = {0};
    assert_int_equal(vfs_posix_open("/dev", &dev, NULL), OK);
    assert_int_equal(dev->calls->open(dev, "full", VFS_WRITE, &f, NULL), OK);
    char byte = 'x';
    assert_int_equal(dev->calls->write(f, 0, &(struct iovec){&byte, 1}, 1, &why), ERR_DISK_FULL);
    assert_string_equal(why.text, "writing /dev/full at 0: No space left on device");
    dev->calls->close(f);
    dev->calls->dispose(dev);
}

static void refuses_to_read_past_the_end(void **state)
{
    (void)state;
    struct vfs_file *f = opened("a", VFS_FRESH);
    put(f, 0, "12345");
    char got[8] = {0};
    assert_int_equal(v->calls->read(f, 1, got, 4, NULL), OK);
    assert_string_equal(got, "2345");
    struct fault why = {0};
    assert_int_equal(v->calls->read(f, 1, got, 5, &why), ERR_RANGE);
    assert_non_null(strstr(why.text, "ends at 5, 1 bytes early"));
    assert_int_equal(v->calls->read(f, 100, got, 1, NULL), ERR_RANGE);
    assert_int_equal(v->calls->read(f, 100, got, 0, NULL), OK);
    v->calls->close(f);
}

static void a_mapping_sees_what_is_written_later(void **state)
{
    (void)state;
    struct vfs_file *f = opened("a", VFS_FRESH);
    const uint8_t *map = NULL;
    assert_int_equal(v->calls->map(f, 1, &map, NULL), ERR_RANGE); /* a touch would be a SIGBUS */
    assert_int_equal(v->calls->resize(f, 10000, NULL), OK);
    assert_int_equal(v->calls->map(f, 0, &map, NULL), ERR_RANGE);
    assert_int_equal(v->calls->map(f, 10001, &map, NULL), ERR_RANGE);
    assert_null(map);
    assert_int_equal(v->calls->map(f, 10000, &map, NULL), OK);
    assert_int_equal(map[9999], 0);
    put(f, 9997, "xyz");
    assert_memory_equal(map + 9997, "xyz", 3);
    v->calls->unmap(f, map, 10000);
    v->calls->close(f);

    f = opened("a", VFS_READ);
    assert_int_equal(v->calls->map(f, 10000, &map, NULL), OK);
    v->calls->unmap(f, map, 10000);
    v->calls->close(f);
}

/* ---- the lock ---- */

static void wait_for_end(int fd)
{
    char byte;
    (void)!read(fd, &byte, 1);
}

/* A child that calls lock() and then holds it until `done` is closed. Answers when it has it. */
static pid_t start_holder(int ready[2], int done[2])
{
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(done), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(done[1]);
        struct vfs_file *f;
        if (v->calls->open(v, "lock", VFS_CREATE, &f, NULL) || v->calls->lock(f, NULL))
            _exit(1);
        (void)close(ready[1]);
        wait_for_end(done[0]);
        _exit(0);
    }
    (void)close(ready[1]);
    (void)close(done[0]);
    wait_for_end(ready[0]);
    return child;
}

static void a_second_process_is_told_the_pid_of_the_first(void **state)
{
    (void)state;
    int ready[2], done[2];
    pid_t child = start_holder(ready, done);

    struct vfs_file *f = opened("lock", VFS_CREATE);
    struct fault why = {0};
    char wanted[200];
    snprintf(wanted, sizeof wanted, "%s/lock is in use by process %ld", folder, (long)child);
    assert_int_equal(v->calls->lock(f, &why), ERR_IN_USE);
    assert_string_equal(why.text, wanted);

    /* It is the lock that Java's FileChannel.tryLock(0, 1, false) makes. */
    char path[200];
    snprintf(path, sizeof path, "%s/lock", folder);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct flock seen = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    assert_int_equal(fcntl(fd, F_GETLK, &seen), 0);
    assert_int_equal(seen.l_type, F_WRLCK);
    assert_int_equal(seen.l_start, 0);
    assert_int_equal(seen.l_len, 1);
    assert_int_equal(seen.l_pid, child);
    (void)close(fd);

    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(v->calls->lock(f, NULL), OK); /* the kernel lets go for the dead */
    v->calls->close(f);
    (void)close(ready[0]);
    (void)close(done[1]);
}

/* ---- names ---- */

static void makes_folders_with_parents(void **state)
{
    (void)state;
    assert_int_equal(v->calls->mkdir(v, "a/b/c", NULL), OK);
    assert_int_equal(v->calls->mkdir(v, "a/b/c", NULL), OK);
    assert_int_equal(v->calls->mkdir(v, "a/d/", NULL), OK);
    assert_int_equal(v->calls->mkdir(v, "", NULL), OK);
    v->calls->close(opened("a/b/c/file", VFS_CREATE));
    struct fault why = {0};
    assert_int_equal(v->calls->mkdir(v, "a/b/c/file", &why), ERR_IO);
    assert_non_null(strstr(why.text, "a/b/c/file: Not a directory"));
    assert_int_equal(v->calls->mkdir(v, "a/b/c/file/x", NULL), ERR_IO);
    assert_int_equal(v->calls->sync_dir(v, "a/b/c", NULL), OK);
    assert_int_equal(v->calls->sync_dir(v, "", NULL), OK);
    assert_int_equal(v->calls->sync_dir(v, "nowhere", NULL), ERR_NOT_FOUND);

    char deep[128];
    snprintf(deep, sizeof deep, "%s/x/y", folder);
    struct vfs *other;
    assert_int_equal(vfs_posix_open(deep, &other, NULL), OK);
    other->calls->dispose(other);
    snprintf(deep, sizeof deep, "%s/a/b/c/file", folder);
    assert_int_equal(vfs_posix_open(deep, &other, &why), ERR_IO);
}

static void note_name(void *user, const char *name, bool is_dir)
{
    struct buf *seen = user;
    buf_printf(seen, "%s%s ", name, is_dir ? "/" : "");
}

static void lists_renames_and_removes(void **state)
{
    (void)state;
    cleanup(buf_clear) struct buf seen = buf_upto(4096);
    assert_int_equal(v->calls->list(v, "q", note_name, &seen, NULL), ERR_NOT_FOUND);
    assert_int_equal(v->calls->mkdir(v, "q/sub", NULL), OK);
    assert_int_equal(v->calls->list(v, "", note_name, &seen, NULL), OK);
    assert_bytes_equal(buf_bytes(&seen), BYTES("q/ "));

    buf_clear(&seen);
    v->calls->close(opened("q/one", VFS_CREATE));
    assert_int_equal(v->calls->rename(v, "q/one", "q/two", NULL), OK);
    assert_int_equal(v->calls->rename(v, "q/one", "q/two", NULL), ERR_NOT_FOUND);
    assert_int_equal(v->calls->list(v, "q", note_name, &seen, NULL), OK);
    assert_int_equal(seen.len, strlen("two sub/ "));
    assert_non_null(memmem(seen.at, seen.len, "two ", 4));
    assert_non_null(memmem(seen.at, seen.len, "sub/ ", 5));
    assert_int_equal(v->calls->list(v, "q/two", note_name, &seen, NULL), ERR_IO);

    struct fault why = {0};
    assert_int_equal(v->calls->remove(v, "q", &why), ERR_IO);
    assert_non_null(strstr(why.text, "not empty"));
    assert_int_equal(v->calls->remove(v, "q/sub", NULL), OK);
    assert_int_equal(v->calls->remove(v, "q/two", NULL), OK);
    assert_int_equal(v->calls->remove(v, "q", NULL), OK);
    assert_int_equal(v->calls->remove(v, "q", NULL), ERR_NOT_FOUND);
}

/* What was never written is skipped; what was is never. */
static void finds_what_was_written(void **state)
{
    (void)state;
    struct vfs_file *f = opened("sparse", VFS_CREATE);
    uint64_t far = 64u << 20;
    assert_int_equal(v->calls->resize(f, 2 * far, NULL), OK);
    put(f, far, "here");
    assert_true(v->calls->next_data(f, 0) <= far);
    assert_int_equal(v->calls->next_data(f, far + 1), far + 1);
    uint64_t behind = v->calls->next_data(f, far + (far / 2));
    assert_true(behind == 2 * far || behind == far + (far / 2)); /* where it cannot be told */
    assert_int_equal(v->calls->next_data(f, 2 * far), 2 * far);
    v->calls->close(f);
}

/* ---- whole files ---- */

static void reads_whole_files_up_to_a_size(void **state)
{
    (void)state;
    uint8_t *text = NULL;
    size_t len = 0;
    struct fault why = {0};
    assert_int_equal(vfs_read_all(v, "a", 10, &text, &len, &why), ERR_NOT_FOUND);
    assert_int_equal(vfs_replace(v, "a", BYTES("12345"), NULL), OK);
    check_content("a", BYTES("12345"));
    assert_int_equal(vfs_read_all(v, "a", 4, &text, &len, &why), ERR_TOO_BIG);
    assert_string_equal(why.text, "a is bigger than 4 bytes");
    assert_null(text);
}

static void replacing_keeps_the_old_one_aside(void **state)
{
    (void)state;
    assert_int_equal(v->calls->mkdir(v, "config", NULL), OK);
    assert_int_equal(vfs_replace(v, "config/t", BYTES("one"), NULL), OK);
    uint8_t *text;
    size_t len;
    assert_int_equal(vfs_read_all(v, "config/t.bak", 10, &text, &len, NULL), ERR_NOT_FOUND);
    assert_int_equal(vfs_replace(v, "config/t", BYTES("two!"), NULL), OK);
    check_content("config/t", BYTES("two!"));
    check_content("config/t.bak", BYTES("one"));

    /* A file that a crash has emptied does not push out the good copy. */
    v->calls->close(opened("config/t", VFS_FRESH));
    assert_int_equal(vfs_replace(v, "config/t", BYTES("three"), NULL), OK);
    check_content("config/t", BYTES("three"));
    check_content("config/t.bak", BYTES("one"));
    assert_int_equal(vfs_replace(v, "nowhere/t", BYTES("x"), NULL), ERR_NOT_FOUND);
}

/* A vfs that fails operation `fail_at` and notes the order of what was done. */
static int operation, fail_at;
static char trace[1024];

static enum err step(const char *what)
{
    size_t used = strlen(trace);
    snprintf(trace + used, sizeof trace - used, "%s ", what);
    return ++operation == fail_at ? ERR_IO : OK;
}

static enum err f_open(struct vfs *w, const char *path, enum vfs_mode mode, struct vfs_file **out,
                       struct fault *why)
{
    (void)w;
    return step("open") ? ERR_IO : v->calls->open(v, path, mode, out, why);
}
static void f_close(struct vfs_file *f)
{
    v->calls->close(f);
}
static enum err f_size(struct vfs_file *f, uint64_t *out, struct fault *why)
{
    return step("size") ? ERR_IO : v->calls->size(f, out, why);
}
static enum err f_write(struct vfs_file *f, uint64_t at, const struct iovec *parts, int n,
                        struct fault *why)
{
    if (!step("write"))
        return v->calls->write(f, at, parts, n, why);
    struct iovec half = {parts[0].iov_base, parts[0].iov_len / 2}; /* torn */
    (void)v->calls->write(f, at, &half, 1, why);
    return ERR_IO;
}
static enum err f_read(struct vfs_file *f, uint64_t at, void *into, size_t n, struct fault *why)
{
    return step("read") ? ERR_IO : v->calls->read(f, at, into, n, why);
}
static enum err f_sync(struct vfs_file *f, struct fault *why)
{
    return step("sync") ? ERR_IO : v->calls->sync(f, why);
}
static enum err f_rename(struct vfs *w, const char *from, const char *to, struct fault *why)
{
    (void)w;
    return step("rename") ? ERR_IO : v->calls->rename(v, from, to, why);
}
static enum err f_remove(struct vfs *w, const char *path, struct fault *why)
{
    (void)w;
    return v->calls->remove(v, path, why);
}
static enum err f_sync_dir(struct vfs *w, const char *path, struct fault *why)
{
    (void)w;
    return step("sync_dir") ? ERR_IO : v->calls->sync_dir(v, path, why);
}

/* What is free is at most what there is, and what we may have of it at most what is free. */
static void tells_the_space_on_the_disk(void **state)
{
    (void)state;
    struct vfs_space space;
    assert_int_equal(v->calls->space(v, &space, NULL), OK);
    assert_true(space.total > 0);
    assert_true(space.free <= space.total);
    assert_true(space.available <= space.free);
}

/* Operation 1 fails, then 2, and so on until nothing fails. Each time the file is the whole old or
 * the whole new one; and content is on the disk before a name points to it. */
static void replacing_leaves_old_or_new_whatever_fails(void **state)
{
    (void)state;
    static const struct vfs_calls calls = {.open = f_open,
                                           .close = f_close,
                                           .size = f_size,
                                           .write = f_write,
                                           .read = f_read,
                                           .sync = f_sync,
                                           .rename = f_rename,
                                           .remove = f_remove,
                                           .sync_dir = f_sync_dir};
    struct vfs failing = {&calls};
    enum err err = ERR_IO;
    for (fail_at = 1; err; fail_at++) {
        assert_true(fail_at < 50);
        assert_int_equal(vfs_replace(v, "t", BYTES("the old one"), NULL), OK);
        operation = 0;
        trace[0] = '\0';
        err = vfs_replace(&failing, "t", BYTES("the new one!"), NULL);
        cleanup(free_at) uint8_t *text = NULL;
        size_t len = 0;
        assert_int_equal(vfs_read_all(v, "t", 100, &text, &len, NULL), OK);
        struct bytes got = bytes_of(text, len);
        if (!err)
            assert_bytes_equal(got, BYTES("the new one!"));
        assert_true(bytes_equal(got, BYTES("the old one")) ||
                    bytes_equal(got, BYTES("the new one!")));
        assert_int_equal(v->calls->remove(v, "t.tmp", NULL), ERR_NOT_FOUND);
    }
    assert_string_equal(trace,
                        "open size read open write sync rename open write sync rename sync_dir ");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        CASE(opens_as_the_mode_says),
        CASE(writes_around_memory),
        CASE(knows_and_changes_the_size),
        CASE(clears_a_part_and_keeps_the_size),
        CASE(reserves_and_changes_nothing),
        CASE(writes_all_parts),
        CASE(a_full_disk_is_an_error_with_a_sentence),
        CASE(refuses_to_read_past_the_end),
        CASE(a_mapping_sees_what_is_written_later),
        CASE(a_second_process_is_told_the_pid_of_the_first),
        CASE(makes_folders_with_parents),
        CASE(lists_renames_and_removes),
        CASE(tells_the_space_on_the_disk),
        CASE(finds_what_was_written),
        CASE(reads_whole_files_up_to_a_size),
        CASE(replacing_keeps_the_old_one_aside),
        CASE(replacing_leaves_old_or_new_whatever_fails),
    };
    return cmocka_run_group_tests_name("vfs", tests, NULL, NULL);
}
