#!/usr/bin/env python3
"""The first message of README.md: its Java lines, as they stand there, send and receive it."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import apache, process, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402

README = pathlib.Path(__file__).resolve().parent.parent.parent / "README.md"
DEFAULT_NAMES = "127.0.0.1:9876"
PROGRAM = """
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

public class FirstMessage {
    public static void main(String[] args) throws Exception {
%s
    }
}
"""


def snippets():
    """What a reader would paste, with the address of a daemon of our own."""
    return re.findall(r"^```java\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


@tap.test("the Java lines of README.md send a message and receive it")
def _():
    parts = snippets()
    tap.equal(len(parts), 2, "blocks of Java in README.md")
    folder = pathlib.Path(process.temp_folder())
    with Daemon() as daemon:
        source = folder / "FirstMessage.java"
        text = "\n".join(parts)
        tap.check(DEFAULT_NAMES in text, "the lines name %s" % DEFAULT_NAMES)
        source.write_text(PROGRAM % text.replace(DEFAULT_NAMES, daemon.names))
        with apache.java("first-message", str(source), home=folder) as program:
            program.wait_line(re.compile("SEND_OK [0-9A-F]{32}$").match, 60)
            program.wait_line(lambda line: line == "hello", 60)


if __name__ == "__main__":
    reason = apache.missing()
    if reason:
        tap.skip_all(reason)
    tap.main()
