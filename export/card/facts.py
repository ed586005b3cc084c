"""Gather what a model card tells besides the graphs: what training cost, where the model comes
from, and how good its links are.

Does not write the card.
"""

import json
from pathlib import Path
from typing import Any

from ...engine.aligner import Aligner
from ...engine.links.scoring import bootstrap_intervals, count_sentences, score_counts
from ...engine.text.files import read_pairs
from ...trainer.config import STATISTICAL
from ...trainer.data.gold import read_gold_links
from ...trainer.run.folder import load_run
from ...trainer.run.training_data import choose_teachers
from ...trainer.teachers.teachers import is_link_file


def read_cost(run: Path) -> dict[str, float]:
    """Return steps, pieces and seconds of a run, over all its starts; empty without a log."""
    found: dict[str, float] = {}
    try:
        lines = (run / "log.jsonl").read_text("utf-8").split("\n")
    except OSError:
        return found
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:  # the end of a line that a kill has cut
            continue
        for name in ("step", "pieces", "seconds"):
            if isinstance(record.get(name), int | float):
                found[name] = max(record[name], found.get(name, 0))
    return {name: round(value, 1) for name, value in found.items()}


def read_origins(run: Path) -> dict[str, Any]:
    """Name the model that the run started from and its teachers, if it had any."""
    if not (run / "command.json").exists():
        return {}
    config, texts = load_run(run)
    start = model_name(texts.start or "")
    taught = [name_teacher(name) for name in choose_teachers(texts, config)]
    return {**({"start": start} if start else {}), **({"teachers": taught} if taught else {})}


def name_teacher(teacher: str) -> str:
    """Name a teacher, but no file of links: a model's name tells something, theirs rather a
    secret."""
    if teacher == STATISTICAL:
        return "the statistical aligner"
    return "a file of links" if is_link_file(teacher) else model_name(teacher)


def model_name(path: str) -> str:
    return Path(path).name.removesuffix(".mx")


def measure_on_gold(bundle: Path, files: tuple[str, str, str]) -> dict[str, Any]:
    """Return AER, precision and recall of what mx-align gives, in percent, with the ends of their
    95 % intervals."""
    src, tgt, path = files
    pairs = list(read_pairs(src, tgt))
    aligner = Aligner.load(bundle, backend="cpu")
    found = aligner.align_batch([s for s, _ in pairs], [t for _, t in pairs])
    gold = read_gold_links(path, [(len(one.src), len(one.tgt)) for one in found], src)
    table = count_sentences([set(one.links) for one in found], gold)
    total, ends = score_counts(table), bootstrap_intervals(table)
    return {
        "links": Path(path).name,
        "pairs": len(found),
        **{
            name: [round(100 * x, 2) for x in (getattr(total, name), *ends[name])]
            for name in ("aer", "precision", "recall")
        },
    }
