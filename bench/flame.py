"""Flame graphs: stacks from perf or callgrind, folded and drawn as SVG.

A *stack* is a tuple of frames, the outermost first; a frame is (function, kind). Folding makes a Counter of stacks out of what a
profiler wrote; `draw` makes a picture: each frame is a bar as wide as what was spent in it and in whatever it called, standing on
its caller. Left to right means nothing (the alphabet). Colours are kinds: our modules, libraries, the kernel. A bar tells its
numbers when the pointer rests on it.
"""

import collections
import os
import re
import subprocess
from xml.sax.saxutils import escape

KERNEL, LIBRARY, OTHER = "kernel", "libraries", "other"
COLOURS = {"io": "#7fb7e6", "remoting": "#8fd19e", "door": "#5aa469", "broker": "#f2c14e", "store": "#f08a5d", "msg": "#c9a3e0",
           "base": "#d8c7a0", "namesrv": "#9adbd9", "once": "#f2c14e", KERNEL: "#c8ccd0", LIBRARY: "#e6b8c0", OTHER: "#e3e3e3"}
WIDTH, ROW, TOP, LEAST, LETTER = 1400, 17, 58, 0.4, 6.3

# ---- folding ----

WHOLE = {"clone3", "__clone3", "clone", "_start", "__libc_start_main", "start_thread"}  # where a thread begins
PERF_FRAME = re.compile(r"^\s+[0-9a-f]+ (.*) \((.*)\)$")


def module_of_path(path):
    """src/door/remoting/send.c → door."""
    found = re.search(r"(?:^|/)src/(\w+)/", path)
    return found[1] if found else None


