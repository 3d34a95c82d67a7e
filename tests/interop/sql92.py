#!/usr/bin/env python3
"""SQL92 expressions: ours against Apache RocketMQ's own filter, and its Java consumer with ours.

As a test: some thousand expressions by chance, with properties, go through Apache's parser and evaluator; our unit test
(SQL92_TEST, the program `broker_sql92_test`) then has to give the same results. SEED=… repeats a run. Then an unmodified
push consumer with an expression reads from a daemon.

    tests/interop/sql92.py --write      writes tests/vectors/sql92.txt: the table below and expressions of a fixed seed

A line of the table is a result, the expression and the properties, separated by tabs (see Sql92Oracle.java).
"""

import os
import pathlib
import random
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from harness import apache, process, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402

VECTORS = TESTS / "vectors" / "sql92.txt"
WRITTEN_SEED, WRITTEN_COUNT, TESTED_COUNT = 92, 1500, 20000

# Everything the grammar has, and its odd corners. Each expression meets each row of its properties.
ROWS = [{"a": "5", "b": "x"}, {"a": "7.5", "b": "5"}, {"b": "true"}, {}]
TABLE = """
a = 5|a <> 5|a > 4|a >= 5|a < 5|a <= 5|a = 5.0|a > 4.5|5 = a|4 < a|4.5 < a|a = '5'|'5' = a|a = 'x'|a <> 'x'
a = 5L|a = 5l|a = 3000000000|a > 3000000000|3000000000 < a|a = 9223372036854775807|a = 9223372036854775808
a = -5|a > -1|a > - 1|a > --1|a > -(-1)|a > +1|+a > 1|-a > 1|-a IS NULL|a = -9223372036854775808|a > -2147483649
a = 05|a = 0|a = 00|a = 5.|a = .5|a = 5e0|a = 5E+0|a = 50e-1|a = 5.0e0|a = 5e|a = 0.0|a = 1e400|a = 1e-400|a = 0L
a = 4.9e-324|a = 1.7976931348623157e308|a = 1.7976931348623159e308|a < 1e308|a = 0e0|a = 00.5|a = 1.5.5|a = .
a BETWEEN 1 AND 5|a BETWEEN 5 AND 1|a BETWEEN -1 AND -5|a NOT BETWEEN 1 AND 4|a NOT BETWEEN 4 AND 1|a BETWEEN b AND 9
a BETWEEN '1' AND '9'|a BETWEEN 1 AND b|a BETWEEN NULL AND 5|a NOT BETWEEN NULL AND 5|TRUE BETWEEN 1 AND 5
a BETWEEN 1.5 AND 7|a BETWEEN 1 AND 3000000000|5 BETWEEN a AND 9|5 BETWEEN 1 AND 9|5 NOT BETWEEN 6 AND 9|a BETWEEN 1 OR 5
a BETWEEN 5 AND 5.0|a BETWEEN 5.1 AND 5|a BETWEEN 3000000000 AND 1|a BETWEEN 1 AND 2 AND b = 'x'|a BETWEEN a AND a
-(a = 5) BETWEEN 1 AND 2|-(a > 1) > 0|a > -(b > 1)|c > -(b > 1)|c BETWEEN -(b > 1) AND 2|a BETWEEN 9 AND -(b > 1)
a NOT BETWEEN 9 AND -(b > 1)|a BETWEEN 1 AND -(b > 1)|a BETWEEN c AND -(b > 1)|a NOT BETWEEN c AND 4|a BETWEEN c AND 4
b IN ('x')|b IN ('y', 'x')|b NOT IN ('x')|b NOT IN ('y','z')|c IN ('x')|c NOT IN ('x')|b IN ()|b IN (5)|b IN ('x',)
b IN 'x'|(b) IN ('x')|+b IN ('x')|-b IN ('x')|'x' IN ('x')|b IN ('a','b','c','d','e','x')|b IN ('x'|NOT b IN ('x')
b IN ('it''s', 'x')|b IN ("x")|b in ('X')|b NOT NOT IN ('x')|b IN ('')|b NOT IN ('')
b IS NULL|b IS NOT NULL|c IS NULL|c IS NOT NULL|NOT c IS NULL|1 IS NULL|NULL IS NULL|'x' IS NOT NULL|(a = 5) IS NULL
a IS|a IS NOT|a IS 5|a IS NULL IS NULL|a IS NOT NULL = TRUE|a = 5 IS NULL|c = 5 IS NULL|NULL IS NOT NULL
a IS NULL > 5|a IS NULL NOT|a IS NULL NOT IN ('x')|a IS NOT NULL CONTAINS 'x'|TRUE AND a IS NULL > 4|(a IS NULL > 4)
a IS NULL IN ('x') OR TRUE|a IS NULL = TRUE > 4|a = 5 IS NULL > 4|NOT a IS NULL BETWEEN 1 AND 2|a IS NULL > 4 AND FALSE
b CONTAINS 'x'|b CONTAINS ''|b NOT CONTAINS ''|b NOT CONTAINS 'x'|c CONTAINS 'x'|c NOT CONTAINS 'x'|b CONTAINS x
b STARTSWITH 'tr'|b NOT STARTSWITH 'tr'|b ENDSWITH 'ue'|b NOT ENDSWITH 'ue'|b STARTSWITH ''|b ENDSWITH ''|a ENDSWITH '5'
'abc' CONTAINS 'b'|'abc' STARTSWITH 'ab' AND 'abc' ENDSWITH 'bc'|5 CONTAINS '5'|(a = 5) CONTAINS 't'|(b > 1) CONTAINS ''
(b > 1) NOT ENDSWITH ''|(b > 1) CONTAINS 'x'|b CONTAINS 'x' CONTAINS 'y'|b STARTSWITH 'truest'|b CONTAINS 5|b CONTAINS
c NOT STARTSWITH 'x'|c NOT ENDSWITH 'x'|5 NOT CONTAINS 'x'|NULL CONTAINS 'x'|TRUE STARTSWITH 'T'
TRUE|FALSE|NULL|true|False|nUlL|NOT TRUE|NOT FALSE|NOT NULL|NOT NOT TRUE|TRUE AND NULL|FALSE AND NULL|NULL AND FALSE
NULL AND TRUE|NULL AND NULL|TRUE OR NULL|NULL OR TRUE|FALSE OR NULL|NULL OR FALSE|NULL OR NULL|TRUE = TRUE|TRUE = FALSE
TRUE <> FALSE|TRUE = 5|5 = TRUE|TRUE = 'true'|'true' = TRUE|b = TRUE|TRUE = b|b = FALSE|b <> TRUE|c = TRUE|TRUE = c
a = NULL|NULL = a|a <> NULL|a > NULL|a > TRUE|a > 'x'|'x' > a|a > b|b > a|a < b|a >= a|a = a|c = d|c <> d|c = a|a = c
a|b|c|NOT a|NOT c|a AND b|a OR b|a OR TRUE|c AND FALSE|c OR TRUE|(a)|NOT (a = 5)|NOT a = 5|NOT a > 5|NOT c = 5
5|'x'|-5|-a|5 AND TRUE|TRUE AND 'x'|NOT 5|NOT 'x'|(5)|5 = 5|5 = 6|5 = 5.0|'a' = 'a'|'a' = 'b'|'5' = 5|5 = '5'|'x' = 5
5 = 'x'|5 > 4|5.5 > 5|5 > 5.5|3000000000 > 5|5 < 3000000000|3000000000 = 3000000000.0|5 > 4 AND 4 > 3|5 > 4 > 3
a = 5 AND b = 'x'|a = 5 OR b = 'x'|a > 1 AND b > 1|b > 1 AND a > 1|b > 1 OR a = 5|a = 5 OR b > 1|a = 7 AND b > 1
a = 1 OR a = 2 OR a = 5 AND b = 'x'|(a = 1 OR a = 5) AND b = 'x'|((((a = 5))))|a = (5)|a = (b = 'x')|a = b = 'x'
a > 1 = TRUE|a > 1 = b > 1|a = 5 <> FALSE|a <> 5 = FALSE|a = b > 1|a = 5 = TRUE = TRUE
a = 'it''s'|a = ''|a = ''''|a = 'a|a = 'a''|a = 'a''b|a = 5 'a''|a ='a' 'b'|a = 'ä中'|a = "5"|a = 'line\\nbreak'
a = 5 garbage|a = 5 )|a = 5 ?|a = 5 b ?|a = 5 AN b = 6|a = 5 -|a = 5 -- comment|a = 5 -- comment\\n|a = -- comment\\n5
a = -- comment\\r\\n5|a = --5|a = /* comment */ 5|a = /**/5|a = /* * / ** */5|a = /*/5|a = /*/*/5|a = /* x|a = 5 /* x
a /* x */ = /* y */ 5 /* z */|a\\t=\\n5\\f|a=5AND b='x'|a=5ANDb='x'|a = 5AND TRUE|a = 5.AND TRUE|a = 5ORTRUE|a == 5|a != 5
a < > 5|a > = 5|a =< 5|a => 5|= 5|a =|a = AND|AND|()|(|)|(a = 5|a = 5)|a,b|a = 5,|NOT|a NOT|a NOT 5|a NOT = 5
 a = 5 |_a = 5|$a = 5|a1 = 5|1a = 5|a.b = 5|a-b = 5|a + 5 = 10|A = 5|and = 5|not1 = 5|nulls IS NULL|a = 5;|é = 5
a = \\\\5|a LIKE 'x'|a IS EMPTY|a = 0x5|a = 1_000|a = 5f|a = 5d|a = 5.0f|TRUE TRUE|TRUE NOT|- TRUE|-NULL|+TRUE|+NULL
- -a = 5|+ +a = 5|NOT - a|-(NOT a)|NOT (NULL)|NOT (b > 1)|(NULL) = 5|(a IS NULL) = (c IS NULL)|NOT TRUE = FALSE
"""
# Values as Java's Integer, Long, Double and Boolean read them, or do not.
VALUES = ["0", "-0", "+5", "5 ", " 5", "05", "5.", ".5", "5.0", "-0.0", "0.0", "1e3", "1E3", "1e", "0x10", "0x1p3", "0x1.8p1",
          "0x.8p1", "0x1", "0x1p", "0xp1", "0x1.8p1f", "5f", "5d", "5D", "5L", "NaN", "-NaN", "Infinity", "-Infinity", "+Infinity",
          "Infinityd", "nan", "infinity", "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807",
          "9223372036854775808", "-9223372036854775808", "1e308", "1e309", "-1e309", "1e-400", "4.9e-324", "2e-324",
          "1e99999999999999999999", "1e-99999999999999999999", "0e99999999999999999999", "1.0000000000000002",
          "9007199254740993", "9007199254740993.0", "0.1", "1_000", "--5", "+-5", "-", "+", ".", "e5", "5 5", "true",
          "TRUE", "tRuE", " true", "false", "x", "it's", "1" * 400, "0." + "0" * 400 + "1", "1" * 30 + "e-29",
          "2.2250738585072011e-308", "1.7976931348623158e308", "179769313486231580793728971405301e276",
          "5\\t", "\\n5", "1e+5", "1e-5", "1e+", "1.5e1.5", "5e0f", "5.5.5", "0x1p-1074", "0x1p-1075", "0x1.0000000000000801p0",
          "0x1.00000000000008p0", "0x1.00000000000008000000000000000000000001p0", "0x1P+3D", "0X1p3", "0x1p99999999999"]
