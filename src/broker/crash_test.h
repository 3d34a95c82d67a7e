/* crash_test.h - a rig whose process ends anywhere, or whose power goes.
 *
 * Only for the x_test.c files of this folder.
 */
#ifndef BROKER_CRASH_TEST_H
#define BROKER_CRASH_TEST_H

#include "broker/rig_test.h"
#include "store/vfs_fault.h"

#include <limits.h>

/* The same rig on a disk that can be made to fail. */
static inline struct vfs_fault *fault_under(struct rig *rig, uint64_t seed)
{
    struct vfs_fault *fault = vfs_fault_new(rig->vfs, seed);
    rig_stop(rig);
    rig->options.vfs = rig->store_vfs = &fault->vfs;
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    return fault;
}

/* From here on nothing reaches the disk, as if the process had ended here. */
static inline void fault_crash(struct rig *rig, struct vfs_fault *fault)
{
    vfs_fault_plan(fault, 1, ULONG_MAX, ERR_IO);
    desk_close(rig->desk);
    enum err err = broker_close(rig->broker, NULL);
    (void)err;
    err = store_close(rig->store, NULL);
    (void)err;
    vfs_fault_plan(fault, 0, 0, OK);
}

static inline void fault_over(struct rig *rig, struct vfs_fault *fault)
{
    rig_stop(rig);
    rig->broker = NULL;
    rig->options.vfs = rig->vfs;
    rig->store_vfs = NULL;
    vfs_fault_free(fault);
}

/* A stopped rig begins again with an empty folder. */
static inline void rig_anew(struct rig *rig)
{
    (void)nftw(rig->folder, rig_remove, 16, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(rig->folder, 0700), 0);
    rig->vfs->calls->dispose(rig->vfs);
    struct fault why = {0};
    assert_int_equal(vfs_posix_open(rig->folder, &rig->vfs, &why), OK);
    rig->options.vfs = rig->vfs;
    assert_int_equal(rig_start(rig, &why), OK);
}

#endif
