"""What all commands have in common: options, help, forms of output, contexts, failures."""

import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, process, tap  # noqa: E402

cluster = cli.Cluster()
nowhere = cli.Cluster(start=False)


@tap.test("a list is a table in a pipe, and an array of objects with --json")
def _():
    table = cluster.ok("topic", "list", "-a").out.splitlines()
    tap.equal(table[0].split()[0], "TOPIC")
    tap.equal([each["topic"] for each in cluster.json("topic", "list", "--all")], [line.split()[0] for line in table[1:]])


@tap.test("colours are for terminals, and NO_COLOR and --color have the last word")
def _():
    def shown(*args, **env):
        with cluster.terminal("topic", "list", *args, env=env) as t:
            tap.equal(t.end(), cli.OK)
            return "\033[" in t.text
    tap.check(shown(), "no colour on a terminal")
    tap.check(not shown("--color", "never"), "colour in spite of --color never")
    tap.check(not shown(NO_COLOR="1"), "colour in spite of NO_COLOR")
    tap.check("\033[" not in cluster.ok("topic", "list").out, "colour in a pipe")
    tap.check("\033[" in cluster.ok("topic", "list", "--color=always").out, "no colour in spite of --color=always")


@tap.test("what is misspelt is refused with the nearest name, and nothing is done")
def _():
    for args, meant in ((("topic", "lst"), "topic list"), (("topc", "list"), "topic list"), (("topic", "list", "--josn"), "--json"),
                        (("context", "list", "--contxt", "x"), "--context")):
        result = cluster.run(*args, status=cli.USAGE)
        tap.check("did you mean" in result.err and meant in result.err, result)
        tap.equal(result.out, "")
    tap.check("--help" in cluster.run("zzzzzzzzzz", status=cli.USAGE).err, "no way out is shown")


@tap.test("a value that makes no sense is refused with what would be one")
def _():
    tap.check("90s" in cluster.run("topic", "list", "--timeout", "soon", status=cli.USAGE).err, "no example")
    tap.check("auto|always|never" in cluster.run("topic", "list", "--color", "red", status=cli.USAGE).err, "no choices")
    tap.check("needs a value" in cluster.run("topic", "list", "--timeout", status=cli.USAGE).err, "a value is missing")
    tap.check("no argument" in cluster.run("topic", "list", "x", status=cli.USAGE).err, "one argument too many")


@tap.test("every command explains itself, and the manual, docs/cli.md and completions have them all")
def _():
    manual = cluster.ok("help", "man").out.replace("\\-", "-")
    documented = cluster.ok("help", "markdown").out
    with open(os.path.join(cli.ROOT, "docs", "cli.md"), encoding="utf-8") as source:
        tap.check(source.read() == documented, "docs/cli.md is not what `oncemq help markdown` says: make docs")
    commands = re.findall(r"^### oncemq ([a-z0-9 -]*[a-z0-9])", documented, re.M)
    tap.check(len(commands) > 5, commands)
    tap.equal(len(commands), len(set(commands)), "how many there are, each once")
    for command in commands:
        text = cluster.ok(*command.split(), "--help").out
        tap.check(text.startswith("oncemq %s - " % command) and text.endswith("of all commands.\n"), text)
        tap.check(".SS %s" % command in manual, "the man page has no %s" % command)
        words = command.split()
        offered = cluster.ok("complete", "--", *words[:-1], words[-1][:2]).out.split()
        tap.check(words[-1] in offered, "%s is not completed: %s" % (command, offered))
    tap.check("--json" in cluster.ok("complete", "--", "topic", "list", "--js").out.split(), "options are not completed")


@tap.test("man finds no fault with the man page")
def _():
    if subprocess.run(["sh", "-c", "command -v groff"], capture_output=True, check=False).returncode:
        tap.skip("groff is not installed")
    done = subprocess.run(["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z"], input=cluster.ok("help", "man").out, capture_output=True, text=True,
                          timeout=60, check=False)
    tap.equal((done.returncode, done.stderr), (0, ""))


