"""A disk whose fullness a test decides: tests/daemon/full_disk.c, preloaded into a daemon."""

import os
import tempfile

from . import tap


class FullDisk:
    """With `env` a daemon believes that its disk is as full as fill() said last."""

    def __enter__(self):
        module = os.environ.get("FULL_DISK_MODULE")
        if not module:
            tap.skip("FULL_DISK_MODULE does not name full_disk.so")
        self.file = tempfile.NamedTemporaryFile("w", prefix="oncemq-full-")
        self.env = {"LD_PRELOAD": module, "FULL_DISK": self.file.name,
                    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        self.fill(50)
        return self

    def __exit__(self, *_):
        self.file.close()

    def fill(self, percent):
        self.file.seek(0)
        self.file.write("%d\n" % percent)
        self.file.truncate()
        self.file.flush()
