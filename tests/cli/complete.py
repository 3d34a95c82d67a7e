"""Completion: what shells offer, from the table of commands and from the servers."""

import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, fake, tap  # noqa: E402
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


@tap.test("topics are offered where a command takes one, by argument and by option")
def _():
    tap.equal(offered("topic", "show", ""), ["Oranges", "Orders", "Payments"])
    tap.equal(offered("topic", "show", "Or"), ["Oranges", "Orders"])
    tap.equal(offered("topic", "show", "--json", "P"), ["Payments"], "behind a switch")
    tap.equal(offered("topic", "show", "--timeout", "2s", "P"), ["Payments"], "behind an option with a value")
    tap.equal(offered("top", "--topic", "Ord"), ["Orders"])
    tap.equal(offered("top", "--topic=Ord"), ["Orders"])
    tap.equal(offered("topic", "show", "Orders", ""), [], "there is one argument")


@tap.test("groups are offered where a command takes one")
def _():
    tap.equal(offered("top", "--group", ""), ["audit", "billing"])
    tap.equal(offered("top", "--group", "b"), ["billing"])


@tap.test("contexts are offered, and the line says where to look")
def _():
    nowhere.ok("context", "set", "here", "names=%s" % cluster.names)
    nowhere.ok("context", "set", "there", "names=127.0.0.1:2")
    tap.equal(offered("topic", "list", "--context", "", on=nowhere), ["here", "there"])
    tap.equal(offered("context", "use", "th", on=nowhere), ["there"])
    env = {"ONCEMQ_NAMES": ""}
    tap.equal(offered("topic", "show", "--context", "here", "Ord", on=nowhere, env=env), ["Orders"])
    tap.equal(offered("--context", "here", "topic", "show", "Ord", on=nowhere, env=env), ["Orders"], "before the command")
    tap.equal(offered("-n", cluster.names, "topic", "show", "Ord", on=nowhere), ["Orders"])
    tap.equal(offered("topic", "show", "-n%s" % cluster.names, "Ord", on=nowhere), ["Orders"])


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
        tap.equal(offered("topic", "show", "-n", names.address, "", on=nowhere), ["Good"])


def in_bash(line):
    script = 'source <("$0" completion bash); COMP_LINE="$1"; COMP_POINT=${#1}; _oncemq; printf "%s\\n" "${COMPREPLY[@]}"'
    env = dict(cluster.env(), PATH=os.path.dirname(cluster.binary) + ":" + os.environ["PATH"])
    done = subprocess.run(["bash", "-c", script, cluster.binary, line], capture_output=True, text=True, env=env, timeout=60, check=False)
    tap.equal((done.returncode, done.stderr), (0, ""))
    return sorted(set(done.stdout.split()))


@tap.test("bash: the function of the script completes commands, topics and names with colons in the line")
def _():
    tap.equal(in_bash("oncemq topic sh"), ["show"])
    tap.equal(in_bash("oncemq topic show Ord"), ["Orders"])
    tap.equal(in_bash("oncemq -n %s topic show " % cluster.names), ["Oranges", "Orders", "Payments"])


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


tap.main()
