#!/usr/bin/env python3
"""The official Java clients 5.5.0 and 4.9.8, unchanged, live on our brokers as they do on Apache's.

Two brokers and three name servers, one Java program per release with many clients in it, and scenarios by theme in the
folder java. Their names begin with the rows of the checklist that they show. ENDPOINT=apache runs the same against
Apache's own servers, which proves the scenarios; ENDPOINT=host:port against a name server that exists, without those
that kill, restart or configure.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import apache, tap  # noqa: E402
from java import sending, groups, reading, retries, timers, transactions, admin, losses, crash  # noqa: E402, F401

if __name__ == "__main__":
    reason = apache.missing()
    if reason:
        tap.skip_all(reason)
    tap.main()
