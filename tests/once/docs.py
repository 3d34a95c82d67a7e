"""Every sentence of docs/once.md and docs/once/ that promises something is the name of a test; and the examples do what
their first lines say."""

import os
import pathlib
import re
import shutil
import signal
import subprocess

import stage
from harness import daemon, process, tap

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EXAMPLES = pathlib.Path(os.environ["EXAMPLES"])
ROW = re.compile(r"^(?:[A-Z]{1,2}-\d+ )*")
PAGES = [ROOT / "docs" / "once.md", *sorted((ROOT / "docs" / "once").glob("*.md"))]


def joined(text):
    """String literals that stand side by side are one."""
    return re.sub(r'"\s*\n\s*"', "", text)


def names():
    """What the tests are called, without the rows they prove."""
    found = set()
    for source in (ROOT / "tests" / "once").glob("*.py"):
        for name in re.findall(r'tap\.test\("((?:[^"\\]|\\.)*)"', source.read_text()):
            found |= {name % {}} if "%" not in name else {name.replace("%s", mode) for mode in stage.CLAIMS + ["transaction"]}
    for source in (ROOT / "tests" / "once").glob("suite_*.c"):
        found |= set(re.findall(r'^    \{"([^"]*)",', joined(source.read_text()), re.MULTILINE))
    return {ROW.sub("", name) for name in found}


@tap.test("every promise of the documentation is the name of a test")
def _():
    known = names()
    promises = [promise for page in PAGES for promise in
                re.findall(r"^- \*\*(.+?)\*\*$", page.read_text().replace("\n  ", " "), re.MULTILINE)]
    tap.check(len(promises) > 30, "%d promises" % len(promises))
    tap.equal([promise for promise in promises if promise not in known], [], "promises without a test")


@tap.test("links lead somewhere")
def _():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            tap.check((page.parent / link).exists(), "%s: %s" % (page.name, link))


@tap.test("the library shows what the header declares, and nothing else; a driver shows itself")
def _():
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "include" / "once.h").read_text(), flags=re.DOTALL)
    declared = set(re.findall(r"ONCE_API[^;]*?\b(once_\w+)\(", text))
    folder = pathlib.Path(os.environ["LIBONCE"]).parent
    tap.equal(shown(os.environ["LIBONCE"]), declared, "shown by libonce")
    for name in ("broker", "sqlite", "redis", "postgresql", "mariadb"):
        tap.equal(shown(folder / ("libonce-%s.so.0" % name)), {"once_driver_" + name, "once_form_" + name}, "shown by the driver")


def shown(library):
    out = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in out.splitlines() if "__odr_asan" not in line}


@tap.test("installed, it is found by pkg-config, and finds its drivers")
def _():
    if not shutil.which("pkg-config"):
        tap.skip("pkg-config is not on PATH")
    root = pathlib.Path(process.temp_folder())
    subprocess.run(["meson", "install", "-C", os.environ["BUILD"], "--no-rebuild", "--quiet", "--destdir", root], check=True,
                   stdout=subprocess.DEVNULL, timeout=120)
    [config] = root.rglob("once.pc")
    env = dict(os.environ, PKG_CONFIG_PATH=str(config.parent), PKG_CONFIG_SYSROOT_DIR=str(root))
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "once"], env=env, capture_output=True, text=True,
                           check=True).stdout.split()
    subprocess.run(["cc", "-o", root / "lease", ROOT / "examples" / "once" / "lease.c", *flags, *os.environ["SANITIZE"].split()],
                   check=True)
    [library] = root.rglob("libonce.so.0")
    with daemon.Daemon(binary=os.path.join(os.environ["BUILD"], "src/daemon/oncemqd")) as broker:
        url = "broker://%s/" % broker.names
        for store in ([], [url]):       # the driver for brokers brings the client with it
            done = subprocess.run([root / "lease", *store], input="a\na\n", cwd=root, capture_output=True, text=True, check=False,
                                  env=dict(os.environ, LD_LIBRARY_PATH=str(library.parent)))
            tap.equal((done.returncode, done.stdout), (0, "a handed out\n"), "output: %s" % done.stderr)
        tap.equal(run("lease", url, stdin="a\nb\n")[0], ["b handed out"], "from the build folder, on the same broker")


