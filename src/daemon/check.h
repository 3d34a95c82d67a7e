/* check.h - oncemqd --check DIR: is a data folder sound? For people and scripts; serves nothing. */
#ifndef DAEMON_CHECK_H
#define DAEMON_CHECK_H

#include "base/err.h"

/* Prints a line for each finding and a closing summary on standard output, and progress on standard
 * error if that is a terminal. `*sound` is false when something is damaged. */
must_check enum err check_folder(const char *folder, bool *sound, struct fault *why);

#endif
