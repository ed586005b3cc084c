"""Write finished chunks, and pass over those that earlier runs wrote.

Knows files, reader and report of one run. Does not align.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..align.pipeline import FinishedChunk
from ..storage import atomic_write
from ..text.corpus import ChunkReader
from ..text.files import open_output
from ..types import Counts
from .corpus_options import CorpusOptions, CorpusSummary, format_shard
from .output_files import OutputFiles

if TYPE_CHECKING:
    from ..view.corpus_report import ReportCollector


def skip_finished(
    files: OutputFiles, reader: ChunkReader, observer: ReportCollector | None
) -> Counts:
    """Let the reader and the observer pass over what earlier runs did; returns its counts."""
    total = Counts()
    for record in files.records:
        if not files.complete:
            reader.skip_chunk(record["pairs"], record["digest"])
        total += Counts(*record["counts"])
    if observer:
        observer.add_notes(files.read_notes())
    return total


def write_chunk(
    files: OutputFiles | None, done: FinishedChunk, observer: ReportCollector | None
) -> None:
    """Add a chunk to the files, or write its links to standard output."""
    items, notes = list(done.items), []
    if observer:
        notes = [observer.encode_note(observer.add(items.pop()[0]))]
    parts = ["".join(f"{line}\n" for line in lines).encode("utf-8") for lines in items]
    if files:
        files.append_chunk(parts + notes, done.counts, done.pairs.digest, done.pairs.whole)
    else:
        with open_output("-") as out:
            out.write(parts[0])


def write_reports(
    aligner: Any, options: CorpusOptions, summary: CorpusSummary, observer: ReportCollector,
    title: str,
) -> None:  # fmt: skip
    """Write the numbers and the page of a run of an `Aligner`, as far as they are wanted."""
    signature = aligner.signature()
    if options.report:
        report = {
            **vars(summary.total),
            "links_per_word": round(summary.links_per_word, 6),
            "resumed": summary.resumed,
            "seconds": round(summary.seconds, 3),
            "pairs_per_second": round(summary.pairs_per_second, 3),
            "signature": signature,
            "backend": aligner.describe(),
            "model": aligner.bundle.digest if aligner.bundle else None,
            "threads": aligner.backend.workers if aligner.backend else aligner.threads,
            "shard": format_shard(options.shard),
            "corpus": observer.report(),
        }
        with atomic_write(options.report) as file:
            file.write(json.dumps(report, indent=2, ensure_ascii=False).encode() + b"\n")
    if options.html:
        from ..view.page import build_page
        from ..view.page_content import make_model_page, make_page_of_links

        if aligner.bundle:
            alone = aligner.statistics is None and aligner.average is None
            page = make_model_page(aligner, observer, title, None if alone else signature)
        else:
            page = make_page_of_links(observer, title, signature)
        with atomic_write(options.html) as file:
            file.write(build_page(page).encode())
