/* load.c - from the scheme of a URL to its driver, which is a library of its own.
 *
 * A driver is looked for in the folder that ONCE_DRIVERS names (for programs that are not set-uid),
 * then beside libonce.so, then as any library is. It is never unloaded: the client libraries of
 * databases leave threads and exit handlers behind. */
#include "once/once_int.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *scheme, *driver, *needs;
} schemes[] = {
    {"memory:", "memory", ""},
    {"broker:", "broker", "liboncemq"},
    {"sqlite:", "sqlite", "libsqlite3"},
    {"redis:", "redis", "libhiredis"},
    {"rediss:", "redis", "libhiredis"},
    {"redis+unix:", "redis", "libhiredis"},
    {"postgresql:", "postgresql", "libpq"},
    {"postgres:", "postgresql", "libpq"},
    {"mysql:", "mariadb", "libmariadb"},
    {"mariadb:", "mariadb", "libmariadb"},
};

static void *library_in(const char *folder, size_t len, const char *file)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%.*s/%s", (int)len, folder, file);
    return n > 0 && (size_t)n < sizeof path ? dlopen(path, RTLD_NOW) : NULL;
}

static void *open_library(const char *file, char *words, size_t size)
{
    const char *folder = secure_getenv("ONCE_DRIVERS");
    words[0] = 0;
    void *library = folder && folder[0] ? library_in(folder, strlen(folder), file) : NULL;
    /* Beside ourselves: our run path says so as well, but a sanitizer that stands before dlopen
     * hides whose it is. */
    Dl_info ours;
    if (!library && dladdr(schemes, &ours) && ours.dli_fname) {
        const char *slash = strrchr(ours.dli_fname, '/');
        library = slash ? library_in(ours.dli_fname, (size_t)(slash - ours.dli_fname), file) : NULL;
    }
    if (!library)
        library = dlopen(file, RTLD_NOW);
    const char *said = library ? NULL : dlerror();
    if (said)
        (void)snprintf(words, size, "%s", said);
    return library;
}

static int load(const char *name, const char *needs, const struct once_driver **out,
                struct once_error *why)
{
    char file[64], symbol[64], form_symbol[64], words[300];
    (void)snprintf(file, sizeof file, "libonce-%s.so.0", name);
    (void)snprintf(symbol, sizeof symbol, "once_driver_%s", name);
    (void)snprintf(form_symbol, sizeof form_symbol, "once_form_%s", name);
    void *library = open_library(file, words, sizeof words);
    if (!library)
        return once_fail(why, ONCE_UNSUPPORTED,
                         "the driver %s cannot be loaded: %s. It is built where %s is installed, "
                         "and looked for beside libonce.so and in the folder ONCE_DRIVERS",
                         file, words, needs);
    const struct once_driver *driver = dlsym(library, symbol);
    if (!driver)
        return once_fail(why, ONCE_UNSUPPORTED, "%s is no driver: it has no %s", file, symbol);
    const uint32_t *form = dlsym(library, form_symbol);
    if (!form || *form != ONCE_DRIVER_FORM)
        return once_fail(why, ONCE_UNSUPPORTED,
                         "%s is of another release than libonce.so: install them together", file);
    *out = driver;
    return ONCE_OK;
}

int driver_find(const char *url, const struct once_driver **out, struct once_error *why)
{
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (strncmp(url, schemes[i].scheme, strlen(schemes[i].scheme)) != 0)
            continue;
        if (strcmp(schemes[i].driver, "memory") != 0)
            return load(schemes[i].driver, schemes[i].needs, out, why);
        *out = &once_driver_memory;
        return ONCE_OK;
    }
    /* The URL itself is not shown: it may hold a password. */
    return once_fail(why, ONCE_INVALID,
                     "store begins with broker: memory: sqlite: redis: postgresql: or mysql:, and "
                     "this one does not");
}
