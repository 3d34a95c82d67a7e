"""Completion: what shells offer, from the table of commands and from the servers."""

import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, fake, process, tap  # noqa: E402
from harness.crowd import Crowd  # noqa: E402

cluster = cli.Cluster()
nowhere = cli.Cluster(start=False)

with Crowd(cluster.broker) as crowd:
    for topic in ("Orders", "Oranges", "Payments"):
        crowd.topic(topic)
        cluster.wait_route(topic)
    crowd.group("billing")
    crowd.group("audit")


def offered(*words, on=cluster, **more):
    result = on.ok("complete", "--", *words, **more)
    tap.equal(result.err, "", "what it said about %s" % (words,))
    return sorted(set(result.out.split()))


def offers(wanted, *words, **more):
    """The same of what servers are asked for: a busy machine may use up the patience that a person at a keyboard has."""
    process.wait_until(lambda: offered(*words, **more) == wanted, 20, "%s for %s" % (wanted, words))


@tap.test("topics are offered where a command takes one, by argument and by option")
def _():
    offers(["Oranges", "Orders", "Payments"], "topic", "show", "")
    offers(["Oranges", "Orders"], "topic", "show", "Or")
    offers(["Payments"], "topic", "show", "--json", "P")
    offers(["Payments"], "topic", "show", "--timeout", "2s", "P")
    offers(["Orders"], "top", "--topic", "Ord")
    offers(["Orders"], "top", "--topic=Ord")
    tap.equal(offered("topic", "show", "Orders", ""), [], "there is one argument")


@tap.test("groups are offered where a command takes one")
def _():
    offers(["audit", "billing"], "top", "--group", "")
    offers(["billing"], "top", "--group", "b")


@tap.test("contexts are offered, and the line says where to look")
def _():
    nowhere.ok("context", "set", "here", "names=%s" % cluster.names)
    nowhere.ok("context", "set", "there", "names=127.0.0.1:2")
    tap.equal(offered("topic", "list", "--context", "", on=nowhere), ["here", "there"])
    tap.equal(offered("context", "use", "th", on=nowhere), ["there"])
    env = {"ONCEMQ_NAMES": ""}
    offers(["Orders"], "topic", "show", "--context", "here", "Ord", on=nowhere, env=env)
    offers(["Orders"], "--context", "here", "topic", "show", "Ord", on=nowhere, env=env)
    offers(["Orders"], "-n", cluster.names, "topic", "show", "Ord", on=nowhere)
    offers(["Orders"], "topic", "show", "-n%s" % cluster.names, "Ord", on=nowhere)


@tap.test("commands, options and choices need no server")
def _():
    tap.check("clock" in offered("cl", on=nowhere), offered("cl", on=nowhere))
    tap.equal(offered("clock", "", on=nowhere), ["advance", "show"])
    tap.equal(offered("help", "clock", "a", on=nowhere), ["advance"])
    tap.equal(offered("completion", "", on=nowhere), ["bash", "zsh"])
    tap.equal(offered("top", "--view", "t", on=nowhere), ["topics"])
    tap.equal(offered("top", "--vi", on=nowhere), ["--view"])


@tap.test("a server that is not there, or hangs, is silence, soon")
def _():
    tap.equal(offered("topic", "show", "", on=nowhere), [])
    with fake.Fake(lambda request: None) as silent:  # a person at a keyboard does not wait as long as a context says
        nowhere.ok("context", "set", "patient", "names=%s" % silent.address, "timeout=10m")
        tap.equal(offered("topic", "show", "--context", "patient", "", on=nowhere, env={"ONCEMQ_NAMES": ""}), [])


@tap.test("names that would do something to a shell are not offered")
def _():
    def answer(request):
        return fake.reply(body=b'{"brokerAddrTable":{},"clusterAddrTable":{},"topicList":["Good","Bad\\u001b[2J","Two words","With\\nline"]}')
    with fake.Fake(answer) as names:
        offers(["Good"], "topic", "show", "-n", names.address, "", on=nowhere)


