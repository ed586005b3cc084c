"""Measures statistics, a model, their combination and eflomal on all development golds.

    alias development='python -m mx_align.benchmarks.development --data DATA --work FOLDER'
    development --pairs 500 --pairs 10000 -m model.mx
    development --pairs 10000 --peer-python .eflomal/bin/python

DATA has multi/dev and multi/train, and en-fr and ja-en with dev pairs. The text that all learn from
is an even sample of a set's training text, cut into words, and the gold pairs after it, without
their links, as they are written (eflomal lowercases by itself).
"""

import gzip
import io
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import zstandard

from ..engine.aligner import Aligner
from ..engine.links.evaluation import align_columns
from ..engine.links.heuristics import JOIN_METHODS, join_directions
from ..engine.links.link_files import Gold, parse_links, read_link_file
from ..engine.links.scoring import Score, score_links
from ..engine.text.tokens.tokenizer import tokenize_line
from ..engine.types import Link
from .systems import find_program

# Sets in folders of their own: the languages in the order of their links.
FOLDERS = {"en-fr": ("en", "fr"), "ja-en": ("ja", "en")}
METHODS = ("statistics", "model", "both")


@dataclass(frozen=True)
class DevelopmentSet:
    """A gold set and the text to learn from."""

    name: str
    langs: tuple[str, str]
    gold: Path  # without the ending
    train: tuple[Path, ...]  # one file of pairs, or two

    def read_gold(self) -> list[Gold]:
        """Return the gold links."""
        return read_link_file(f"{self.gold}.talp").sentences

    def write_text(self, work: Path, n_pairs: int) -> tuple[Path, Path]:
        """Write an even sample of the training text and the gold pairs after it; once."""
        paths = tuple(work / f"{self.name}.{n_pairs}.{side}" for side in self.langs)
        if not all(path.exists() for path in paths):
            rows = list(self._read_train())
            random.Random(0).shuffle(rows)
            gold = zip(
                *(_read_lines(Path(f"{self.gold}.{side}")) for side in self.langs), strict=True
            )
            rows = rows[:n_pairs] + list(gold)
            for n, path in enumerate(paths):
                path.write_text("".join(f"{row[n]}\n" for row in rows), "utf-8")
        return paths[0], paths[1]

    def _read_train(self) -> Iterator[tuple[str, str]]:
        if len(self.train) == 2:
            yield from zip(*map(_read_lines, self.train), strict=True)
            return
        for line in _read_lines(self.train[0]):
            _, english, other = line.split("\t")
            first, second = (
                " ".join(tokenize_line(text, lang))
                for text, lang in zip((english, other), self.langs, strict=True)
            )
            yield first, second


def find_sets(data: Path) -> list[DevelopmentSet]:
    """Return all sets that the folder has."""
    sets = []
    for name, langs in FOLDERS.items():
        files = data / name / f"train.{langs[0]}.gz", data / name / f"train.{langs[1]}.gz"
        if files[0].exists():
            sets.append(DevelopmentSet(name, langs, data / name / "dev", files))
    for folder in sorted((data / "multi" / "dev").glob("*")):
        lang = folder.name
        train = data / "multi" / "train" / f"{lang}.tsv.zst"
        sets.append(DevelopmentSet(f"en-{lang}", ("en", lang), folder / "dev", (train,)))
    return sets


def _read_lines(path: Path) -> list[str]:
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    if path.suffix == ".zst":
        data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()
    return data.decode("utf-8").split("\n")[:-1]


# ---- systems ----


def align_text(
    one: DevelopmentSet, texts: tuple[Path, Path], out: Path, method: str, model: str | None
) -> list[set[Link]] | None:
    """Return the links of the gold pairs by a method of mx-align; None if no model knows them."""
    aligner = Aligner.load(model, langs="-".join(one.langs), backend="cpu", threads=1)
    known = aligner.bundle and aligner.bundle.language_order("-".join(one.langs))
    if method != "statistics" and not known:
        return None
    aligner.align_files(*texts, out, method=method, resume=False)
    return _last_links(out, len(one.read_gold()))


def run_eflomal(
    one: DevelopmentSet, texts: tuple[Path, Path], out: Path, python: str
) -> list[set[Link]]:
    """Return eflomal's links, its directions joined in the way that is best on the gold pairs."""
    program = find_program(python, "eflomal-align", "pip install eflomal")
    fwd, bwd = out.with_suffix(".fwd"), out.with_suffix(".bwd")
    files = "-s", texts[0], "-t", texts[1], "-f", fwd, "-r", bwd
    subprocess.run([program, "--overwrite", *map(str, files)], check=True, capture_output=True)
    gold = one.read_gold()
    both = [_last_links(path, len(gold)) for path in (fwd, bwd)]
    ways = [
        [set(join_directions(way, a, b)) for a, b in zip(*both, strict=True)]
        for way in JOIN_METHODS
    ]
    return min(ways, key=lambda links: score_links(links, gold).aer)


def _last_links(path: Path, count: int) -> list[set[Link]]:
    rows = [parse_links(line) for line in _read_lines(path)[-count:]]
    return [{(i, j) for i, j, _ in row.links} for row in rows]


def format_score(score: Score | None) -> str:
    """Return AER, and precision and recall, in percent."""
    if score is None:
        return "–"
    return f"{100 * score.aer:.1f} ({100 * score.precision:.0f}/{100 * score.recall:.0f})"


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Keeps the texts.")
@click.option("--pairs", multiple=True, type=int, default=(10_000,), show_default=True)
@click.option("--set", "names", multiple=True, help="Only these sets [default: all].")
@click.option("-m", "--model", help="A bundle [default: the one that is installed].")
@click.option("--peer-python", help="The interpreter that has eflomal [default: without it].")
@click.option("--out", type=click.Path(path_type=Path), help="Keep the numbers as JSON.")
def main(
    data: Path, work: Path, pairs: tuple[int, ...], names: tuple[str, ...], model: str | None,
    peer_python: str | None, out: Path | None,
) -> None:  # fmt: skip
    """Print a table of AER (precision / recall) for each set and number of pairs."""
    work.mkdir(parents=True, exist_ok=True)
    columns = [*METHODS, "eflomal"] if peer_python else list(METHODS)
    rows = [["set", "pairs", *columns, "both - better"]]
    kept = []
    for one in find_sets(data):
        if names and one.name not in names:
            continue
        for n_pairs in pairs:
            texts, gold = one.write_text(work, n_pairs), one.read_gold()
            scores: dict[str, Score | None] = {}
            for method in METHODS:
                links = align_text(one, texts, work / "links", method, model)
                scores[method] = links and score_links(links, gold)
            if peer_python:
                links = run_eflomal(one, texts, work / "links", peer_python)
                scores["eflomal"] = score_links(links, gold)
            n_text = sum(1 for _ in texts[0].open("rb")) - len(gold)
            alone = [scores[name].aer for name in METHODS[:2] if scores[name]]
            both = scores["both"]
            gain = f"{100 * (both.aer - min(alone)):+.1f}" if both else "–"
            cells = [format_score(scores[name]) for name in columns]
            rows.append([one.name, f"{n_text:,}", *cells, gain])
            kept.append(
                {"set": one.name, "pairs": n_text}
                | {name: vars(score) | {"counts": None} for name, score in scores.items() if score}
            )
            print("\t".join(rows[-1]), file=sys.stderr, flush=True)
    print("\n".join(align_columns(rows)))
    if out:
        out.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
