"""Read a line with inline markup as plain text and a tree of tags: HTML, XML, XLIFF, placeholders.

Tags are kept letter by letter. Does not know where they go in a translation (`placement`).
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, field

# An attribute may hold ">" in quotes.
_TAG = r"<!--.*?-->|<\?.*?\?>|</?[A-Za-z_][\w:.-]*(?:\s+(?:[^<>\"']|\"[^\"]*\"|'[^']*')*)?/?>"
# What programs fill in: {0}, {{name}}, ${name}, %(name)s, %1$s, %s.
_PLACEHOLDER = r"\$?\{\{?[\w.]*\}?\}|%\(\w+\)[sd]|%(?:\d+\$)?[sd](?!\w)"
_MARKUP = re.compile(f"({_TAG})|({_PLACEHOLDER})", re.DOTALL)
_NAME = re.compile(r"</?([A-Za-z_][\w:.-]*)")
# In HTML these have no end.
_VOIDS = "area base br col embed hr img input link meta param source track wbr"
_VOID = frozenset(_VOIDS.split())
# In XLIFF and TMX these hold code of the original file, no text.
_CODE = frozenset(("ph", "bpt", "ept", "it", "ut"))
# These stand for the beginning and the end of something.
_ENDINGS = frozenset(("ept", "ex", "ec"))
_BEGINNINGS = frozenset(("bpt", "bx", "sc"))
# What does not part the letters beside it: words go on through these.
_SEAMLESS_NAMES = (
    "a abbr b bdi bdo cite code del dfn em font g i ins kbd mark mrk pc q s samp small span strong "
    "sub sup tt u var wbr"
)
_SEAMLESS = frozenset(_SEAMLESS_NAMES.split())


@dataclass
class Tag:
    """An element, or with an empty `closing` a tag that stands alone, at characters of the text."""

    opening: str
    closing: str = ""
    start: int = 0
    end: int = 0
    children: list[Tag] = field(default_factory=list)
    is_point: bool = False  # it stands between words and holds none
    follows: bool = False  # as an ending tag, it belongs to what comes before it
    spaced: bool = False  # it had a blank on either side
    is_half: bool = False  # it begins or ends something: its word counts, even at a line's end
    unmatched: bool = False  # its other half is missing


@dataclass(frozen=True)
class MarkedLine:
    """Plain text, and the tags in it; the root is no tag, and covers all."""

    text: str
    root: Tag

    def list_tags(self) -> list[Tag]:
        """Return all elements and lone tags."""
        found = list(self.root.children)
        for tag in found:  # which grows
            found += tag.children
        return found

    def has_tags(self) -> bool:
        """Tell whether there are tags, not only placeholders."""
        return any(tag.opening.startswith("<") for tag in self.list_tags())


def find_placeholders(line: str) -> frozenset[str]:
    """Return the placeholders of a line, such as {0} and %s."""
    return frozenset(re.findall(_PLACEHOLDER, line))


def parse_markup(line: str, present: Container[str] = ()) -> MarkedLine:
    """Split a line into text and tags.

    Placeholders in `present`, which the translation has already, stay words. A tag without its
    other half stands alone.
    """
    root = Tag("", start=0)
    stack: list[Tag] = [root]
    parts: list[str] = []
    size = place = 0

    def add_text(text: str) -> None:
        nonlocal size
        parts.append(text)
        size += len(text)

    while (found := _MARKUP.search(line, place)) is not None:
        add_text(line[place : found.start()])
        written, place = found.group(), found.end()
        if found.group(2):
            if written in present:
                add_text(written)
                continue
            name = ""
        else:
            match = _NAME.match(written)
            name = match.group(1).lower() if match else ""
        if written.startswith("</"):
            _close_tag(stack, name, written, size)
            continue
        # The code inside `<ph>...</ph>` goes with its tag.
        if name in _CODE and not written.endswith("/>"):
            end = re.compile(rf"</{re.escape(name)}\s*>", re.IGNORECASE).search(line, place)
            if end is not None:
                written, place = line[found.start() : end.end()], end.end()
                _add_point(stack, written, size, name, line, found.start(), place)
                add_text(_seam(parts, line, place))
                continue
        if not name or written.endswith("/>") or name in _VOID:
            _add_point(stack, written, size, name, line, found.start(), place)
            if name not in _SEAMLESS:
                add_text(_seam(parts, line, place))
            continue
        tag = Tag(written, start=size)
        stack[-1].children.append(tag)
        stack.append(tag)
    add_text(line[place:])
    for tag in stack[:0:-1]:  # what was never closed
        _release_tag(stack, tag)
    text = "".join(parts)
    root.end = len(text)
    return MarkedLine(text, root)


def _seam(parts: list[str], line: str, place: int) -> str:
    """Return a blank if two words would grow together where a tag was between them."""
    before = next((part for part in reversed(parts) if part), "")
    glued = before[-1:].isalnum() and line[place : place + 1].isalnum()
    return " " if glued else ""


def _add_point(
    stack: list[Tag], written: str, size: int, name: str, line: str, start: int, end: int
) -> None:
    before, after = line[start - 1 : start] if start else "", line[end : end + 1]
    free = (not before or before.isspace(), not after or after.isspace())
    # A tag belongs to the word that it touches; else to what comes after it.
    follows = name in _ENDINGS or (not free[0] and free[1])
    spaced = all(free) and bool(before or after)
    stack[-1].children.append(
        Tag(
            written,
            start=size,
            end=size,
            is_point=True,
            follows=follows,
            spaced=spaced,
            is_half=name in _ENDINGS or name in _BEGINNINGS,
        )
    )


def _close_tag(stack: list[Tag], name: str, written: str, size: int) -> None:
    """End the innermost element of this name; what was left open inside it stands alone."""
    for depth in range(len(stack) - 1, 0, -1):
        match = _NAME.match(stack[depth].opening)
        if match and match.group(1).lower() == name:
            for tag in stack[:depth:-1]:
                _release_tag(stack, tag)
            tag = stack.pop()
            tag.closing, tag.end = written, size
            return
    stack[-1].children.append(
        Tag(
            written, start=size, end=size, is_point=True, follows=True, is_half=True, unmatched=True
        )
    )


def _release_tag(stack: list[Tag], tag: Tag) -> None:
    """Let an opening tag without end stand alone: what was in it belongs to its parent."""
    stack.remove(tag)
    tag.end, tag.is_point, tag.is_half, tag.unmatched = tag.start, True, True, True
    stack[-1].children += tag.children
    tag.children = []
