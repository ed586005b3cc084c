"""Carry labels or markup of a sentence over to its translation, for pairs that came as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from ..apply.projection.annotations import Annotation, MarkupLine, SpanLine
from ..apply.projection.labels import Label
from ..apply.projection.ranges import LinkedPair, Policy
from ..errors import InputError
from .requests import parse_pair

if TYPE_CHECKING:
    from ..aligner import Aligner

POLICIES: tuple[Policy, ...] = get_args(Policy)
EXAMPLE = '{"src": "das <b>Haus</b>", "tgt": "the house"}'


def project_pairs(
    aligner: Aligner, rows: Sequence[Any], policy: Policy, escape: bool
) -> list[dict[str, Any]]:
    """Return for each pair the target with the tags of the source, or its labels.

    A pair has markup in `src`, or `labels`: [start, end, name] each, in characters of `src`. What
    the links give no place is named in `unplaced`.
    """
    items = [_read_item(row, escape) for row in rows]
    found = aligner.align_batch([i.src_words for i in items], [i.tgt_words for i in items])
    answers = []
    for row, item, alignment in zip(rows, items, found, strict=True):
        links = [(i, j, s) for (i, j), s in zip(alignment.links, alignment.scores, strict=True)]
        text, lost, _ = item.render(LinkedPair(item.src_words, item.tgt_words, links), policy)
        answer: dict[str, Any] = {"id": row["id"]} if "id" in row else {}
        if isinstance(item, SpanLine):
            answer |= {"tgt": item.target, "labels": json.loads(text)["spans"]}
        else:
            answer["tgt"] = text.removesuffix("\n")
        answers.append({**answer, "unplaced": lost})
    return answers


def _read_item(row: Any, escape: bool) -> Annotation:
    """Return what is to be carried over; both sides must be lines."""
    pair = parse_pair(row)
    if not isinstance(pair.src, str) or not isinstance(pair.tgt, str):
        raise InputError(f'"src" and "tgt" must be strings, as in {EXAMPLE}')
    if any(mark in side for side in (pair.src, pair.tgt) for mark in "\n\r"):
        raise InputError('"src" and "tgt" must be single lines; send a pair for each line')
    if "labels" not in row:
        return MarkupLine(pair.src, pair.tgt, escape)
    labels = row["labels"]
    if not isinstance(labels, list):
        raise InputError(f'"labels" must be a list of [start, end, name], not {labels!r}')
    read = [_read_label(label, len(pair.src)) for label in labels]
    written = {"text": pair.src, "spans": labels}
    return SpanLine(json.dumps(written), written, "spans", read, pair.tgt)


def _read_label(value: Any, length: int) -> Label:
    if isinstance(value, list) and len(value) == 3:
        start, end, name = value
        whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (start, end))
        if whole and isinstance(name, str) and 0 <= start < end <= length:
            return Label(start, end, name)
    raise InputError(
        f"a label must be [start, end, name] inside its text of {length} characters, not {value!r}"
    )