VALUE_TABLE = ["a = 5", "a > 1", "a < 3000000000", "a >= 0.5", "a = b", "a > b", "a <= b", "a = TRUE", "TRUE = a", "5 = a",
               "3000000000 > a", "0.1 = a", "a", "a BETWEEN -10 AND 10", "a BETWEEN -1e300 AND 1e300", "a IN ('5', 'x')",
               "b < a", "a >= a"]


def table():
    """The fixed part: every expression above, with each row of properties."""
    for line in TABLE.strip("\n").split("\n"):
        for expression in line.split("|"):
            yield expression, {"a": "5", "b": "x"}
            yield from ((expression, row) for row in ROWS[1:])
    for value in VALUES:
        for expression in VALUE_TABLE:
            yield expression, {"a": value, "b": "5"}
    yield "", {}


class Maker:
    """Expressions by chance. Most are sound, since a bad part spoils the whole."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def pick(self, *choices):
        return self.chance.choice(choices)

    def rare(self, percent):
        return self.chance.random() * 100 < percent

    def keyword(self, word):
        return word if self.rare(80) else "".join(self.pick(c.lower(), c.upper()) for c in word)

    def blank(self):
        return " " if self.rare(95) else self.pick("", "  ", "\\t", "\\n", " /* c */ ", " -- c\\n")

    def join(self, *parts):
        return "".join(part + self.blank() for part in parts).rstrip(" ")

    def name(self):
        return self.pick("a", "b", "c", "d", "TAGS", "$x_1")

    def text(self):
        return "'%s'" % self.pick("", "x", "xy", "5", "7.5", "it''s", "true", "abc", "中")

    def number(self):
        return self.pick("0", "1", "5", "7", "5L", "2147483648", "3000000000", "7.5", "5.0", ".5", "1e3", "12e-1", "05")

    def operand(self, depth):
        if self.rare(60):
            return self.name()
        if self.rare(60):
            return self.number()
        if self.rare(40):
            return self.text()
        if self.rare(40):
            return self.pick("-", "+") + self.blank() + self.operand(depth)
        if self.rare(10):
            return self.keyword(self.pick("TRUE", "FALSE", "NULL"))
        if depth and self.rare(20):
            return self.pick("", "-") + "(" + self.condition(depth - 1) + ")"
        return self.number()

    def condition(self, depth):
        if depth and self.rare(55):
            return self.compound(depth)
        no = self.keyword("NOT") + self.blank() if self.rare(35) else ""
        kind = self.chance.randrange(10)
        if kind < 3:
            return self.join(self.name(), self.pick(">", "<", ">=", "<="), self.pick(self.number(), self.operand(depth)))
        if kind < 6:
            return self.join(self.operand(depth), self.pick("=", "=", "<>"), self.operand(depth))
        if kind == 6:
            low, high = self.operand(0), self.operand(0)
            return self.join(self.name(), no + self.keyword("BETWEEN"), low, self.keyword("AND"), high)
        if kind == 7:
            texts = ("," + self.blank()).join(self.text() for _ in range(self.pick(1, 2, 3, 6)))
            return self.join(self.name(), no + self.keyword("IN"), "(" + texts + ")")
        if kind == 8:
            return self.join(self.operand(depth), self.keyword("IS"), no + self.keyword("NULL"))
        word = self.pick("CONTAINS", "STARTSWITH", "ENDSWITH")
        return self.join(self.operand(depth), no + self.keyword(word), self.text())

    def compound(self, depth):
        if self.rare(15):
            return self.join(self.keyword("NOT"), "(" + self.condition(depth - 1) + ")")
        if self.rare(15):
            return self.join("(" + self.condition(depth - 1) + ")", self.pick("=", "<>"), self.condition(depth - 1))
        sides = [self.condition(depth - 1), self.condition(depth - 1)]
        sides = ["(" + side + ")" if self.rare(60) else side for side in sides]
        return self.join(sides[0], self.keyword(self.pick("AND", "OR")), sides[1])

    def spoilt(self, expression):
        """One character more, less or other."""
        at = self.chance.randrange(len(expression) + 1)
        piece = self.pick("", "(", ")", "'", "=", " ", "5", "x", "-", ".", "?", ",", "NOT ", "*/")
        whole = expression[:at] + piece + expression[at + self.pick(0, 1):]
        kept = whole.count("\\") == expression.count("\\") and not whole.endswith("\\")  # what is escaped stays so
        return whole if kept else expression

    def properties(self):
        values = VALUES + ["5", "7.5", "x", "xy", "abc", "it's", "true", "7", "3000000000", "中"] * 8
        return {name: self.pick(*values) for name in ("a", "b", "c", "d", "TAGS", "$x_1") if self.rare(70)}

    def rows(self, count):
        for _ in range(count):
            expression = self.condition(self.pick(0, 1, 2, 3, 4))
            if self.rare(8):
                expression = self.spoilt(expression)
            yield expression, self.properties()


def lines_of(rows):
    for expression, properties in rows:
        yield "\t".join([expression] + ["%s=%s" % item for item in properties.items()])


def asked(rows):
    """What Apache says, as the lines of a vector file."""
    lines = "\n".join(lines_of(rows)) + "\n"
    home = tempfile.mkdtemp(prefix="oncemq-sql92-")
    command = ["java", "-Xmx256m", "-Duser.home=%s" % home, "-cp", apache.classpath(), "oncemq.interop.Sql92Oracle"]
    return subprocess.run(command, input=lines.encode(), stdout=subprocess.PIPE, check=True, timeout=300).stdout.decode()


@tap.test("expressions by chance have the results that Apache's filter gives")
def _():
    reason = apache.missing()
    if reason:
        tap.skip(reason)
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    tap.note("SEED=%d" % seed)
    with tempfile.NamedTemporaryFile("w", prefix="oncemq-sql92-", suffix=".txt") as file:
        file.write(asked(Maker(seed).rows(TESTED_COUNT)))
        file.flush()
        ran = subprocess.run([os.environ["SQL92_TEST"]], env=dict(os.environ, SQL92_VECTORS=file.name),
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120)
    tap.check(ran.returncode == 0, ran.stdout.decode(errors="replace")[-4000:])


@tap.test("the Java client's consumer receives what its SQL92 expression takes, and learns of a wrong one at its start")
def _():
    reason = apache.missing()
    if reason:
        tap.skip(reason)
    broker, names = process.free_ports(2)
    with Daemon(settings={"listenPort": broker, "namesrvListenPort": names}) as daemon:
        tap.watch(daemon)
        child = tap.watch(apache.java("client", "oncemq.interop.SqlConsumer", daemon.names, "SqlTopic", "sql_group", 400, 40,
                                      "n BETWEEN 180 AND 219", "n > 5 AND", home=process.temp_folder()))
        status, out = child.finish(150)
        tap.equal(status, 0, "exit status")
        lines = dict(line.split(" ", 1) for line in out.splitlines() if line.startswith(("refused ", "received ")))
        tap.equal(lines["received"], " ".join(str(n) for n in range(180, 220)), "received")
        tap.check("line 1, column 10" in lines["refused"], "refused with %r" % lines["refused"])
        tap.unwatch(child)
        tap.unwatch(daemon)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        comment = "# Results of Apache RocketMQ 5.5.0's filter, written by tests/interop/sql92.py --write; README.md has the form.\n"
        VECTORS.write_text(comment + asked([*table(), *Maker(WRITTEN_SEED).rows(WRITTEN_COUNT)]))
    else:
        tap.main()
