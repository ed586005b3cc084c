"""Makes the model that ships: one student for English with many languages, from the data folder.

    python -m mx_align.benchmarks.multilingual --data DATA/multi --work DIR --minutes 60
    python -m mx_align.benchmarks.multilingual --data DATA/multi --bundle model.mx

Each language gets links by statistics from its own text; all texts together teach the student. The
gold pairs of `dev/xx` choose thresholds and calibration, nothing else. The command goes on where it
was stopped; with `--start BUNDLE` it goes on from a model. With `--bundle` it only scores a model
on the gold pairs, and on pairs without English that are linked through it.
"""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..engine.aligner import Aligner
from ..engine.bundle.bundle import Bundle
from ..engine.errors import MxError
from ..engine.links.link_files import Gold, read_link_file
from ..engine.links.scoring import count_sentences, score_counts
from ..engine.text.files import read_lines
from ..trainer.data.vocabulary import learn_vocabulary
from . import records, watch
from .multilingual_text import learn_language, mix_languages
from .systems import export_command, module_command

VOCABULARY = 56_000
ENGLISH = 4  # every fourth English line counts for the vocabulary: there are 36 times as many
# Languages of the XL-WA sets, over which the mean is taken.
XLWA = ("bg", "da", "es", "et", "hu", "it", "nl", "pt", "ru", "sl")
# Pairs of a language that statistics learn from, and of those what the students learn from.
# Languages that most people have get more.
LEARNED = 45_000
MORE_LEARNED = {"de": 110_000, "fr": 110_000}
TAUGHT = 28_000
MORE_TAUGHT = {"de": 60_000, "fr": 60_000, **dict.fromkeys(("es", "it", "nl", "pt", "ru"), 35_000)}
# A word is represented by its first piece: with a third layer that sees three pieces each way.
SHAPE = ("--student", "--lowercase", "--vocab-size", VOCABULARY, "--encoder-layers", 3)
# Larger batches than one pair of languages needs, fewer long rows, which cost most.
PACE = ("--batch-tokens-start", 1500, "--batch-tokens", 5000, "--joins", 0.1)

# Licences as the data's README has them.
LICENCES = {
    "europarl": "European Parliament terms: reuse with acknowledgement",
    "tatoeba": "CC BY 2.0 FR",
    "libreoffice": "MPL-2.0",
    "debian": "free, mixed (package descriptions)",
    "pydocs": "CC0 and PSF",
    "godot": "CC BY 3.0",
    "gnome": "CC BY 3.0",
    "homeassistant": "Apache-2.0",
    "firefox": "MPL-2.0",
    "suttacentral": "CC0",
    "bible": "public domain, CC BY or CC BY-SA",
    "kyoto": "CC BY-SA 3.0",
    "tico19": "CC0",
    "rosts": "CC BY-SA 4.0",
    "mlqepe": "CC0",
    "indianwiki": "CC BY-SA 3.0",
}
LIMITS = (
    "Knows software, parliament, Tatoeba's everyday sentences and the Bible; other text less. "
    "Languages of which there was little running text (sk, ca, ko, sl, vi, et, nb, tr, bg: mostly "
    "software) and those far from English (hi, tr, ko, ja) are aligned worse. Pairs without "
    "English go through the same network and are aligned worse than those with it."
)


# ---- gold pairs ----


def read_gold_set(data: Path, language: str) -> tuple[list[str], list[str], list[Gold]]:
    """Return a development set as the model reads it: other language, English, links that way."""
    stem = data / "dev" / language
    english, other = (list(read_lines(stem / f"dev.{side}")) for side in ("en", language))
    gold = read_link_file(str(stem / "dev.talp")).fit_length(len(english), "dev.en").sentences
    return other, english, [swap_gold(one) for one in gold]


def swap_gold(gold: Gold) -> Gold:
    return Gold(*(frozenset((j, i) for i, j in links) for links in (gold.sure, gold.possible)))


