"""Measure what follows alignment: CPU seconds and memory of lexicons and projection.

`python -m mx_align.benchmarks.apply_speed --pairs 1000000` repeats a small text until there are so
many pairs, or takes --src, --tgt and --links. Each step runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..engine.apply.linked_text import LinkedFiles

SAMPLE = Path(__file__).parents[1] / "tests" / "data"


def repeat_lines(source: Path, target: Path, n_lines: int) -> None:
    """Write the lines of a file again and again."""
    lines = source.read_text("utf-8").splitlines()
    with open(target, "w", encoding="utf-8") as file:
        for n in range(n_lines):
            file.write(lines[n % len(lines)] + "\n")


def time_lexicon(src: str, tgt: str, links: str, folder: str) -> None:
    """Count a text and write both tables and a shortlist."""
    from ..engine.apply.lexicon.counts import LexicalCounts
    from ..engine.apply.lexicon.tables import LexicalTable, write_lexicons, write_shortlist

    counts = LexicalCounts()
    for pairs, found in LinkedFiles(src, tgt, links).read_chunks():
        counts.add_chunk(pairs, found)
    table = LexicalTable.from_counts(counts)
    write_lexicons(f"{folder}/lex", table)
    write_shortlist(f"{folder}/short", table)


def time_reading(src: str, tgt: str, links: str, folder: str) -> None:
    """Read text and links, nothing else."""
    for _ in LinkedFiles(src, tgt, links).read_chunks():
        pass


def time_labels(src: str, tgt: str, links: str, folder: str) -> None:
    """Carry over labels of three words in each sentence; CoNLL in, CoNLL out."""
    from ..engine.apply.projection.files import project_files

    conll = f"{folder}/labels.conll"
    if not Path(conll).exists():
        with open(src, encoding="utf-8") as lines, open(conll, "w", encoding="utf-8") as file:
            for line in lines:
                tags = ["B-A", "I-A", "O", "B-B"]
                rows = [f"{w}\t{tags[k % 4]}\n" for k, w in enumerate(line.split())]
                file.write("".join(rows) + "\n")
    project_files("conll", conll, tgt, f"{folder}/labels.out", links=links, restart=True)


def time_markup(src: str, tgt: str, links: str, folder: str) -> None:
    """Carry over two elements in each line, with links of tokens that stand between spaces."""
    from ..engine.apply.projection.annotations import MarkupLine
    from ..engine.apply.projection.ranges import LinkedPair
    from ..engine.links.link_files import parse_links

    with (
        open(src, encoding="utf-8") as sources,
        open(tgt, encoding="utf-8") as targets,
        open(links, encoding="utf-8") as rows,
        open(f"{folder}/markup.out", "w", encoding="utf-8") as out,
    ):
        for source, target, row in zip(sources, targets, rows, strict=True):
            words = source.split()
            marked = " ".join(["<p>", *words[:2], "<b>", *words[2:4], "</b>", *words[4:], "</p>"])
            item = MarkupLine(marked, target.rstrip("\n"))
            n_src, n_tgt = len(item.src_words), len(item.tgt_words)
            found = [
                link
                for link in parse_links(row.rstrip("\n")).links
                if link[0] < n_src and link[1] < n_tgt
            ]
            out.write(item.render(LinkedPair(item.src_words, item.tgt_words, found), "best")[0])


STEPS: dict[str, Callable[..., None]] = {
    "reading": time_reading,
    "lexicon": time_lexicon,
    "labels": time_labels,
    "markup": time_markup,
}


def measure_step(name: str, arguments: tuple[str, ...], results: Any) -> None:
    """Run a step and tell CPU seconds and peak memory of this process."""
    start = time.process_time()
    STEPS[name](*arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    results.put({"step": name, "cpu_seconds": time.process_time() - start, "peak_mb": peak})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--src", type=Path, default=SAMPLE / "sample.en")
    parser.add_argument("--tgt", type=Path, default=SAMPLE / "sample.fr")
    parser.add_argument("--links", type=Path, help="default: those of the statistical aligner")
    parser.add_argument("--steps", nargs="*", default=list(STEPS), choices=list(STEPS))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        links = given.links
        if links is None:
            from ..engine.statistical.aligner import StatisticalAligner

            links = folder / "small.links"
            aligner = StatisticalAligner.learn_files(given.src, given.tgt, lowercase=True)
            aligner.align_files(given.src, given.tgt, links)
        files = []
        for source, end in ((given.src, "src"), (given.tgt, "tgt"), (links, "links")):
            repeat_lines(source, folder / end, given.pairs)
            files.append(str(folder / end))
        context = multiprocessing.get_context("spawn")
        for step in given.steps:
            results = context.Queue()
            process = context.Process(target=measure_step, args=(step, (*files, name), results))
            process.start()
            found = results.get()
            process.join()
            found = {key: round(v, 1) if key != "step" else v for key, v in found.items()}
            rate = round(given.pairs / found["cpu_seconds"])
            print(json.dumps({**found, "pairs": given.pairs, "pairs_per_cpu_second": rate}))


if __name__ == "__main__":
    main()
