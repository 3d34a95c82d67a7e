#!/usr/bin/env python3
"""libonce on the ledger of a broker, beside the same broker without it: starts an oncemqd and runs bench_ledger.

    ONCEMQD=build/oncemqd BENCH_LEDGER=build/bench/bench_ledger bench/ledger.py
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from harness import daemon  # noqa: E402

with daemon.Daemon() as broker:
    status = subprocess.run([os.environ["BENCH_LEDGER"], broker.names], check=False).returncode
sys.exit(status)
