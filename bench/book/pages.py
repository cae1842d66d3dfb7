"""The pages: comments at the head of headers, in their parts."""
import re
from pathlib import Path


class Page:
    """Title, what the page is drawn from, and blocks: ("prose", lines) or ("display", lines), where a
    line is (number, text)."""

    def __init__(self, path):
        lines = []
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), 1):
            if not line.startswith("//"):
                break
            lines.append((number, line[2:].rstrip()))
        self.blocks = []
        kind = None
        for number, line in lines:
            if not line:
                kind = None
                continue
            now = "display" if line.startswith("     ") else "prose"
            if now != kind:
                self.blocks.append((now, []))
                kind = now
            self.blocks[-1][1].append((number, line[5:] if now == "display" else line[1:]))
        head = self.blocks.pop(0)[1] if self.blocks else []
        # The title is the first sentence, over as many lines as it has.
        count = next((i + 1 for i, (_, text) in enumerate(head) if re.search(r"[.:]$", text)), 1)
        self.title = " ".join(text for _, text in head[:count]).rstrip(".:")
        self.sources = head[count:]


def function(text, name):
    """The definition of a function at the left margin, with the comment above it; None where there is none."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if not re.match(rf"[A-Za-z].*\b{name}\(", line):
            continue
        end = next((j for j in range(i, len(lines)) if lines[j].startswith("}") or
                    lines[j].rstrip().endswith("; }")), None)
        declared = next((j for j in range(i, len(lines)) if lines[j].rstrip().endswith((";", "{", "}"))), i)
        if end is None or lines[declared].rstrip().endswith(";"):
            continue
        begin = i
        while begin > 0 and (lines[begin - 1].startswith("//") or lines[begin - 1].startswith("template")):
            begin -= 1
        return "\n".join(lines[begin:end + 1])
    return None
