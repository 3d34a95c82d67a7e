"""What `make install` installs works from where it is, in a folder that is no system's."""

import glob
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, process, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402

BUILD, PREFIX, SANITIZE = os.environ["BUILD_ROOT"], os.environ["PREFIX"], os.environ["SANITIZE"]
root = process.temp_folder()
here = root + PREFIX


def run(*command, env=None, **more):
    """Nothing of the build folder helps it."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("ONCE", "LD_"))}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={**clean, "HOME": root, **(env or {})}, **more)


def need(*command, **more):
    done = run(*command, **more)
    tap.check(done.returncode == 0, "%s: status %d\n%s%s" % (command, done.returncode, done.stdout, done.stderr))
    return done.stdout


def installed(pattern):
    found = glob.glob(os.path.join(here, pattern))
    tap.check(found, "there is no %s" % pattern)
    return found[0]


@tap.test("everything is there: programs, libraries, headers, pkg-config, man pages, completions, the unit")
def _():
    need("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", root)
    for each in ("bin/oncemq", "bin/oncemqd", "include/oncemq.h", "include/once.h", "lib*/**/liboncemq.so.0", "lib*/**/libonce.so.0",
                 "lib*/**/pkgconfig/oncemq.pc", "lib*/**/pkgconfig/once.pc", "share/man/man1/oncemq.1*", "share/man/man8/oncemqd.8*",
                 "share/bash-completion/completions/oncemq", "share/zsh/site-functions/_oncemq", "lib/systemd/system/oncemqd.service"):
        tap.check(glob.glob(os.path.join(here, each), recursive=True), "there is no %s" % each)


@tap.test("oncemq and oncemqd run from there, with the libraries from there")
def _():
    oncemq = installed("bin/oncemq")
    tap.check(need(oncemq, "--version").startswith("oncemq "), "no version")
    linked = re.findall(r"(liboncemq|libonce)\.so\S* => (\S+)", need("ldd", oncemq))
    tap.check(linked and all(path.startswith(here + "/") for _, path in linked), linked)
    with Daemon(binary=installed("bin/oncemqd")) as daemon:
        tap.equal(need(oncemq, "topic", "list", "-n", daemon.names).splitlines()[0].split()[0], "TOPIC")


@tap.test("a program is built with pkg-config, and libonce finds its drivers beside itself")
def _():
    cc = shutil.which("cc")
    if not cc or not shutil.which("pkg-config"):
        tap.skip("cc or pkg-config is missing")
    folder = os.path.dirname(glob.glob(os.path.join(here, "lib*/**/pkgconfig/once.pc"), recursive=True)[0])
    flags = need("pkg-config", "--cflags", "--libs", "once", "oncemq", env={"PKG_CONFIG_PATH": folder, "PKG_CONFIG_SYSROOT_DIR": root}).split()
    source, program = os.path.join(root, "program.c"), os.path.join(root, "program")
    with open(source, "w", encoding="utf-8") as out:
        out.write('#include <once.h>\n#include <oncemq.h>\n#include <stdio.h>\n'
                  'int main(void)\n{\n    struct once_options with = {.store = "sqlite:once.db", .group = "g", .key = "{msgid}"};\n'
                  '    struct once *once;\n    struct once_error why;\n    if (once_open(&with, &once, &why))\n'
                  '        return printf("%s\\n", why.text), 1;\n    once_close(once);\n    return puts(omq_version()) < 0;\n}\n')
    sanitize = [] if SANITIZE == "none" else ["-fsanitize=" + SANITIZE]
    need(cc, "-o", program, source, *sanitize, *flags, "-Wl,-rpath," + os.path.dirname(folder))
    if not glob.glob(os.path.join(os.path.dirname(folder), "libonce-sqlite.so*")):
        tap.skip("built without SQLite")
    need(program, cwd=root)


@tap.test("man takes the pages as they are")
def _():
    for page in (installed("share/man/man1/oncemq.1*"), installed("share/man/man8/oncemqd.8*")):
        with open(page, encoding="utf-8") as source:
            text = source.read()
        tap.check(text.startswith(".TH ONCEMQ") and ".SH OPTIONS" in text, page)
        if shutil.which("groff"):
            done = run("groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z", page)
            tap.equal((done.returncode, done.stderr), (0, ""), page)
    options = set(re.findall(r"--[a-z-]+", need(installed("bin/oncemqd"), "--help")))
    told = set(re.findall(r"\\fB(--[a-z-]+)", text.replace("\\-", "-")))
    tap.equal(told, options, "the options of oncemqd(8)")


@tap.test("bash loads the completion from where it was installed")
def _():
    script = 'source "$0"; COMP_LINE="oncemq cl"; COMP_POINT=9; _oncemq; echo "${COMPREPLY[@]}"'
    path = os.path.join(here, "bin") + ":" + os.environ["PATH"]
    tap.check("clock" in need("bash", "-c", script, installed("share/bash-completion/completions/oncemq"), env={"PATH": path}).split(), "nothing")


@tap.test("systemd takes the unit, and it names the daemon of this installation")
def _():
    with open(installed("lib/systemd/system/oncemqd.service"), encoding="utf-8") as source:
        unit = source.read()
    tap.check("ExecStart=%s/bin/oncemqd " % PREFIX in unit, unit)
    if not shutil.which("systemd-analyze"):
        tap.skip("systemd-analyze is not on PATH")
    path = os.path.join(root, "oncemqd.service")
    with open(path, "w", encoding="utf-8") as out:
        out.write(re.sub(r"(?m)^Documentation=.*$", "", unit.replace("ExecStart=" + PREFIX, "ExecStart=" + here)))
    done = run("systemd-analyze", "verify", path)
    tap.equal((done.returncode, [line for line in done.stderr.splitlines() if "oncemqd.service" in line]), (0, []), "verdict")


tap.main()
