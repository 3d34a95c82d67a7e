/* A store of your own in a page: each key is a file in a folder, locked by its holder.
 *
 *     checker FOLDER KEY     runs if nobody has it, and it was not done
 *
 * The kernel gives the lock of a dead process back, so a claim needs no expiry. */
#include <once.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define DONE "done"

struct folder {
    const char *path;
    int claim; /* this program has one at a time */
};

static int open_key(const struct folder *folder, const struct once_claim *claim)
{
    char path[512];
    int n = snprintf(path, sizeof path, "%s/", folder->path);
    for (int i = 0; i < 32; i++)
        n += snprintf(path + n, sizeof path - (size_t)n, "%02x", claim->id[i]);
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
}

static int begin(void *self, const struct once_claim *claim, struct once_found *out)
{
    struct folder *folder = self;
    struct stat about;
    int fd = open_key(folder, claim);
    if (fd < 0)
        return ONCE_STORE;
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        *out = (struct once_found){.state = ONCE_CONSUMING, .left_ms = 1000};
    } else if (fstat(fd, &about) == 0 && about.st_size > 0) {
        *out = (struct once_found){.state = ONCE_CONSUMED, .fingerprint = claim->fingerprint};
    } else {
        *out = (struct once_found){.state = ONCE_ABSENT, .fence = 1};
        folder->claim = fd;
        return ONCE_OK;
    }
    (void)close(fd);
    return ONCE_OK;
}

static int done(void *self, const struct once_claim *claim)
{
    (void)claim;
    struct folder *folder = self;
    bool good = write(folder->claim, DONE, sizeof DONE) == sizeof DONE && fsync(folder->claim) == 0;
    if (!good)
        return ONCE_STORE;
    (void)close(folder->claim);
    return ONCE_OK;
}

static int failed(void *self, const struct once_claim *claim)
{
    (void)claim;
    const struct folder *folder = self;
    return close(folder->claim) ? ONCE_STORE : ONCE_OK;
}

static int handle(void *user, struct once_run *run)
{
    (void)user;
    (void)printf("%s runs\n", once_run_key(run));
    return ONCE_DONE;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    static const struct once_checker files = {.begin = begin, .done = done, .failed = failed};
    struct folder folder = {.path = argv[1]};
    struct once_options options = {.checker = &files, .checker_self = &folder, .group = "g"};
    struct once_message message = {.keys = argv[2]};
    struct once_answer answer;
    struct once *once;
    if (once_open(&options, &once, NULL))
        return 1;
    (void)once_do(once, &message, handle, NULL, &answer);
    (void)printf("%s: %s\n", argv[2], once_cause_text(answer.cause));
    once_close(once);
    return 0;
}
