"""Runs a test program with a real Redis beside it, and hands on what it says.

    with_redis.py [--release 5.0|6.2] PROGRAM      the server's URL is in its environment as ONCE_REDIS
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from harness import redis  # noqa: E402


def main():
    args = sys.argv[1:]
    release = args[1] if args[0] == "--release" else None
    program = args[2:] if release else args
    try:
        server = redis.Redis(release, settings={"appendfsync": "everysec"})  # nothing is killed here
    except redis.Unavailable as reason:
        print("1..0 # SKIP %s" % " ".join(str(reason).split()))
        return 0
    with server:
        version = server.command("INFO", "server").decode().split("redis_version:")[1].split()[0]
        print("# Redis %s" % version, flush=True)
        status = subprocess.run(program, env=dict(os.environ, ONCE_REDIS=server.url)).returncode
        if status != 0:
            print("".join("# %s\n" % line for line in server.tail()), end="")
        return status


if __name__ == "__main__":
    sys.exit(main())
