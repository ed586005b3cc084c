"""Makes the text that one model for many languages learns from, with links by statistics.

Reads `train/xx.tsv.zst` of a data folder: `source TAB English TAB other language`, raw text. Writes
three files with a line a pair: words of the other language, English words, links. A small share
of the lines is a pair of two other languages that translate the same English sentence.

Does not train (`multilingual`).
"""

from __future__ import annotations

import io
import json
import random
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import sentencepiece

from ..engine.links.link_files import parse_links
from ..engine.statistical.aligner import StatisticalAligner
from ..engine.storage import replace_file
from ..engine.text.files import read_lines
from ..engine.text.tokens.tokenizer import find_word_spans
from ..engine.text.words import normalize_word

LEAST = 0.2  # score of a link that is worth teaching: on the es, hu, ru, sl dev sets 0.2 = 0.4
# Pairs of whose shorter side less is linked, by the sum of the scores, are hardly translations.
LEAST_EXPLAINED = 0.25
PIVOTED = 0.04  # share of pairs without English, judged
SEGMENTED = ("zh", "ja")  # written without spaces: half of their pairs are in longer segments
SEGMENTS = 16_000

Link = tuple[int, int, float]


@dataclass(frozen=True)
class WordPair:
    """A pair as words, with its links; of each word whether the next one follows at once."""

    src: list[str]
    tgt: list[str]
    links: list[Link]
    src_glued: list[bool]
    tgt_glued: list[bool]

    def as_lines(self) -> tuple[str, str, str]:
        links = " ".join(f"{i}-{j}:{score:.3f}" for i, j, score in sorted(self.links))
        return " ".join(self.src), " ".join(self.tgt), links


# ---- one language ----


def sample_rows(path: Path, limit: int) -> list[list[str]]:
    """Return at most `limit` rows of a language, in random order, the same ones each time."""
    rows = [line.split("\t") for line in read_lines(path)]
    random.Random(0).shuffle(rows)
    return rows[:limit]


def split_raw(line: str, language: str) -> tuple[list[str], list[bool]]:
    """Return the words of raw text, and whether each is followed by the next without a blank."""
    spans = find_word_spans(line, language)
    glued = [end == start for (_, end), (start, _) in pairwise(spans)]
    return [line[start:end] for start, end in spans], [*glued, False]


def learn_language(data: Path, language: str, limit: int, out: Path) -> None:
    """Write the pairs of a language with the links of the statistical aligner, unless it is done.

    A line: words, words, links, what is glued on either side (a `1` or `0` a word).
    """
    if out.exists():
        return
    rows = sample_rows(data / "train" / f"{language}.tsv.zst", limit)
    src, src_glued = zip(*(split_raw(row[2], language) for row in rows), strict=True)
    tgt, tgt_glued = zip(*(split_raw(row[1], "en") for row in rows), strict=True)
    aligner = StatisticalAligner.learn(src, tgt, lowercase=True, threshold=LEAST)
    written, sources = io.StringIO(), Counter[str]()
    found = aligner.align(src, tgt)
    for k, one in enumerate(found):
        explained = sum(one.scores) / max(1, min(len(src[k]), len(tgt[k])))
        if explained < LEAST_EXPLAINED:
            continue
        sources[rows[k][0]] += 1
        links = [(i, j, s) for (i, j), s in zip(one.links, one.scores, strict=True)]
        columns = WordPair(src[k], tgt[k], links, [], []).as_lines()
        glue = ("".join("01"[g] for g in glued[k]) for glued in (src_glued, tgt_glued))
        written.write("\t".join((*columns, *glue)) + "\n")
    replace_file(out.with_suffix(".json"), json.dumps(sources).encode())
    replace_file(out, written.getvalue().encode())
    print(f"{language}: {sum(sources.values()):,} of {len(rows):,} pairs", file=sys.stderr)


def parse_pair(line: str) -> WordPair:
    """Read a line that `learn_language` wrote."""
    src, tgt, links, *glued = line.split("\t")
    return WordPair(
        src.split(" "),
        tgt.split(" "),
        list(parse_links(links).links),
        *([mark == "1" for mark in marks] for marks in glued),
    )


# ---- forms in which people have their text ----


def merge_words(words: Sequence[str], joined: Sequence[bool]) -> tuple[list[str], list[int]]:
    """Join each word with the next one where `joined` says so; return each old word's new place.

    `a b c` with the first joined: `ab c`, 0 0 1.
    """
    merged, places, open_word = [], [], False
    for word, follows in zip(words, joined, strict=True):
        if open_word:
            merged[-1] += word
        else:
            merged.append(word)
        places.append(len(merged) - 1)
        open_word = follows
    return merged, places


def move_links(links: Iterable[Link], src: Sequence[int], tgt: Sequence[int]) -> list[Link]:
    """Give links new places; of links that fall together the surest one counts."""
    best: dict[tuple[int, int], float] = {}
    for i, j, score in links:
        place = src[i], tgt[j]
        best[place] = max(score, best.get(place, 0.0))
    return [(*place, score) for place, score in best.items()]


def attach_marks(pair: WordPair) -> WordPair:
    """Split at blanks alone, as text is that nobody tokenised."""
    src, src_places = merge_words(pair.src, pair.src_glued)
    tgt, tgt_places = merge_words(pair.tgt, pair.tgt_glued)
    return WordPair(src, tgt, move_links(pair.links, src_places, tgt_places), [], [])


