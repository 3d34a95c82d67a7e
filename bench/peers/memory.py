"""Memory that is at hand before something is measured.

In a virtual machine a page that nobody has used for a while may be the host's, and the first write to it takes long: 2.6 ms
for a MiB on the machine of the report, where it is 0.18 else; a server that met such pages took 1.6 to 2 µs of processor time for a
message instead of 1.0. And where files of those before fill the memory, each page has to be taken from them first.

So as much as will be written is written to a file and given back. What was given back last is given out first; but every two
seconds, if memory has become free, the kernel tells its host of a GiB of that, which takes it. So the file is held until what
was free before it has been told of, and from then on there are two seconds: a measurement has to write less (work.BYTES_MOST).
The writes are as long as those of most servers, since the kernel has memory for each length from another place.
"""

import contextlib
import tempfile
import time

MIB = bytes(1 << 20)
LENGTH = 1 << 17   # of a write
MORE = 1.7         # of what a measurement counts: what comes before it writes as well
HELD_SECONDS = 3   # the kernel's two, and what telling takes


def _available():
    """Bytes that can be had, those included that only keep files at hand."""
    with open("/proc/meminfo") as source:
        return next(int(line.split()[1]) for line in source if line.startswith("MemAvailable:")) * 1024


def make_ready(most):
    """For who writes `most` bytes, at once."""
    begun, part = time.monotonic(), memoryview(MIB)[:LENGTH]
    with tempfile.TemporaryFile(buffering=0) as file:
        with contextlib.suppress(OSError):  # as much as fits
            for _ in range(int(min(MORE * most, _available() // 4)) // LENGTH):
                file.write(part)
        time.sleep(max(0, begun + HELD_SECONDS - time.monotonic()))
