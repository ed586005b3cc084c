"""Lexical tables, dictionaries and terms, on a text small enough to count by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from .....engine.apply.lexicon.counts import LexicalCounts, read_counts, write_counts
from .....engine.apply.lexicon.dictionary import Entry, write_entries
from .....engine.apply.lexicon.tables import LexicalTable, write_lexicons, write_shortlist
from .....engine.apply.lexicon.terms import TermCollector, find_blocks
from .....engine.apply.linked_text import LinkedFiles
from .....engine.errors import InputError, MxError
from .....engine.statistical.aligner import StatisticalAligner

SRC = ["the red house", "the house", "a house", "", "the end"]
TGT = ["la maison rouge", "la maison", "une maison", "rien", "fin"]
LINKS = ["0-0 1-2 2-1", "0-0 1-1", "1-1", "", "1-0"]


@pytest.fixture
def files(tmp_path):
    paths = []
    for name, lines in (("src", SRC), ("tgt", TGT), ("links", LINKS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        paths.append(str(tmp_path / name))
    return paths


def count(files, size=100, **options) -> LexicalCounts:
    counts = LexicalCounts(**options)
    for pairs, links in LinkedFiles(*files).read_chunks(size):
        counts.add_chunk(pairs, links)
    return counts


def test_tables_are_those_of_extract_lex(files, tmp_path):
    write_lexicons(str(tmp_path / "lex"), LexicalTable.from_counts(count(files)))
    assert (tmp_path / "lex.s2t").read_text().splitlines() == [
        "rien NULL 0.5000000",
        "une NULL 0.5000000",
        "NULL a 1.0000000",
        "fin end 1.0000000",
        "maison house 1.0000000",
        "rouge red 1.0000000",
        "la the 0.6666667",
        "NULL the 0.3333333",
    ]
    assert "the la 1.0000000" in (tmp_path / "lex.t2s").read_text().splitlines()


def test_division_is_that_of_single_precision():
    """extract_lex prints 0.7412280 for 169/228, which rounds to 0.7412281 in double precision."""
    counts = LexicalCounts()
    counts.add_links([(",", ",", 169), (",", ";", 59)])
    assert f"{LexicalTable.from_counts(counts).fwd[0]:.7f}" == "0.7412280"


def test_chunks_and_parts_do_not_matter(files, tmp_path):
    write_counts(tmp_path / "whole", count(files))
    write_counts(tmp_path / "chunks", count(files, size=1))
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "chunks").read_bytes()
    joined = LexicalCounts()
    for _ in range(2):
        read_counts(tmp_path / "whole", joined)
    write_counts(tmp_path / "twice", joined)
    lines = (tmp_path / "twice").read_text().splitlines()
    assert "6\thouse\tmaison" in lines and "2\tNULL\trien" in lines


def test_many_counts_are_merged_on_the_way(files, monkeypatch):
    monkeypatch.setattr("mx_align.engine.apply.lexicon.counts._BUFFER", 1)
    one, other = count(files, size=1).columns(), count(files).columns()
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_lowercase_joins_words():
    counts = LexicalCounts(lowercase=True)
    counts.add_links([("The", "La", 1), ("the", "la", 1)])
    assert counts.columns()[2].tolist() == [2]


def test_shortlist_has_no_null_and_only_the_best(files, tmp_path):
    counts = count(files)
    counts.add_links([("the", "le", 1), ("the", "les", 5)])
    table = LexicalTable.from_counts(counts)
    assert write_shortlist(tmp_path / "short", table, best=1) == 4
    lines = (tmp_path / "short").read_text().splitlines()
    assert lines[-1].startswith("les the ") and not any("NULL" in line for line in lines)


def test_a_model_gives_tables_without_links():
    aligner = StatisticalAligner.learn(SRC[:3] * 9, TGT[:3] * 9)
    table = LexicalTable.from_model(aligner.model).prune(best=1)
    best = {table.src_words[s]: table.tgt_words[t] for s, t in zip(table.src, table.tgt)}  # noqa: B905
    assert best["house"] == "maison" and best["red"] == "rouge"
    assert abs(table.fwd[table.src == table.src_words.index("red")].sum() - 1) < 0.5


@pytest.mark.parametrize("line, said", [
    ("0-9", r"line 1: link 0-9 \(counted from 0\) lies outside the pair, which has 3 and 3 words"),
    ("0-0 x", "line 1: 'x' is not a link"),
])  # fmt: skip
def test_wrong_links_are_named(files, tmp_path, line, said):
    (tmp_path / "links").write_text("\n".join([line, *LINKS[1:]]))
    with pytest.raises(InputError, match=said):
        count(files)


def test_scores_and_doubles_are_read_over(files, tmp_path):
    whole = count(files).columns()
    (tmp_path / "links").write_text("\n".join(["0-0:0.9 2-1 1-2:.5  0-0", *LINKS[1:]]))
    found = count(files).columns()
    assert all(np.array_equal(a, b) for a, b in zip(whole, found, strict=True))


def test_dictionaries_are_written_as_their_names_say(tmp_path):
    entries = [Entry("a<b", "c", 3, 0.75, 1, ("x\ty", "z")), Entry("a<b", "d", 1, 0.25, 1)]
    for name in ("d.tsv", "d.json", "d.html"):
        write_entries(tmp_path / name, entries, "Words")
    rows = (tmp_path / "d.tsv").read_text().splitlines()
    assert rows[1].split("\t") == ["a<b", "c", "3", "0.7500", "1.0000", "x y", "z"]
    (found,) = json.loads((tmp_path / "d.json").read_text())
    assert [row["target"] for row in found["translations"]] == ["c", "d"]
    page = (tmp_path / "d.html").read_text()
    assert page.count("<article>") == 1 and "a&lt;b" in page and "a<b" not in page
    with pytest.raises(MxError, match=r"must end in .tsv, .json or .html"):
        write_entries(tmp_path / "d.doc", entries, "Words")


def test_blocks_are_linked_to_each_other_only():
    links = [(0, 1), (1, 0), (2, 2)]
    found = [((i, k), (j, m)) for (i, k), (j, m) in find_blocks(3, 3, links)]
    assert found == [
        ((0, 1), (1, 2)), ((0, 2), (0, 2)), ((0, 3), (0, 3)),
        ((1, 2), (0, 1)), ((2, 3), (2, 3)),
    ]  # fmt: skip


def test_terms_have_several_words_and_no_marks(tmp_path):
    src = ["we met the prime minister", "the prime minister , here", "a prime minister spoke"]
    tgt = ["nous vîmes le premier ministre", "le premier ministre , ici", "un premier ministre dit"]
    links = ["0-0 1-1 2-2 3-3 4-4", "0-0 1-1 2-2 3-3 4-4", "0-0 1-1 2-2 3-3"]
    for name, lines in (("src", src), ("tgt", tgt), ("links", links)):
        (tmp_path / name).write_text("\n".join(lines))
    terms = TermCollector()
    names = [str(tmp_path / name) for name in ("src", "tgt", "links")]
    for pairs, found in LinkedFiles(*names).read_chunks():
        terms.add_chunk(pairs, found)
    (entry, place), *rest = terms.list_terms(min_count=3)
    assert (entry.src, entry.tgt, entry.count, place) == (
        "prime minister",
        "premier ministre",
        3,
        0,
    )
    assert not rest
