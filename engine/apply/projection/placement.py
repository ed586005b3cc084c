"""Put the tags of a source line into its translation: valid, well nested, never inside a word.

Every tag is in the result; what has no place of its own by the links is reported.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from ...text.tokens.tokenizer import UNSPACED
from ...types import Span
from .labels import cover_words
from .markup_tree import MarkedLine, Tag
from .ranges import LinkedPair, best_run, find_literally

_UNSPACED = re.compile(f"[{UNSPACED}]")
_BARE_AMPERSAND = re.compile(r"&(?!(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z]\w*);)")


@dataclass(frozen=True)
class PlacedMarkup:
    """A translation with tags; and the tags that stand where they are by guess."""

    text: str
    unplaced: list[str]
    # Elements and points with their places: opening tag, source words, target words.
    places: list[tuple[str, Span, Span]]


def place_markup(
    line: MarkedLine,
    target: str,
    pair: LinkedPair,
    spans: tuple[Sequence[Span], Sequence[Span]],
    escape: bool = True,
) -> PlacedMarkup:
    """Return the target line with the tags of the source line.

    `spans` are those of the words of both lines. With `escape`, "<" and bare "&" of the target
    become entities, as it was plain text and becomes markup.
    """
    placer = _Placer(line, target, pair, spans, escape)
    text = placer.render_inside(line.root, 0, len(target), (0, len(pair.tgt)))
    return PlacedMarkup(text, placer.unplaced, placer.places)


class _Placer:
    """Places the tags of one line, from the outermost in."""

    def __init__(
        self, line: MarkedLine, target: str, pair: LinkedPair,
        spans: tuple[Sequence[Span], Sequence[Span]], escape: bool,
    ) -> None:  # fmt: skip
        self._line, self._target, self._pair = line, target, pair
        self._src_spans, self._tgt_spans = spans
        self._escape = escape
        self.unplaced: list[str] = []
        self.places: list[tuple[str, Span, Span]] = []
        self._first: dict[int, tuple[int, int]] = {}  # source word -> its target words, both ends
        for i, j, _ in pair.links:
            low, high = self._first.get(i, (j, j))
            self._first[i] = min(low, j), max(high, j)

    def render_inside(self, parent: Tag, start: int, end: int, words: Span) -> str:
        """Return the characters from start to end, which are these words, with all child tags."""
        rows: list[tuple[int, int, int, str]] = []
        taken = self._place_elements(parent, words)
        for n, tag in enumerate(parent.children):
            if n in taken:
                first, last = taken[n]
                left, right = self._widen_range(first, last, start, end)
                inner = self.render_inside(tag, left, right, (first, last))
                rows.append((left, right, n, f"{tag.opening}{inner}{tag.closing}"))
        rows = _drop_overlaps(rows)
        placed = {row[2] for row in rows}
        for n, tag in enumerate(parent.children):
            if n not in placed:
                place = self._find_point(tag, words, start, end)
                place = _leave_elements(place, n, rows)
                if not tag.is_point:
                    # Nothing in the translation is this element's: it stays, around nothing.
                    if cover_words(tag.start, tag.end, self._src_spans):
                        self.unplaced.append(tag.opening)
                    inner = "".join(_write_empty(child) for child in tag.children)
                    written = f"{tag.opening}{inner}{tag.closing}"
                else:
                    if tag.unmatched:
                        self.unplaced.append(tag.opening)
                    written = self._write_point(tag, place)
                rows.append((place, place, n, written))
        pieces, at = [], start
        for left, right, _, written in sorted(rows, key=lambda r: (r[0], r[1] > r[0], r[2])):
            pieces += [self._copy_text(at, left), written]
            at = right
        return "".join([*pieces, self._copy_text(at, end)])

    def _copy_text(self, start: int, end: int) -> str:
        text = self._target[start:end]
        if self._escape and ("<" in text or "&" in text):
            text = _BARE_AMPERSAND.sub("&amp;", text).replace("<", "&lt;")
        return text

    # ---- elements ----

    def _place_elements(self, parent: Tag, words: Span) -> dict[int, Span]:
        """Return the target words of each child element; those worth most choose first."""
        wanted = []
        whole = cover_words(parent.start, parent.end, self._src_spans)
        for n, tag in enumerate(parent.children):
            covered = None if tag.is_point else cover_words(tag.start, tag.end, self._src_spans)
            if covered is None:
                continue
            if covered == whole and words[0] < words[1]:
                self.places.append((tag.opening, covered, words))
                return {n: words}  # all of the source is all of the target
            weights = self._pair.weigh_words(range(*covered))
            weights = [w if words[0] <= j < words[1] else -inf for j, w in enumerate(weights)]
            wanted.append((sum(w for w in weights if w > 0), n, covered, weights))
        found: dict[int, Span] = {}
        for _, n, covered, weights in sorted(wanted, key=lambda row: (-row[0], row[1])):
            for start, end in found.values():
                weights[start:end] = [-inf] * (end - start)
            run = best_run(weights)
            if run is None:
                run = next(iter(find_literally(self._pair, covered, weights)), None)
            if run is not None:
                found[n] = run
                self.places.append((parent.children[n].opening, covered, run))
        return found

    def _widen_range(self, first: int, last: int, least: int, most: int) -> Span:
        """Return the characters of a range of words, widened to where words begin and end."""
        start, end = self._tgt_spans[first][0], self._tgt_spans[last - 1][1]
        start, end = max(start, least), min(end, most)
        while start > least and is_inside_word(self._target, start):
            start -= 1
        while end < most and is_inside_word(self._target, end):
            end += 1
        return start, end

    # ---- points ----

    def _find_point(self, tag: Tag, words: Span, start: int, end: int) -> int:
        """Return the character before which a tag without words goes, by the words beside it."""
        before = [n for n, (_, last) in enumerate(self._src_spans) if last <= tag.start]
        after = [n for n, (first, _) in enumerate(self._src_spans) if first >= tag.start]
        if not tag.is_half and not after and words[1] == len(self._pair.tgt):
            return end
        if not tag.is_half and not before and words[0] == 0:
            return start
        followers = [(n, 0) for n in after[:3]]
        leaders = [(n, 1) for n in before[:-4:-1]]
        for n, side in (*leaders, *followers) if tag.follows else (*followers, *leaders):
            if n not in self._first:
                continue
            word = self._first[n][side]
            if words[0] <= word < words[1]:
                place = min(max(self._tgt_spans[word][side], start), end)
                while start < place < end and is_inside_word(self._target, place):
                    place += 1 if side else -1
                return place
        self.unplaced.append(tag.opening)
        return end if tag.follows or not after else start

    def _write_point(self, tag: Tag, place: int) -> str:
        """Return a tag, with a blank where it would touch a word and did not in the source."""
        if not tag.spaced:
            return tag.opening
        before, after = self._target[place - 1 : place] if place else "", self._target[place:][:1]
        left = " " if before and not before.isspace() else ""
        right = " " if after and not after.isspace() and not left else ""
        return f"{left}{tag.opening}{right}"


def is_inside_word(text: str, place: int) -> bool:
    """Tell whether a cut here would part letters of one word.

    In scripts without spaces every character may begin a word.
    """
    if not 0 < place < len(text):
        return False
    left, right = text[place - 1], text[place]
    if _UNSPACED.match(left) and _UNSPACED.match(right):
        return False
    return _holds_on(left) and _holds_on(right)


def _holds_on(char: str) -> bool:
    # Combining marks are no letters, yet belong to one; so do the two joiners.
    return char.isalnum() or char in "\u200c\u200d" or unicodedata.category(char)[0] == "M"


def _drop_overlaps(rows: list[tuple[int, int, int, str]]) -> list[tuple[int, int, int, str]]:
    """Return the rows without those that widening to whole words pushed into others."""
    kept: list[tuple[int, int, int, str]] = []
    for row in sorted(rows):
        if not kept or row[0] >= kept[-1][1]:
            kept.append(row)
    return kept


def _leave_elements(place: int, n: int, rows: list[tuple[int, int, int, str]]) -> int:
    """Return the place, moved to the nearer edge in source order if it is inside a sibling."""
    for left, right, other, _ in rows:
        if left < place < right:
            return left if n < other else right
    return place


def _write_empty(tag: Tag) -> str:
    return f"{tag.opening}{''.join(map(_write_empty, tag.children))}{tag.closing}"
