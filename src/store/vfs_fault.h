/* vfs_fault.h - a disk that fails, for tests only.
 *
 * Stands in front of another vfs and does what disks do on bad days: operation n fails (a write may
 * have left a part behind), or the power goes: from operation n on everything fails, and what was
 * not synced is there afterwards in part, in any mixture of 512-byte sectors, or not at all. Files
 * and folders whose folder was not synced may be missing, removed ones may be back.
 */
#ifndef STORE_VFS_FAULT_H
#define STORE_VFS_FAULT_H

#include "base/dice.h"
#include "base/vfs.h"

#include <pthread.h>

struct vfs_fault {
    struct vfs vfs;
    struct vfs *below; /* stays the caller's */
    pthread_mutex_t lock;
    struct dice dice;

    unsigned long operations; /* that change something or could fail, counted from 1 */
    unsigned long fail_at;    /* 0: never */
    unsigned long fail_times; /* so many in a row */
    enum err fail_with;
    unsigned long writes, clears, reserves, syncs, pushes;

    struct vfs_space (*space)(void *user); /* what the disk says; NULL: the truth */
    void *space_user;

    struct fault_node *nodes;
    struct fault_removed *removed;
    struct fault_folder *folders;
};

struct vfs_fault *vfs_fault_new(struct vfs *below, uint64_t seed);
void vfs_fault_free(struct vfs_fault *f);

/* Counted from now on. */
void vfs_fault_plan(struct vfs_fault *f, unsigned long at, unsigned long times, enum err err);
/* The power comes back: the disk below is as it may be now. No file is open. */
void vfs_fault_power_loss(struct vfs_fault *f);

#endif
