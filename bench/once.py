#!/usr/bin/env python3
"""libonce beside bare loops, on each store in turn: starts the servers and runs bench_once.

    BENCH_ONCE=build/bench/bench_once bench/once.py [memory sqlite redis postgresql mariadb]
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from harness import process, redis, servers  # noqa: E402


def run(url, *workers, **env):
    return subprocess.run([os.environ["BENCH_ONCE"], url, *workers], env=dict(os.environ, **env), check=False).returncode == 0


def with_more(run_with):
    """With 32 workers, and with those that more of them share a commit, each on a server that has seen nothing before."""
    return all([run_with(*workers) for workers in ([], ["64"], ["128"])])


class MariaDB(servers.MariaDB):
    small = []  # as it is installed


def on_mariadb(*workers):
    with MariaDB() as server:
        return run(server.url, *workers, BENCH_MYSQL_USER=servers.USER, BENCH_MYSQL_PASSWORD=servers.PASSWORD,
                   BENCH_MYSQL_PORT=str(server.port), BENCH_MYSQL_DATABASE=server.database)


def on_postgresql(*workers):
    with servers.PostgreSQL() as server:
        return run(server.url, *workers)


def on_redis():
    with redis.Redis(settings={"appendfsync": "everysec"}) as server:  # as it is installed
        return run(server.url)


STORES = {
    "memory": lambda: run("memory:"),
    "sqlite": lambda: run("sqlite:" + os.path.join(process.temp_folder("oncemq-bench-"), "once.db")),
    "redis": on_redis,
    "postgresql": lambda: with_more(on_postgresql),
    "mariadb": lambda: with_more(on_mariadb),
}

sys.exit(0 if all([STORES[name]() for name in sys.argv[1:] or STORES]) else 1)