def write_gold(data: Path, languages: list[str], out: Path) -> tuple[Path, Path, Path]:
    """Write the gold pairs of all languages as one set."""
    out.mkdir(parents=True, exist_ok=True)
    paths = out / "gold.src", out / "gold.tgt", out / "gold.talp"
    columns: tuple[list[str], list[str], list[str]] = ([], [], [])
    for language in languages:
        src, tgt, gold = read_gold_set(data, language)
        links = [" ".join(f"{i}-{j}" for i, j in sorted(one.possible)) for one in gold]
        for column, lines in zip(columns, (src, tgt, links), strict=True):
            column += lines
    for path, lines in zip(paths, columns, strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return paths


def score_languages(bundle: Path, data: Path, **settings: Any) -> dict[str, dict[str, float]]:
    """Return AER, precision and recall of a model on each development set, and the means."""
    aligner = Aligner.load(bundle, **settings)
    rows: dict[str, dict[str, float]] = {}
    for language in sorted(path.name for path in (data / "dev").iterdir()):
        src, tgt, gold = read_gold_set(data, language)
        links = [set(one.links) for one in aligner.align(src, tgt)]
        scores = score_counts(count_sentences(links, gold))
        rows[language] = {
            name: round(100 * getattr(scores, name), 2) for name in ("aer", "precision", "recall")
        }
    for name, members in (("XL-WA", XLWA), ("all", tuple(rows))):
        rows[f"mean {name}"] = {
            kind: round(sum(rows[one][kind] for one in members) / len(members), 2)
            for kind in ("aer", "precision", "recall")
        }
    return rows


def score_without_english(bundle: Path, data: Path, **settings: Any) -> dict[str, float]:
    """Return the scores on pairs of two XL-WA languages with the same English sentence.

    Their gold links are those that lead over an English word.
    """
    sets = {language: read_gold_set(data, language) for language in XLWA}
    aligner = Aligner.load(bundle, **settings)
    counts: list[Any] = []
    for first, second in combinations(XLWA, 2):
        there = {english: k for k, english in enumerate(sets[second][1])}
        src, tgt, gold = [], [], []
        for k, english in enumerate(sets[first][1]):
            if english in there:
                other = there[english]
                src.append(sets[first][0][k])
                tgt.append(sets[second][0][other])
                links = frozenset(
                    (i, j)
                    for i, word in sets[first][2][k].sure
                    for j, same in sets[second][2][other].sure
                    if word == same
                )
                gold.append(Gold(links, links))
        links = [set(one.links) for one in aligner.align(src, tgt)]
        counts.append(count_sentences(links, gold))
    scores = score_counts(np.concatenate(counts))
    return {
        "pairs": sum(map(len, counts)),
        **{kind: round(100 * getattr(scores, kind), 2) for kind in ("aer", "precision", "recall")},
    }


# ---- training ----


def learn_languages(data: Path, work: Path, jobs: int) -> dict[str, Path]:
    """Return the files of all languages with links by statistics, made unless they are there."""
    names = sorted(path.name.split(".")[0] for path in (data / "train").glob("*.tsv.zst"))
    parts = {name: work / "parts" / f"{name}.tsv" for name in names}
    (work / "parts").mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(jobs) as pool:
        done = [
            pool.submit(learn_language, data, name, MORE_LEARNED.get(name, LEARNED), path)
            for name, path in parts.items()
        ]
        for one in done:
            one.result()
    return parts


def make_vocabulary(work: Path) -> Path:
    """Learn the pieces of all languages from the mixed text."""
    out = work / "vocabulary.spm"
    if not out.exists():
        english = islice(read_lines(work / "tgt"), 0, None, ENGLISH)
        lines = chain(read_lines(work / "src"), english)
        learn_vocabulary(lines, out, size=VOCABULARY, lowercase=True)
    return out


def train_student(work: Path, minutes: float, threads: int, start: Path | None) -> watch.Cost:
    """Train the student; a run that is there goes on."""
    if start:
        begin: tuple[Any, ...] = ("--start", start)
    else:
        begin = (*SHAPE, "--vocab", make_vocabulary(work))
    flags = (
        *begin, *PACE, "--teacher", work / "links", "--valid-last", 1000, "--eval-every", 500,
        "--save-every", 500, "--patience", 0, "--dtype", "bf16", "--threads", threads,
        "--minutes", minutes, "--steps", 200_000,
    )  # fmt: skip
    texts = work / "src", work / "tgt"
    command = module_command("mx_align.trainer", *texts, "-o", work / "run", *flags)
    return watch.run_command(command, work / "log")


def count_sources(parts: dict[str, Path]) -> Counter[str]:
    """Count the pairs of each source that the students learned from: of those of a language, which
    are in random order, the first ones."""
    total = Counter[str]()
    for name, path in parts.items():
        found = json.loads(path.with_suffix(".json").read_text("utf-8"))
        share = min(1.0, MORE_TAUGHT.get(name, TAUGHT) / sum(found.values()))
        total.update({source: round(share * count) for source, count in found.items()})
    return total


def describe_sources(sources: Counter[str]) -> tuple[str, str]:
    """Return what the card says of the data, and of its licences."""
    pairs = sum(sources.values())
    shares = {name: 100 * count / pairs for name, count in sources.most_common()}
    data = f"{pairs:,} pairs of English with 36 languages: " + ", ".join(
        f"{name} {share:.1f} %" for name, share in shares.items()
    )
    return data, "; ".join(f"{name}: {LICENCES.get(name, 'see there')}" for name in shares)


def export_model(work: Path, data: Path, parts: dict[str, Path], out: Path, hardware: str) -> None:
    """Export the student with thresholds and calibration from the development sets."""
    languages = "+".join(sorted(parts)), "+".join(["en", *sorted(parts)])
    golds = sorted(path.name for path in (data / "dev").iterdir())
    src, tgt, links = write_gold(data, golds, work / "gold")
    told, licence = describe_sources(count_sources(parts))
    watch.run_command((
        *export_command(work / "run", out), "--langs", "-".join(languages),
        "--dtype", "fp16", "--dtype", "int8", "--gold-src", src, "--gold-tgt", tgt, "--gold", links,
        "--data", told, "--licence", licence, "--hardware", hardware, "--limits", LIMITS, "--force",
    ), work / "log")  # fmt: skip


# ---- the command ----


@click.command(help=__doc__.split("\n")[0])
@click.option("--data", type=Path, required=True, help="Folder with train/ and dev/.")
@click.option("--work", type=Path, help="Folder for texts and runs, to go on with.")
@click.option("--minutes", type=float, default=60.0, help="Of training [60].")
@click.option("--start", type=Path, help="Go on from this model, with its vocabulary.")
@click.option("--jobs", type=int, default=1, help="Languages learned at a time [1].")
@click.option("--threads", type=int, default=1, help="CPU threads of training [1].")
@click.option("--hardware", default="", help="What the card says it was made on.")
@click.option("--bundle", type=Path, help="Only score this model.")
@click.option("--json", "path", type=Path, default=records.RESULTS / "multilingual.json")
def main(
    data: Path, work: Path | None, minutes: float, start: Path | None, jobs: int, threads: int,
    hardware: str, bundle: Path | None, path: Path,
) -> None:  # fmt: skip
    """Make the model, or score one."""
    try:
        cost: dict[str, float] = {}
        if bundle is None:
            if work is None:
                raise MxError("give --work, a folder for what is made, or --bundle to score")
            parts = learn_languages(data, work, jobs)
            if not (work / "links").exists():
                limits = {name: MORE_TAUGHT.get(name, TAUGHT) for name in parts}
                mix_languages(parts, limits, lambda kind: work / kind)
            cost = train_student(work, minutes, threads, start).round_values()
            bundle = work / "multilingual.mx"
            export_model(work, data, parts, bundle, hardware)
        rows = score_languages(bundle, data)
        rows["without English"] = score_without_english(bundle, data)
        for language, row in rows.items():
            click.echo(f"{language}: AER {row['aer']} P {row['precision']} R {row['recall']}")
        name = Bundle.load(bundle).manifest.name
        records.add_run(
            path, name, {"dev": rows, "cost": cost, **records.describe_circumstances(())}
        )
    except (MxError, watch.CommandError) as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
