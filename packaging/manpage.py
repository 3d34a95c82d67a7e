#!/usr/bin/env python3
"""The man page of oncemqd, made of what `oncemqd --help` says.

    packaging/manpage.py PATH-OF-ONCEMQD VERSION >oncemqd.8
"""

import re
import subprocess
import sys

OPTION = re.compile(r"^ +(-\w, |)(--[\w-]+)([ =]\S+|)  +(.*)$")
NARROW = re.compile(r"^ +(-\w, |)(--[\w-]+)([ =]\S+|) (\S.*)$")


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def options(lines):
    """(letter, name, value, words) of each, its lines joined."""
    found = []
    for line in lines:
        option = OPTION.match(line) or NARROW.match(line)
        if option:
            found.append([part.strip() for part in option.groups()])
            found[-1][2] = option.group(3)
        elif found:
            found[-1][3] += " " + line.strip()
    return found


def page(text, version):
    head, _, body, *rest = text.strip().split("\n\n")
    summary = head.partition(" - ")[2]
    out = ['.TH ONCEMQD 8 "" "OnceMQ %s" "System administration"' % version, ".SH NAME", "oncemqd \\- " + roff(summary),
           ".SH SYNOPSIS", ".B oncemqd", "[\\fIoptions\\fR]", ".SH DESCRIPTION"]
    for paragraph in rest:
        out += [roff(" ".join(paragraph.split())), ".PP"]
    out += ["It tells on standard output that it is ready, to systemd, too, and logs to standard error. SIGTERM and Ctrl\\-C stop it "
            "with everything on the disk; SIGHUP reads TLS certificates anew, and does nothing else.", ".SH OPTIONS"]
    for letter, name, value, words in options(body.split("\n")):
        out += [".TP", "%s\\fB%s\\fR%s" % ("\\fB%s\\fR, " % roff(letter.strip(", ")) if letter else "", roff(name), roff(value)), roff(words)]
    out += [".SH SEE ALSO", "\\fBoncemq\\fR(1)"]
    return "\n".join(out) + "\n"


def main():
    program, version = sys.argv[1:]
    text = subprocess.run([program, "--help"], stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
    sys.stdout.write(page(text, version))


if __name__ == "__main__":
    main()