def in_bash(line):
    script = 'source <("$0" completion bash); COMP_LINE="$1"; COMP_POINT=${#1}; _oncemq; printf "%s\\n" "${COMPREPLY[@]}"'
    env = dict(cluster.env(), PATH=os.path.dirname(cluster.binary) + ":" + os.environ["PATH"])
    done = subprocess.run(["bash", "-c", script, cluster.binary, line], capture_output=True, text=True, env=env, timeout=60, check=False)
    tap.equal((done.returncode, done.stderr), (0, ""))
    return sorted(set(done.stdout.split()))


@tap.test("bash: the function of the script completes commands, topics and names with colons in the line")
def _():
    tap.equal(in_bash("oncemq topic sh"), ["show"])
    process.wait_until(lambda: in_bash("oncemq topic show Ord") == ["Orders"], 20, "a topic")
    process.wait_until(lambda: in_bash("oncemq -n %s topic show " % cluster.names) == ["Oranges", "Orders", "Payments"], 20, "all topics")


@tap.test("zsh: the script is sound, sourced and from fpath")
def _():
    if not shutil.which("zsh"):
        tap.skip("zsh is not installed")
    folder = os.path.join(cluster.home, "functions")
    os.mkdir(folder)
    with open(os.path.join(folder, "_oncemq"), "w", encoding="utf-8") as out:
        out.write(cluster.ok("completion", "zsh").out)
    for script in ('autoload -Uz compinit; compinit -u; source "$1/_oncemq"; whence _oncemq',
                   'fpath=("$1" $fpath); autoload -Uz compinit; compinit -u; print $_comps[oncemq]'):
        done = subprocess.run(["zsh", "-fc", script, "zsh", folder], capture_output=True, text=True, env=cluster.env(), timeout=60, check=False)
        tap.equal((done.returncode, done.stdout.strip(), done.stderr), (0, "_oncemq", ""))


ZSHRC = """
PS1='%% '
cd "$HOME"
fpath=("$HOME/functions" $fpath)
autoload -Uz compinit
compinit -u -d "$HOME/dump"
tell() { print -r -- "$BUFFER" >| "$HOME/buffer"; BUFFER= }
zle -N tell
bindkey '^B' tell
print "ready for"" keys"
"""


class Zsh:
    """A zsh that somebody sits at, with our script in fpath."""

    def __init__(self):
        self.home = process.temp_folder()
        os.mkdir(os.path.join(self.home, "functions"))
        for name, text in ((".zshrc", ZSHRC), ("functions/_oncemq", cluster.ok("completion", "zsh").out), ("letters-to-all", "")):
            with open(os.path.join(self.home, name), "w", encoding="utf-8") as out:
                out.write(text)
        env = dict(cluster.env(), HOME=self.home, ZDOTDIR=self.home, PATH=os.path.dirname(cluster.binary) + ":" + os.environ["PATH"])
        self.terminal = cli.Terminal(["zsh", "-d", "-i"], env).expect("ready for keys")

    def completed(self, line):
        """The line after the key Tab."""
        path = os.path.join(self.home, "buffer")
        self.terminal.type(line + "\t\x02")
        process.wait_until(lambda: self.terminal.read() or os.path.exists(path) and os.path.getsize(path), 20, "the line that zsh has for %r" % line)
        with open(path, encoding="utf-8") as buffer:
            text = buffer.read().rstrip("\n")
        os.remove(path)
        return text


@tap.test("zsh: the key Tab completes commands, topics, values behind = and, where we know nothing, files")
def _():
    if not shutil.which("zsh"):
        tap.skip("zsh is not installed")
    zsh = Zsh()
    with zsh.terminal:
        tap.equal(zsh.completed("oncemq dlq dr"), "oncemq dlq drop ")
        tap.equal(zsh.completed("oncemq top --view=t"), "oncemq top --view=topics ")
        tap.equal(zsh.completed("oncemq dlq drop --before -7d --dry"), "oncemq dlq drop --before -7d --dry-run ")
        tap.equal(zsh.completed("oncemq send Orders --file let"), "oncemq send Orders --file letters-to-all ")
        for line, whole in (("topic show Ord", "topic show Orders "), ("top --topic=Pay", "top --topic=Payments "), ("dlq show bil", "dlq show billing "),
                            ("-n %s topic show Ora" % cluster.names, "-n %s topic show Oranges " % cluster.names)):
            process.wait_until(lambda line=line, whole=whole: zsh.completed("oncemq " + line) == "oncemq " + whole, 20, whole)


tap.main()
