"""Runs a test program of a database engine against a real server, which it can have killed and started again.

    engines.py postgresql|mariadb durable|quick PROGRAM

The program finds its store in STORE_URL, and says what shall become of the server through the socket CONTROL_FD: a word
is the name of a method of servers.Server, the answer is "ok" when that is done. What it prints is TAP already. `quick`:
the server does not wait for its disk.
"""

import os
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import process, servers  # noqa: E402

COMMANDS = ("kill9", "stop", "start", "pause", "resume")


def serve(server, control):
    """Obeys until the program closes its end."""
    while True:
        word = control.recv(64).decode()
        if not word:
            return
        answer = "ok"
        try:
            if word not in COMMANDS:
                raise process.Failed("no such command: %r" % word)
            getattr(server, word)()
        except process.Failed as failure:
            answer = str(failure).replace("\n", " ")
        control.sendall((answer + "\n").encode())


def main():
    kind, speed, program = sys.argv[1:]
    server_class = {"postgresql": servers.PostgreSQL, "mariadb": servers.MariaDB}[kind]
    if server_class.missing:
        print("1..0 # SKIP %s" % server_class.missing)
        return 0
    with server_class(durable=speed == "durable") as server:
        ours, theirs = socket.socketpair()
        env = dict(os.environ, STORE_URL=server.url, CONTROL_FD=str(theirs.fileno()))
        if kind == "mariadb":
            env["STORE_URL_SOCKET"] = server.url_by_socket
        with subprocess.Popen([program], env=env, pass_fds=[theirs.fileno()],
                              preexec_fn=process.die_with_parent) as child:
            theirs.close()
            serve(server, ours)
            status = child.wait(60)
        if status != 0:
            for line in server.tail(15):
                print("# %s: %s" % (kind, line))
        return status


sys.exit(main())