def modules_of_build(folder):
    """Which module each function of ours is of, by the static libraries of a build folder."""
    modules = {}
    for place, _, files in os.walk(os.path.join(os.path.realpath(folder), "src")):
        for name in files:
            if not name.endswith(".a"):
                continue
            module = module_of_path(os.path.join(place, name)) or OTHER
            listed = subprocess.run(["nm", os.path.join(place, name)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
            for line in listed.stdout.splitlines():
                words = line.split()
                if len(words) == 3 and words[1] in "tT":
                    modules.setdefault(words[2].partition(".")[0], module)
    return modules


def library_of(path):
    return "[%s]" % re.sub(r"\.so[.\d]*$", "", os.path.basename(path))


def perf_frame(name, dso, modules, program):
    name = name.partition("+0x")[0]
    if dso.startswith("[kernel") or dso == "[guest.kernel.kallsyms]":
        return name, KERNEL
    if os.path.basename(dso) == program:
        return name, modules.get(name.partition(".")[0], OTHER)
    return (library_of(dso) if name == "[unknown]" else name), LIBRARY


def fold_perf(lines, modules, program, taught=()):
    """What `perf script -F tid,ip,sym,dso` prints: a line with the thread, its frames innermost first, an empty line. `taught` are
    stacks from elsewhere, by which cut ones can be mended."""
    threads, frames = collections.defaultdict(collections.Counter), []
    thread = None
    for line in [*lines, ""]:
        found = PERF_FRAME.match(line)
        if found and found[2] != "[unknown]":
            frame = perf_frame(found[1], found[2], modules, program)
            if not frames or frames[-1] != frame or frame[1] != LIBRARY:  # a row of one library's unknown ones is one
                frames.append(frame)
        elif not found:
            if frames:
                threads[thread][tuple(reversed(frames))] += 1
            thread, frames = line.strip() or thread, []
    return sum((mend(stacks, taught) for stacks in threads.values()), collections.Counter())


def callers_of(stacks):
    callers = collections.defaultdict(collections.Counter)
    for frames, n in stacks.items():
        for i, frame in enumerate(frames):
            callers[frame][frames[:i]] += n
    return callers


def completed(frames, callers):
    if frames[0][0] in WHOLE:
        return frames
    for i, frame in enumerate(frames):
        if frame[1] != KERNEL and not frame[0].startswith("[") and frame in callers:
            return callers[frame].most_common(1)[0][0] + frames[i:]
    return frames


def mend(stacks, taught=()):
    """perf copies less than 64 KiB of a stack, and some libraries do not tell how theirs is built, so the outer end of a stack may be
    missing. Where the outermost function that is left is known, from whole stacks of the same thread or from those that were taught,
    it gets its callers from there."""
    own = callers_of({frames: n for frames, n in stacks.items() if frames[0][0] in WHOLE})
    others = callers_of(taught or {})
    mended = collections.Counter()
    for frames, n in stacks.items():
        for callers in (own, others, own):
            frames = completed(frames, callers)
        mended[frames] += n
    return mended


def fold_callgrind(profile, program, root, modules):
    """A profile that was counted with stacks=True (tests/harness/callgrind.py); what called the function `root` is left out."""
    frame_of, stacks = {}, collections.Counter()
    for obj, path, name in profile.cost:
        inner = name.partition("'")[0]
        if obj == program:
            frame_of[inner] = (inner, module_of_path(path) or modules.get(inner.partition(".")[0], OTHER))
        else:
            frame_of[inner] = (library_of(obj) if inner.startswith("0x") else inner.partition("@")[0], LIBRARY)
    for (_, _, name), n in profile.cost.items():
        frames, parts = [], name.split("'")
        for part in reversed(parts[:parts.index(root) + 1] if root in parts else parts):
            frame = frame_of.get(part, (part, LIBRARY))
            if not frames or frames[-1] != frame:
                frames.append(frame)
        if n > 0:
            stacks[tuple(frames)] += n
    return stacks


# ---- drawing ----

class Node:
    def __init__(self):
        self.n, self.below = 0, {}


def tree_of(stacks):
    root = Node()
    for frames, n in stacks.items():
        at = root
        at.n += n
        for frame in frames:
            at = at.below.setdefault(frame, Node())
            at.n += n
    return root


def bars_of(root):
    """(frame, depth, x, width, n) of every bar that can be seen."""
    per = WIDTH / root.n
    todo = [(root, 0, 0.0)]
    while todo:
        node, depth, x = todo.pop()
        for frame, child in sorted(node.below.items()):
            width = child.n * per
            if width >= LEAST:
                yield frame, depth, x, width, child.n
                todo.append((child, depth + 1, x))
            x += width


def legend(kinds):
    x, parts = 8, []
    for kind in kinds:
        parts.append('<rect x="%d" y="34" width="12" height="12" fill="%s"/><text x="%d" y="44">%s</text>'
                     % (x, COLOURS.get(kind, COLOURS[OTHER]), x + 16, escape(kind)))
        x += 32 + int(len(kind) * LETTER)
    return parts


def draw(stacks, title, unit):
    """The picture, as text. `unit` is what is counted: samples, instructions."""
    root = tree_of(stacks)
    if root.n == 0:
        raise ValueError("nothing was counted")
    bars = list(bars_of(root))
    height = TOP + (max(depth for _, depth, _, _, _ in bars) + 1) * ROW + 8
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="monospace" font-size="10.5">'
             % (WIDTH, height, WIDTH, height),
             '<rect width="100%" height="100%" fill="#ffffff"/>',
             '<text x="8" y="20" font-size="14">%s</text>' % escape(title)]
    parts += legend(sorted({frame[1] for frame, *_ in bars}))
    for (name, kind), depth, x, width, n in bars:
        y = height - 8 - (depth + 1) * ROW
        letters = int((width - 4) / LETTER)
        shown = name if len(name) <= letters else name[:max(letters - 1, 0)] + "…"
        parts.append('<g><title>%s (%s): %s %s, %.2f %%</title><rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s" stroke="#ffffff" '
                     'stroke-width="0.5"/>%s</g>'
                     % (escape(name), escape(kind), format(n, ","), unit, 100 * n / root.n, x, y, width, ROW - 1,
                        COLOURS.get(kind, COLOURS[OTHER]),
                        '<text x="%.2f" y="%d">%s</text>' % (x + 3, y + 12, escape(shown)) if letters >= 3 else ""))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"
