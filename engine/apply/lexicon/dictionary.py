"""Bilingual dictionaries: words, their translations, how frequent and how sure, with examples.

Written as TSV, JSON or a page to read. The same files hold lists of terms (`terms`).
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from ...errors import MxError
from ...text.files import open_output, read_pairs
from .tables import LexicalTable

_COLUMNS = "source\ttarget\tcount\tp_target\tp_source\texample_source\texample_target\n"


@dataclass(frozen=True)
class Entry:
    """A translation of a word or term."""

    src: str
    tgt: str
    count: float
    fwd: float  # share of the links of `src` that lead to `tgt`
    bwd: float  # share of the links of `tgt` that lead to `src`
    example: tuple[str, str] | None = None


def list_entries(table: LexicalTable, examples: Mapping[int, tuple[str, str]]) -> list[Entry]:
    """Return the rows of a table that join words, not marks, as entries in its order."""
    columns = (table.src, table.tgt, table.count, table.fwd, table.bwd, table.example)
    return [
        Entry(table.src_words[s], table.tgt_words[t], n, fwd, bwd, examples.get(place))
        for s, t, n, fwd, bwd, place in zip(*(c.tolist() for c in columns), strict=True)
        if s and t and has_letters(table.src_words[s]) and has_letters(table.tgt_words[t])
    ]


def has_letters(word: str) -> bool:
    """Tell whether there is a letter of any script in the word."""
    return any(map(str.isalpha, word))


def read_examples(src: str, tgt: str, wanted: Iterable[int]) -> dict[int, tuple[str, str]]:
    """Return the lines of some pairs, read from the files again."""
    numbers = set(wanted)
    last = max(numbers, default=-1)
    found = {}
    for number, pair in enumerate(read_pairs(src, tgt, errors="replace")):
        if number > last:
            break
        if number in numbers:
            found[number] = pair
    return found


def write_entries(path: str | Path, entries: list[Entry], title: str) -> None:
    """Write entries as the name of the file says: .tsv, .json or .html, maybe with .gz or .zst."""
    name = str(path).removesuffix(".gz").removesuffix(".zst")
    writers = {".tsv": _format_tsv, ".json": _format_json, ".html": _format_page}
    kind = Path(name).suffix
    if kind not in writers:
        raise MxError(f"{path} must end in .tsv, .json or .html, which says how it is written")
    with open_output(path, whole=True) as file:
        for text in writers[kind](entries, title):
            file.write(text.encode())


def _format_tsv(entries: list[Entry], title: str) -> Iterator[str]:
    yield _COLUMNS
    for entry in entries:
        src, tgt = (text.replace("\t", " ") for text in entry.example or ("", ""))
        yield (
            f"{entry.src}\t{entry.tgt}\t{entry.count:.0f}\t{entry.fwd:.4f}\t{entry.bwd:.4f}"
            f"\t{src}\t{tgt}\n"
        )


def _format_json(entries: list[Entry], title: str) -> Iterator[str]:
    """Yield a list with one object a line, so that it can be read line by line as well."""
    yield "["
    for number, (word, rows) in enumerate(groupby(entries, lambda entry: entry.src)):
        translations = [
            {
                "target": entry.tgt,
                "count": round(entry.count),
                "p_target": round(entry.fwd, 4),
                "p_source": round(entry.bwd, 4),
                **({"example": list(entry.example)} if entry.example else {}),
            }
            for entry in rows
        ]
        row = {"source": word, "translations": translations}
        yield ("," if number else "") + "\n" + json.dumps(row, ensure_ascii=False)
    yield "\n]\n"


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }}
body {{ max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }}
input {{ font: inherit; width: 100%; padding: .5rem; box-sizing: border-box; }}
article {{ content-visibility: auto; contain-intrinsic-size: auto 4rem;
  border-bottom: 1px solid #8884; padding: .6rem 0; }}
h2 {{ font-size: 1.05rem; margin: 0; }}
p {{ margin: .1rem 0 .1rem 1.5rem; }}
p i {{ color: #7a7a7a; font-size: .85rem; font-style: normal; margin-left: .6rem; }}
small {{ display: block; color: #7a7a7a; }}
</style>
<h1>{title}</h1>
<p style="margin:0 0 1rem">{words:,} entries, {rows:,} translations. Beside each: how often it was
linked, and its share of the links of the word on the left and of its own.</p>
<input type="search" placeholder="Find…" aria-label="Find" autofocus>
<main>
"""
_SCRIPT = """</main>
<script>
const items = [...document.querySelectorAll("article")];
const texts = items.map(item => item.textContent.toLowerCase());
document.querySelector("input").addEventListener("input", event => {
  const wanted = event.target.value.toLowerCase();
  items.forEach((item, n) => { item.hidden = !texts[n].includes(wanted); });
});
</script>
</html>
"""


def _format_page(entries: list[Entry], title: str) -> Iterator[str]:
    """Yield a page that needs nothing from the net."""
    words = len({entry.src for entry in entries})
    yield _PAGE.format(title=html.escape(title), words=words, rows=len(entries))
    for word, rows in groupby(entries, lambda entry: entry.src):
        yield f"<article><h2>{html.escape(word)}</h2>\n"
        for entry in rows:
            numbers = f"{entry.count:,.0f} · {entry.fwd:.0%} · {entry.bwd:.0%}"
            yield f"<p>{html.escape(entry.tgt)}<i>{numbers}</i>"
            if entry.example:
                yield "".join(f"<small>{html.escape(line)}</small>" for line in entry.example)
            yield "</p>\n"
        yield "</article>\n"
    yield _SCRIPT
