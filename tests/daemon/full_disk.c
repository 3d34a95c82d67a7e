/* full_disk.c - a disk that is as full as a test wants: preloaded into a daemon, it answers the
 * question for space with the percent that stands in the file FULL_DISK. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>

__attribute__((visibility("default"))) int fstatvfs(int fd, struct statvfs *out)
{
    (void)fd;
    const char *path = getenv("FULL_DISK");
    FILE *file = path ? fopen(path, "re") : NULL;
    char text[8] = "";
    if (!file)
        return -1;
    if (!fgets(text, sizeof text, file))
        text[0] = '\0';
    (void)fclose(file);
    unsigned long used = strtoul(text, NULL, 10);
    *out = (struct statvfs){.f_frsize = 1u << 20, .f_blocks = 100};
    out->f_bfree = out->f_bavail = 100 - used;
    return 0;
}
