#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *err_text(enum err err)
{
    static const char *const texts[] = {
#define ERR_TEXT(name, text) text,
        ERR_LIST(ERR_TEXT)
#undef ERR_TEXT
    };
    return (size_t)err < sizeof texts / sizeof texts[0] ? texts[err] : "unknown error";
}

static void sentence(struct fault *why, const char *format, va_list args)
{
    (void)vsnprintf(why->text, sizeof why->text, format, args);
}

enum err fault_set(struct fault *why, enum err err, const char *format, ...)
{
    if (!why)
        return err;
    va_list args;
    va_start(args, format);
    sentence(why, format, args);
    va_end(args);
    why->os = 0;
    return err;
}

static enum err err_from_os(int os)
{
    switch (os) {
    case ENOSPC:
    case EDQUOT:
        return ERR_DISK_FULL;
    case ENOENT:
        return ERR_NOT_FOUND;
    case EEXIST:
        return ERR_EXISTS;
    case ENOMEM:
        return ERR_NO_MEMORY;
    case EMFILE:
    case ENFILE:
        return ERR_BUSY;
    default:
        return ERR_IO;
    }
}

enum err fault_os(struct fault *why, const char *format, ...)
{
    int os = errno;
    if (!why)
        return err_from_os(os);
    va_list args;
    va_start(args, format);
    sentence(why, format, args);
    va_end(args);
    why->os = os;
    size_t used = strlen(why->text);
    (void)snprintf(why->text + used, sizeof why->text - used, ": %s", strerror(os));
    return err_from_os(os);
}

enum err fault_add(struct fault *why, enum err err, const char *format, ...)
{
    if (!why)
        return err;
    char inner[sizeof why->text];
    memcpy(inner, why->text, sizeof inner);
    va_list args;
    va_start(args, format);
    sentence(why, format, args);
    va_end(args);
    size_t used = strlen(why->text);
    (void)snprintf(why->text + used, sizeof why->text - used, ": %s",
                   inner[0] ? inner : err_text(err));
    return err;
}

_Noreturn void invariant_broken(const char *what, const char *file, int line)
{
    (void)fprintf(stderr, "invariant broken: %s at %s:%d\n", what, file, line);
    abort();
}

void free_at(void *pointer_to_pointer)
{
    void *p;
    memcpy(&p, pointer_to_pointer, sizeof p);
    free(p);
}

int take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

void close_at(int *fd)
{
    int taken = take_fd(fd);
    if (taken >= 0)
        (void)close(taken);
}