def drop_accents(pair: WordPair) -> WordPair:
    src = [normalize_word(word, lowercase=False, fold_accents=True) for word in pair.src]
    return WordPair(src, pair.tgt, pair.links, [], [])


def split_parts(pair: WordPair) -> WordPair:
    """Split words at hyphens and apostrophes, which then stand alone; all parts are linked."""
    parts = [
        [re.findall(r"\w+|[^\w\s]", word) or [word] for word in side]
        for side in (pair.src, pair.tgt)
    ]
    starts = []
    for side in parts:
        ends = [0]
        for word in side:
            ends.append(ends[-1] + len(word))
        starts.append(ends)
    links = [
        (a, b, score)
        for i, j, score in pair.links
        for a in range(starts[0][i], starts[0][i + 1])
        for b in range(starts[1][j], starts[1][j + 1])
        if _is_mark(parts[0][i], a - starts[0][i]) == _is_mark(parts[1][j], b - starts[1][j])
    ]
    src, tgt = ([part for word in side for part in word] for side in parts)
    return WordPair(src, tgt, links, [], [])


def _is_mark(parts: list[str], place: int) -> bool:
    return not parts[place][0].isalnum()


def join_segments(pair: WordPair, segmenter: sentencepiece.SentencePieceProcessor) -> WordPair:
    """Join characters of scripts without spaces to segments of the size of words."""
    ends, end = set(), 0
    for piece in segmenter.encode("".join(pair.src), out_type=str):
        end += len(piece)
        ends.add(end)
    joined, place = [], 0
    for word, follows in zip(pair.src, [*pair.src[1:], "."], strict=True):
        place += len(word)
        spaceless = all(unicodedata.category(w[0]) == "Lo" for w in (word, follows))
        joined.append(spaceless and place not in ends)
    src, places = merge_words(pair.src, joined)
    return WordPair(src, pair.tgt, move_links(pair.links, places, range(len(pair.tgt))), [], [])


def learn_segmenter(lines: Iterable[str]) -> sentencepiece.SentencePieceProcessor:
    """Learn segments of up to four characters, from text alone."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line.partition("\t")[0].replace(" ", "") for line in lines),
        model_writer=model, model_type="unigram", vocab_size=SEGMENTS, hard_vocab_limit=False,
        max_sentencepiece_length=4, character_coverage=1.0, add_dummy_prefix=False,
        normalization_rule_name="identity", num_threads=2, minloglevel=2,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def choose_form(
    language: str,
    rng: random.Random,
    segmenter: sentencepiece.SentencePieceProcessor | None,
) -> Callable[[WordPair], WordPair] | None:
    """Draw a form for a pair to be in, None to leave it as it is. Shares are judged."""
    if segmenter and rng.random() < 0.5:
        return lambda pair: join_segments(pair, segmenter)
    draw = rng.random()
    # Old and typed French lacks accents more often than other text: our En-Fr set has none.
    accents = 0.25 if language == "fr" else 0.06
    if draw < accents:
        return drop_accents
    if draw < accents + 0.03:
        return attach_marks
    if draw < accents + 0.06:
        return split_parts
    return None


# ---- all languages ----


def pivot_pairs(
    languages: dict[str, list[str]], count: int, rng: random.Random
) -> Iterator[WordPair]:
    """Yield pairs of two other languages with the same English words, linked through those."""
    by_english = defaultdict[str, dict[str, str]](dict)
    for language, lines in languages.items():
        for line in lines:
            english = line.split("\t", 2)[1]
            if english.count(" ") > 1:
                by_english[english][language] = line
    shared = [found for found in by_english.values() if len(found) > 1]
    for found in rng.sample(shared, min(count, len(shared))):
        a, b = map(parse_pair, rng.sample(list(found.values()), 2))
        through = defaultdict[int, list[tuple[int, float]]](list)
        for i, j, score in b.links:
            through[j].append((i, score))
        links = [(i, k, s * t) for i, j, s in a.links for k, t in through[j] if s * t >= LEAST]
        whole = move_links(links, range(len(a.src)), range(len(b.src)))
        yield WordPair(a.src, b.src, whole, a.src_glued, b.src_glued)


def mix_languages(
    parts: dict[str, Path], limits: Mapping[str, int], out: Callable[[str], Path]
) -> None:
    """Write pairs of all languages in random order, in the forms that text has: `src`, `tgt`,
    `links`. Of a language at most its limit is taken, from the beginning."""
    rng = random.Random(0)
    languages = {
        name: list(islice(read_lines(path), limits.get(name))) for name, path in parts.items()
    }
    total = sum(map(len, languages.values()))
    rows = [pair.as_lines() for pair in pivot_pairs(languages, round(PIVOTED * total), rng)]
    for name, lines in languages.items():
        segmenter = learn_segmenter(lines) if name in SEGMENTED else None
        for line in lines:
            form = choose_form(name, rng, segmenter)
            row = form(parse_pair(line)).as_lines() if form else tuple(line.split("\t")[:3])
            rows.append(row)
    rng.shuffle(rows)
    for kind, column in zip(("src", "tgt", "links"), zip(*rows, strict=True), strict=True):
        replace_file(out(kind), "".join(f"{line}\n" for line in column).encode())
