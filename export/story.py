"""What a model card tells besides the graphs: what training cost, and how good the links are.
Knows the run's log and gold files; how it is written down is the matter of `card`."""

import json
from pathlib import Path
from typing import Any

import onnx

from mx.engine.score import bootstrap, count_all, score_counts
from mx.engine.text import Tokenizer
from mx.export import probe as text
from mx.trainer.corpus import gold_links
from mx.trainer.run import opened


def cost(run: Path) -> dict[str, float]:
    """Steps, pieces and seconds of a run, over all its starts; empty without a log."""
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


def started_from(run: Path) -> str:
    """The name of the model that the run started from; empty if it began anew."""
    if not (run / "command.json").exists():
        return ""
    return Path(opened(run)[1].start or "").name.removesuffix(".mx")


def tested(
    graph: onnx.ModelProto,
    threshold: float,
    files: tuple[str, str, str],
    tokenizers: tuple[Tokenizer, Tokenizer],
) -> dict[str, Any]:
    """AER, precision and recall in percent, with the ends of their 95 % intervals."""
    src, tgt, path = files
    pairs = text.from_files(src, tgt, tokenizers, None, "the test text")
    sizes = [(s.n_words, t.n_words) for s, t in zip(pairs.src, pairs.tgt, strict=True)]
    gold = gold_links(path, sizes, src)
    scores = [one for (one,) in text.word_values(text.open_session(graph), pairs)]
    table = count_all(text.links(scores, threshold), gold)
    total, ends = score_counts(table), bootstrap(table)
    return {
        "pairs": len(pairs),
        **{
            name: [round(100 * x, 2) for x in (getattr(total, name), *ends[name])]
            for name in ("aer", "precision", "recall")
        },
    }
