"""The forms of text that one model for many languages learns from, with links that follow them."""

import random

import zstandard

from ...benchmarks.multilingual_text import (
    WordPair,
    attach_marks,
    drop_accents,
    join_segments,
    learn_language,
    mix_languages,
    parse_pair,
    pivot_pairs,
    split_parts,
    split_raw,
)
from ...engine.text.files import read_lines


def make_pair(src: str, tgt: str, links: str, src_glued: str = "", tgt_glued: str = "") -> WordPair:
    words = src.split(), tgt.split()
    found = [(*map(int, link.split("-")), 1.0) for link in links.split()]
    glued = (
        [mark == "1" for mark in marks.ljust(len(side), "0")]
        for marks, side in zip((src_glued, tgt_glued), words, strict=True)
    )
    return WordPair(*words, found, *glued)


def test_words_remember_what_follows_at_once():
    assert split_raw("l'eau, oui!", "fr") == (["l'", "eau", ",", "oui", "!"], [1, 1, 0, 1, 0])


def test_marks_are_attached_where_they_were():
    pair = make_pair("le chat .", "the cat .", "0-0 1-1 2-2", "010", "010")
    assert attach_marks(pair).as_lines() == ("le chat.", "the cat.", "0-0:1.000 1-1:1.000")


def test_parts_of_a_word_are_linked_to_parts_and_marks_to_marks():
    pair = make_pair("vente-flash ici", "here flash-sale", "0-1 1-0")
    assert split_parts(pair).as_lines() == (
        "vente - flash ici",
        "here flash - sale",
        "0-1:1.000 0-3:1.000 1-2:1.000 2-1:1.000 2-3:1.000 3-0:1.000",
    )


def test_only_the_other_language_loses_accents():
    pair = make_pair("été", "naïve", "0-0")
    assert drop_accents(pair).as_lines() == ("ete", "naïve", "0-0:1.000")


class Segments:
    def encode(self, text, out_type):
        return ["你好", "世", "界。"]


def test_characters_become_segments_but_marks_stand_alone():
    pair = make_pair("你 好 世 界 。", "hello world .", "0-0 1-0 2-1 4-2")
    assert join_segments(pair, Segments()).as_lines() == (
        "你好 世 界 。",
        "hello world .",
        "0-0:1.000 1-1:1.000 3-2:1.000",
    )


def test_languages_meet_through_the_same_english_words():
    lines = {
        "de": ["das alte Haus\tthe old house\t0-0 1-1 2-2\t000\t000"],
        "fr": ["la vieille maison\tthe old house\t0-0:0.9 1-1 2-2\t000\t000"],
    }
    found = list(pivot_pairs(lines, 5, random.Random(0)))
    assert len(found) == 1 and sorted(found[0].links) == [(0, 0, 0.9), (1, 1, 1.0), (2, 2, 1.0)]
    assert {found[0].src[2], found[0].tgt[2]} == {"Haus", "maison"}


def test_text_goes_through_whole_and_again_the_same(tmp_path):
    (tmp_path / "train").mkdir()
    rows = [f"x\tThe {n} houses are {a}.\tDie {n} Häuser sind {b}."
            for n in range(20) for a, b in (("old", "alt"), ("new", "neu"))]  # fmt: skip
    text = "".join(f"{row}\n" for row in rows).encode()
    (tmp_path / "train" / "de.tsv.zst").write_bytes(zstandard.compress(text))
    out = tmp_path / "de.tsv"
    learn_language(tmp_path, "de", 30, out)
    pairs = [parse_pair(line) for line in read_lines(out)]
    assert len(pairs) == 30 and all(pair.links for pair in pairs)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        mix_languages({"de": out}, {"de": 25}, lambda kind, folder=folder: tmp_path / folder / kind)
    texts = [[*read_lines(tmp_path / folder / "src")] for folder in ("a", "b")]
    assert texts[0] == texts[1] and len(texts[0]) == 25