@tap.test("when no server answers, it is said where we looked and what to do, with status 4")
def _():
    result = nowhere.run("topic", "list", status=cli.UNREACHABLE)
    tap.check("127.0.0.1:1" in result.err and "ONCEMQ_NAMES" in result.err, result)
    said = json.loads(nowhere.run("topic", "list", "--json", status=cli.UNREACHABLE).err)
    tap.equal((said["error"], sorted(said)), ("unreachable", ["error", "hint", "message"]))


@tap.test("contexts: set, listed, used, chosen and forgotten; an option beats the environment, that the context")
def _():
    nowhere.json("context", "set", "here", "names=%s" % cluster.names, "timeout=20s")
    nowhere.json("context", "set", "there", "names=127.0.0.1:2", "access-key=me", "secret-key=s3cret")
    tap.equal([(each["context"], each["current"], each["names"]) for each in nowhere.json("context", "list")],
              [("here", True, cluster.names), ("there", False, "127.0.0.1:2")])
    tap.check("s3cret" not in nowhere.ok("context", "list").out, "a secret is shown")
    path = os.path.join(nowhere.home, ".config", "oncemq", "config")
    tap.equal(os.stat(path).st_mode & 0o777, 0o600, "the mode of the file")
    tap.equal(nowhere.run("topic", "list", env={"ONCEMQ_NAMES": ""}).status, cli.OK, "with the current context")
    tap.check("127.0.0.1:2" in nowhere.run("topic", "list", "--context", "there", env={"ONCEMQ_NAMES": ""}, status=cli.UNREACHABLE).err, "context")
    tap.equal(nowhere.run("topic", "list", "--context", "there", "-n", cluster.names).status, cli.OK, "the option")
    nowhere.ok("context", "use", "there")
    tap.equal(nowhere.run("topic", "list", env={"ONCEMQ_NAMES": ""}).status, cli.UNREACHABLE)
    nowhere.ok("context", "delete", "there")
    tap.check("no context there" in nowhere.run("topic", "list", "--context", "there", status=cli.USAGE).err, "still there")
    nowhere.ok("context", "delete", "here")


CONFIG = """# clusters of the shop
context=stage

# the real one; ask first
[prod]
   names = a:1;b:1~
# signed
secret-key=x

; to try things
[stage]
names = c:1
names = d:1""".replace("~", "  ")


@tap.test("a configuration file is somebody's: what is not changed stays as it is, comments too, and a link stays a link")
def _():
    folder = process.temp_folder()
    path, link = os.path.join(folder, "dotfiles"), os.path.join(folder, "config")

    def after(*args):
        cluster.ok("context", *args, "--config", link)
        tap.equal(os.readlink(link), "dotfiles", "the link")
        with open(path, encoding="utf-8") as file:
            return file.read()

    os.symlink("dotfiles", link)
    tap.check("symbolic link" in cluster.run("context", "set", "a", "names=a:1", "--config", link, status=cli.FAILED).err, "a link to nowhere")
    with open(path, "w", encoding="utf-8") as file:
        file.write(CONFIG)
    tap.equal(after("set", "prod", "secret-key=y", "tls=true"), CONFIG.replace("secret-key=x", "secret-key = y\ntls = true") + "\n")
    tap.equal(after("set", "stage", "names=e:1"), CONFIG.replace("secret-key=x", "secret-key = y\ntls = true").replace("names = d:1", "names = e:1") + "\n")
    tap.equal([each["names"] for each in cluster.json("context", "list", "--config", link)], ["a:1;b:1", "e:1"])
    with open(path, "w", encoding="utf-8") as file:
        file.write(CONFIG)
    tap.equal(after("set", "new", "names=f:1"), CONFIG + "\n\n[new]\nnames = f:1\n")
    tap.equal(after("use", "prod"), CONFIG.replace("context=stage", "context = prod") + "\n\n[new]\nnames = f:1\n")
    tap.equal(after("delete", "prod"), """# clusters of the shop

# the real one; ask first

; to try things
[stage]
names = c:1
names = d:1

[new]
names = f:1
""")
    tap.equal(after("delete", "new").splitlines()[-2:], ["names = d:1", ""])
    tap.equal(after("use", "stage").splitlines()[0], "context = stage")
    with open(path, "wb") as file:
        file.write(b"[a]\nnames=a:1\n\0[b]\n")
    cluster.run("context", "set", "a", "names=b:1", "--config", link, status=cli.USAGE)