def run(example, *args, stdin="", cwd=None, status=0):
    done = subprocess.run([str(EXAMPLES / example), *args], input=stdin, cwd=cwd, capture_output=True, text=True,
                          timeout=60, check=False)
    tap.equal(done.returncode, status, "status of %s: %s" % (example, done.stderr))
    return done.stdout.splitlines(), done.stderr.splitlines()


@tap.test("example lease: no line twice, also in another process")
def _():
    home = process.temp_folder()
    given = "coupon-1\ncoupon-1\ncoupon-2\n"
    tap.equal(run("lease", stdin=given, cwd=home)[0], ["coupon-1 handed out", "coupon-2 handed out"], "output")
    tap.equal(run("lease", stdin=given, cwd=home), ([], ["coupon-%d was handed out before" % n for n in (1, 1, 2)]), "again")


@tap.test("example table: no line twice")
def _():
    home = process.temp_folder()
    tap.equal(run("table", stdin="mail-1\nmail-1\n", cwd=home)[0], ["mail-1 sent"], "output")


@tap.test("example transaction: the balance is right however often it runs, and wherever it is killed")
def _():
    home = process.temp_folder()
    given = "pay-1 100\npay-1 100\npay-2 50\n"
    for _ in range(3):
        tap.equal(run("transaction", "bank.db", stdin=given, cwd=home)[0], ["150"], "balance")
    many = "".join("m-%d 1\n" % n for n in range(200))
    for _ in range(3):
        child = subprocess.Popen([str(EXAMPLES / "transaction"), "bank.db"], cwd=home, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        child.stdin.write(many[:1200].encode())
        child.stdin.flush()
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdin.close()
    tap.equal(run("transaction", "bank.db", stdin=many, cwd=home)[0], ["350"], "balance")


@tap.test("example offset: the sum is right however often it runs")
def _():
    home = process.temp_folder()
    given = "".join("%d\n" % n for n in range(1, 101))
    tap.equal(run("offset", "sum.db", stdin=given[:120], cwd=home)[0] and run("offset", "sum.db", stdin=given, cwd=home)[0],
              ["5050"], "sum")
    tap.equal(run("offset", "sum.db", stdin=given, cwd=home)[0], ["5050"], "sum again")


@tap.test("example guard: not yet, paid now, was paid already")
def _():
    home = process.temp_folder()
    said = [run("guard", "shop.db", "order-7", cwd=home)[0][0] for _ in range(3)]
    tap.equal(said, ["order-7 not yet", "order-7 paid now", "order-7 was paid already"], "output")


@tap.test("example steps: a process that died is gone on with where it was")
def _():
    home = process.temp_folder()
    first, _ = run("steps", "order-1", "lock-stock", cwd=home, status=9)
    second, _ = run("steps", "order-1", "charge", cwd=home, status=9)
    third, _ = run("steps", "order-1", cwd=home)
    services = [[line.split()[1] for line in lines if line.startswith("calling")] for lines in (first, second, third)]
    tap.equal(services, [["check-stock", "lock-stock"], ["lock-stock", "charge"], ["charge", "ship"]], "calls")
    tap.equal(first[1], second[0], "the same key for the same step")
    tap.equal(third[-1], "order-1: first", "last line")
    tap.equal(run("steps", "order-1", cwd=home)[0], ["order-1: duplicate"], "and then it is done")


@tap.test("ID-28 example checker: a store of one's own in less than a hundred lines")
def _():
    tap.check(len((ROOT / "examples" / "once" / "checker.c").read_text().splitlines()) < 100, "its length")
    home = process.temp_folder()
    tap.equal(run("checker", home, "a")[0], ["a runs", "a: first"], "output")
    tap.equal(run("checker", home, "a")[0], ["a: duplicate"], "output")
    tap.equal(run("checker", home, "b")[0], ["b runs", "b: first"], "output")


tap.main()
