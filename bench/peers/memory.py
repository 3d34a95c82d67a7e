"""Memory that is at hand before something is measured.

In a virtual machine a page that nobody has used for a while may be the host's, and the first write to it takes long: 2.6 ms
for a MiB on the machine of the report, where it is 0.18 else; a server that met such pages took 2.5 µs of processor time for a
message instead of 1.0. And where files of those before fill the memory, each page has to be taken from them first.

So as much as will be written is written and given back, to a file and by writes as long as those of most servers: the kernel
has memory for each length of a write from another place. Whether it was of use is seen, not believed: it is done again while
some of it was slow. And it is less than a GiB: of free memory beyond that the kernel of the report's machine tells its host at
once, which takes it back, what was given back last first. (Four GiB at once, as this rig did before, left none of it at hand two
times of three.) So a measurement has to write less than that as well: work.BYTES_MOST.
"""

import contextlib
import tempfile
import time

MIB = bytes(1 << 20)
LENGTH = 1 << 17     # of a write
MORE = 1.7           # of what a measurement counts: what comes before it writes as well
SLOW, FEW = 3, 0.01  # times the quickest that was seen; as a part of all
LEAST, MOST = 2, 6   # times: the first has nothing to be compared with

_quickest = float("inf")  # seconds for a MiB


def _available():
    """Bytes that can be had, those included that only keep files at hand."""
    with open("/proc/meminfo") as source:
        return next(int(line.split()[1]) for line in source if line.startswith("MemAvailable:")) * 1024


def _write(pieces):
    """Seconds for each MiB of a new file."""
    took, part = [], memoryview(MIB)[:LENGTH]
    with contextlib.suppress(OSError), tempfile.TemporaryFile(buffering=0) as file:  # as much as fits
        for _ in range(pieces):
            begun = time.perf_counter()
            for _ in range(len(MIB) // LENGTH):
                file.write(part)
            took.append(time.perf_counter() - begun)
    return took


def make_ready(most):
    """For who writes `most` bytes. False: some of it was still slow in the end."""
    global _quickest
    pieces = int(min(MORE * most, _available() // 4)) >> 20
    for number in range(MOST):
        took = _write(pieces)
        _quickest = min([_quickest, *took])
        if number + 1 >= LEAST and sum(each > SLOW * _quickest for each in took) <= FEW * pieces:
            return True
    return False