@tap.test("a configuration file that makes no sense is refused with its line")
def _():
    path = os.path.join(process.temp_folder(), "config")
    for text, what in (("[a]\nnames\n", ":2:"), ("names=x\n", ":1:"), ("[a]\ncolour=red\n", ":2:"), ("[\n", ":1:")):
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        tap.check(path + what in cluster.run("topic", "list", "--config", path, status=cli.USAGE).err, text)


@tap.test("a reader that goes away ends the command quietly, with status 141")
def _():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([cluster.binary, "topic", "list"], stdout=write, stderr=subprocess.PIPE, env=cluster.env(), timeout=60, check=False)
    os.close(write)
    tap.equal((done.returncode, done.stderr), (cli.PIPE, b""))


@tap.test("a full disk behind stdout is a failure that is said")
def _():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([cluster.binary, "topic", "list"], stdout=full, stderr=subprocess.PIPE, env=cluster.env(), timeout=60, check=False)
    tap.equal(done.returncode, cli.FAILED)
    tap.check(b"No space left" in done.stderr, done)


@tap.test("values that make no sense are refused, also the longest of times")
def _():
    for args, words in (
            (["send", "T", "x", "--at", "+9223372036854774"], "--at"), (["send", "T", "x", "--at", "9223372036854775807"], "--at"),
            (["send", "T", "x", "--delay", "9223372036854774"], "--delay"), (["consume", "T", "--for", "9223372036854774"], "--for"),
            (["consume", "T", "--count", "0"], "--count 0"), (["topic", "list", "--timeout", "0"], "1ms to 1h"),
            (["topic", "list", "--timeout", "2h"], "1ms to 1h"), (["help", "clustr"], "did you mean oncemq cluster"),
            (["run", "--topic", "T", "--group", "g", "--exec", "true", "--count", "0"], "--count 0"), (["--bogus"], "oncemq --help")):
        result = cluster.run(*args, status=cli.USAGE)
        tap.check(words in result.err, "%r in %r" % (words, result))
    tap.check("usage: oncemq topic VERB" in cluster.ok("help", "topic").out, "help of a family")


@tap.test("what is printed goes to no server when a standard file is closed")
def _():
    for fd, status in ((0, cli.OK), (1, cli.FAILED), (2, cli.OK)):
        done = subprocess.run([cluster.binary, "topic", "list"], env=cluster.env(), timeout=60, check=False, preexec_fn=lambda fd=fd: os.close(fd),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        tap.equal(done.returncode, status, "status without file %d: %r" % (fd, done))
        tap.check(fd != 1 or b"writing to stdout" in done.stderr, done)


@tap.test("without a home there are no contexts, and none is made in the root of the machine")
def _():
    env = {"HOME": "", "XDG_CONFIG_HOME": ""}
    cluster.ok("topic", "list", env=env)
    tap.check("--config" in cluster.run("context", "set", "here", "names=a:1", env=env, status=cli.USAGE).err, "what to do is not said")


@tap.test("JSON on a terminal has no control characters, and says the same")
def _():
    name = "a\u009b31m\u007f\u00e9"
    path = os.path.join(process.temp_folder(), "config")
    cluster.ok("context", "set", name, "names=a:1", "--config", path)
    with cluster.terminal("context", "list", "--json", "--config", path) as terminal:
        tap.equal(terminal.end(), cli.OK)
    tap.check("\u009b" not in terminal.text and "\u007f" not in terminal.text, terminal.text)
    tap.equal([each["context"] for each in json.loads(terminal.text)], [name])


tap.main()
