/* limits.h - what the operating system allows this process, and how it is shared out.
 *
 * Files and connections take descriptors from the same store. A stranger decides how many
 * connections there are, so they get a part of it that leaves enough for the files: a broker that
 * cannot make its next log file is of no use to anybody.
 */
#ifndef DAEMON_LIMITS_H
#define DAEMON_LIMITS_H

#include <stdint.h>

/* FILES_LEAST that the store keeps open, those that slow readers hold beyond it, listeners and
 * loops, and what a moment needs (saving tables, syncing folders). */
#define DESCRIPTORS_KEPT  1024
#define FILES_LEAST       512
#define FILES_MOST        16384 /* with this many queues in use, none is opened anew for a read */
#define DESCRIPTORS_LEAST 1024  /* for a broker: with fewer it fails in the middle of its work */

/* Raises the process's own limit to what `connections` and files can use, as far as it may. Returns
 * the limit. */
uint64_t descriptors_raise(uint64_t connections);

/* How many connections to allow when there are so many descriptors: `wanted`, or fewer. */
unsigned connections_allowed(uint64_t descriptors, unsigned wanted);
/* How many files the store may keep open beside so many connections. */
unsigned files_allowed(uint64_t descriptors, unsigned connections);

#endif
