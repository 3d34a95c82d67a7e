/* test_house.h - a store in a folder of its own, and messages that can be told apart. Tests only.
 *
 * Message number n has the topic, queue, tag and body that n says, so what is read can be compared
 * with what must have been sent without keeping it.
 */
#ifndef STORE_TEST_HOUSE_H
#define STORE_TEST_HOUSE_H

#include "base/test.h"
#include "store/store_int.h"
#include "store/vfs_fault.h"

#define HOUSE_LOG_FILE   (64u << 10)
#define HOUSE_QUEUE_FILE 2000u /* 100 units */
#define HOUSE_TOPICS     3
#define HOUSE_QUEUES     2
#define MESSAGE_MAX      2048
#define PROPS_MAX        1024

struct house {
    char folder[64];
    struct vfs *disk;
    struct vfs_fault *fault;
    struct clock_manual clock;
    struct store_options options;
    size_t shelf_units, shelf_room; /* of a store that is opened; 0: as many as ever */
    struct store *store;
    struct store_report report;
    struct fault why;
};

void house_init(struct house *h, uint64_t seed);         /* an empty folder, no store yet */
void house_vary_shelves(struct house *h, uint64_t seed); /* big or small ones, many or few */
void house_clear(struct house *h);                       /* abandons a store that is open */
enum err house_open(struct house *h);
void house_must_open(struct house *h);
void house_must_close(struct house *h);
void house_crash(struct house *h); /* the process ends: what the kernel has is still there */
void house_path(const struct house *h, const char *path, char out[512]);
/* Changes a file from outside. */
void house_flip(const struct house *h, const char *path, uint64_t at, uint8_t with);
void house_remove(const struct house *h, const char *path);
void house_truncate(const struct house *h, const char *path, uint64_t size);
uint64_t house_size(const struct house *h, const char *path);
bool house_has(const struct house *h, const char *path);

/* Message n. The buffers belong to `room`. */
struct message_room {
    char topic[16], props[PROPS_MAX];
    uint8_t body[MESSAGE_MAX];
};
struct draft house_message(struct house *h, uint64_t n, struct message_room *room);
struct draft_marks house_marks(const struct draft *d); /* as whoever prepares it would say */
struct bytes message_topic(uint64_t n, char out[16]);
int32_t message_queue(uint64_t n);

/* Sends messages from..from+count-1, one call. */
enum err house_send(struct house *h, uint64_t from, size_t count, struct stored *out,
                    uint64_t *end);
void house_must_send(struct house *h, uint64_t from, size_t count);
void house_dispatch(struct house *h); /* all there is */

/* The number a record says it is; the record must be exactly that message. */
uint64_t message_check(const struct record *r);
/* Reads every queue from end to end. Each message is as it was sent and stands at its offset;
 * `seen` (n of them, may be NULL) counts how often each number was met. Returns how many there
 * were. */
uint64_t house_read_all(struct house *h, uint8_t *seen, uint64_t n);

#endif
