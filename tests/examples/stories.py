"""The stories in examples/: each folder's kill-it-yourself script, run as a user would run it. The environment variable
STORY names the folder; `all` stands for what is true of every one."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness import process, tap  # noqa: E402

ROOT = HERE.parent.parent
EXAMPLES = ROOT / "examples"
STORIES = sorted(script.parent.name for script in EXAMPLES.glob("*/kill-it-yourself.sh"))
STORY = os.environ["STORY"]
TIMEOUT = 240


def play(story, examples=EXAMPLES, **env):
    """Runs the script of a story; returns its exit status and what it said."""
    folder = process.temp_folder("story-")
    os.chmod(folder, 0o755)     # PostgreSQL has a user of its own
    child = subprocess.Popen([examples / story / "kill-it-yourself.sh"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, start_new_session=True, preexec_fn=process.die_with_parent,
                             env=dict(os.environ, TMPDIR=folder, KEEP="yes", **env))
    try:
        said, _ = child.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGTERM)    # the script takes down what it started
        said, _ = child.communicate(timeout=30)
        said += "it did not end within %d s\n" % TIMEOUT
    if child.returncode != 0:
        for log in pathlib.Path(folder).glob("*/log"):
            said += "".join("log: %s\n" % line for line in process.tail(log, 60))
    tap.note(said)
    return child.returncode, said


def effect_stays_single(story, **env):
    status, said = play(story, **env)
    tap.equal(status, 0, "exit status")
    tap.check("ok: " in said and "NOT SO" not in said, "its facts")
    readme = (EXAMPLES / story / "README.md").read_text()
    promised = re.findall(r"^ +(ok: .*)$", readme, re.MULTILINE)
    tap.check(promised, "its README says what one should see")
    tap.equal([fact for fact in promised if "  %s\n" % fact not in said], [], "what the README promises and nobody saw")
    tap.check(said.count("with -9") >= 5, "it kills")


if STORY == "coupons":
    @tap.test("coupons: killed in the middle, each coupon is handed out once")
    def _():
        effect_stays_single("coupons")

    @tap.test("coupons: with the locks in a Redis, too")
    def _():
        if not shutil.which("redis-server"):
            tap.skip("redis-server is not on PATH")
        effect_stays_single("coupons", STORE="redis")

    @tap.test("coupons: with a store that dies with its process the script sees the difference, and fails")
    def _():
        status, said = play("coupons", STORE="memory:")
        tap.check(status == 1 and "NOT SO: coupons handed out" in said, "it noticed")

elif STORY == "orders-and-payments":
    @tap.test("orders-and-payments: killed in its transactions, every coin is booked once, in PostgreSQL")
    def _():
        effect_stays_single("orders-and-payments")

    @tap.test("orders-and-payments: in SQLite, and it says so")
    def _():
        effect_stays_single("orders-and-payments", STORE="sqlite")

elif STORY == "all":
    @tap.test("every story has a README, a Makefile and a script that can be run; examples/README.md lists it")
    def _():
        listed = (EXAMPLES / "README.md").read_text()
        for story in STORIES:
            for name in ("README.md", "Makefile", "meson.build"):
                tap.check((EXAMPLES / story / name).exists(), "%s/%s" % (story, name))
            tap.check(os.access(EXAMPLES / story / "kill-it-yourself.sh", os.X_OK), "%s: the script is executable" % story)
            tap.check("(%s/README.md)" % story in listed, "%s is listed" % story)
        for page in [*EXAMPLES.glob("*.c"), *EXAMPLES.glob("once/*.c")]:
            tap.check("(%s)" % page.relative_to(EXAMPLES) in listed, "%s is listed" % page.name)

    @tap.test("links of the READMEs lead somewhere")
    def _():
        for page in EXAMPLES.rglob("*.md"):
            for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
                tap.check((page.parent / link).exists(), "%s: %s" % (page, link))

    @tap.test("programs are short, and say in their first lines what they do")
    def _():
        for source in EXAMPLES.glob("*/*.c"):
            lines = source.read_text().splitlines()
            tap.check(lines[0].startswith("/* ") and len(lines) <= 150, "%s: %d lines" % (source, len(lines)))

    @tap.test("each builds alone, with its Makefile, against an installed library, and runs")
    def _():
        for tool in ("pkg-config", "make"):
            if not shutil.which(tool):
                tap.skip("%s is not on PATH" % tool)
        root = pathlib.Path(process.temp_folder())
        subprocess.run(["meson", "install", "-C", os.environ["BUILD"], "--no-rebuild", "--quiet", "--tags", "runtime,devel", "--destdir", root],
                       check=True, timeout=120)
        shutil.copytree(EXAMPLES, root / "examples", ignore=shutil.ignore_patterns("once"))
        [config] = root.rglob("oncemq.pc")
        # Only ours are in there; those of the system are not moved.
        for ours in config.parent.glob("*.pc"):
            ours.write_text(ours.read_text().replace("prefix=", "prefix=%s" % root, 1))
        env = dict(os.environ, PKG_CONFIG_PATH=str(config.parent))
        for story in STORIES:
            built = subprocess.run(["make", "-C", root / "examples" / story, "CFLAGS=-O0 -Wall -Wextra -Werror " + os.environ["SANITIZE"]],
                                   env=env, capture_output=True, text=True, timeout=120, check=False)
            tap.equal(built.returncode, 0, "%s: %s" % (story, built.stderr))

        # And a story is told with nothing but what is installed.
        [command] = root.rglob("bin/oncemq")
        library = str(next(root.rglob("liboncemq.so.0")).parent)
        status, _ = play("order-flow", root / "examples", BUILD="", PATH="%s:%s" % (command.parent, os.environ["PATH"]),
                         LD_LIBRARY_PATH=library, ONCE_DRIVERS=library)
        tap.equal(status, 0, "exit status")

else:
    @tap.test("%s: killed in the middle, the effect stays single" % STORY)
    def _():
        effect_stays_single(STORY)

tap.main()
