/* err.h - the one way to fail.
 *
 * A function that can fail returns `enum err` and nothing else; outputs are written only on
 * success. The code says what kind of failure it is. Where a human has to act on it (start-up,
 * recovery, configuration), the last parameter is a `struct fault *`, which may be NULL and
 * carries the sentence.
 *
 * Two different things can be wrong. The world (a peer, a disk, a user) is an `enum err`. We
 * ourselves are an `invariant`, which stays on in production and stops the process. Never put an
 * invariant on something a packet can cause.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>

#define ERR_LIST(X)                                                                                \
    X(OK, "ok")                                                                                    \
    X(ERR_NO_MEMORY, "out of memory")                                                              \
    X(ERR_IO, "input/output error")                                                                \
    X(ERR_DISK_FULL, "no space left on the disk")                                                  \
    X(ERR_MALFORMED, "malformed")                                                                  \
    X(ERR_INCOMPLETE, "more bytes are needed")                                                     \
    X(ERR_TOO_BIG, "too big")                                                                      \
    X(ERR_NOT_FOUND, "not found")                                                                  \
    X(ERR_EXISTS, "exists already")                                                                \
    X(ERR_IN_USE, "in use")                                                                        \
    X(ERR_INVALID, "invalid")                                                                      \
    X(ERR_DENIED, "not permitted")                                                                 \
    X(ERR_RANGE, "out of range")                                                                   \
    X(ERR_BUSY, "busy")                                                                            \
    X(ERR_TIMEOUT, "timed out")                                                                    \
    X(ERR_CLOSED, "closed")                                                                        \
    X(ERR_DAMAGED, "damaged")                                                                      \
    X(ERR_MISMATCH, "does not match")                                                              \
    X(ERR_UNSUPPORTED, "not supported")                                                            \
    X(ERR_READ_ONLY, "read only")                                                                  \
    X(ERR_UNKNOWN_TOPIC, "unknown topic")                                                          \
    X(ERR_UNKNOWN_GROUP, "unknown group")                                                          \
    X(ERR_NOT_SUBSCRIBED, "not subscribed")                                                        \
    X(ERR_STALE, "not the latest")

enum err {
#define ERR_ENUM(name, text) name,
    ERR_LIST(ERR_ENUM)
#undef ERR_ENUM
};

#define must_check        __attribute__((warn_unused_result))
#define printf_like(f, a) __attribute__((format(printf, f, a)))
#define unlikely(x)       __builtin_expect(!!(x), 0)

/* The sentence that goes with a failure. Zero-initialise it; it owns no memory. */
struct fault {
    int os; /* errno, or 0 */
    char text[480];
};

const char *err_text(enum err err);

/* Writes the sentence and returns `err`, so that `return fault_set(why, ERR_X, "...")` reads well.
 */
enum err fault_set(struct fault *why, enum err err, const char *format, ...) printf_like(3, 4);

/* The same with errno's text appended: ERR_DISK_FULL for ENOSPC and EDQUOT, ERR_NOT_FOUND for
 * ENOENT, ERR_EXISTS for EEXIST, ERR_NO_MEMORY for ENOMEM, ERR_BUSY for EMFILE and ENFILE (no file
 * handle is free just now), else ERR_IO. */
enum err fault_os(struct fault *why, const char *format, ...) printf_like(2, 3);

/* Puts a context in front of a sentence that is already there: "loading topics.json: ...". */
enum err fault_add(struct fault *why, enum err err, const char *format, ...) printf_like(3, 4);

_Noreturn void invariant_broken(const char *what, const char *file, int line);
#define invariant(cond)                                                                            \
    do {                                                                                           \
        if (unlikely(!(cond)))                                                                     \
            invariant_broken(#cond, __FILE__, __LINE__);                                           \
    } while (0)

/* Ownership. `cleanup(free_at)` frees a local when it goes out of scope; `take` moves it out. */
#define cleanup(fn) __attribute__((cleanup(fn)))
#define take(p)                                                                                    \
    __extension__({                                                                                \
        __typeof__(*(p)) taken_ = *(p);                                                            \
        *(p) = NULL;                                                                               \
        taken_;                                                                                    \
    })

void free_at(void *pointer_to_pointer);
int take_fd(int *fd);   /* leaves -1 */
void close_at(int *fd); /* so does this: whoever comes second closes nobody else's */

#endif
