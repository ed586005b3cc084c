"""Aligner: a loaded model that turns pairs of sentences, or files of them, into word links.

The door to the engine: commands, cluster and library all come in here. Joins bundle, backend,
pipeline and output; does not parse flags and prints nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .align import long_pairs
from .align.decoding import MODES, SOFT, LinkRule
from .align.matrices import compute_matrices
from .align.pipeline import (
    ChunkFunction,
    FinishedChunk,
    ModelSettings,
    Recipe,
    run_chunk,
    stream_chunks,
)
from .align.processes import run_in_processes
from .alignment import Alignment, SoftAlignment, build_alignments, chunk_sentences, sentence_words
from .bundle.bundle import Bundle
from .bundle.installed import find_bundle
from .bundle.manifest import OptimizeFor
from .errors import InputError, MxError
from .jobs.corpus_options import CorpusOptions, CorpusSummary, find_targets, format_shard
from .jobs.output_files import OutputFiles
from .links.average import MEAN_THRESHOLDS, MIN_MODEL_SCORE, LinkAverager
from .links.formats import LinkFormat
from .options import make_options, output_settings
from .runtime.backends import Backend, GpuOptions, choose_backend, count_cores
from .storage import atomic_write, hash_files
from .text.corpus import ChunkReader, LineSource, ParallelFiles
from .text.files import open_output
from .text.tokens.detection import TokenPlan
from .types import Counts, Link, Links, Pairs, Renderer, Words
from .version import __version__

if TYPE_CHECKING:
    from .view.corpus_report import ReportCollector

# Pairs that are sorted by length together: enough that most batches are full, few enough that
# losing them to a kill costs little.
CHUNK = 8192
# Chunks of a text that would not pay for starting worker processes, a third of a second each.
_SHORT_TEXT = 4
Direction = Literal["forward", "backward"]
# The lowest threshold: cells outside the sentences are 0 and must not be links.
_TINY = float(np.finfo(np.float32).tiny)
# What a direction of the user's is called by a model that is turned round.
_OPPOSITE = {"forward": "backward", "backward": "forward"}
_DEFAULT_OPTIONS = CorpusOptions()


def render_src_words(pairs: Pairs, links: Links) -> list[str]:
    """Write the source words of each pair as a line."""
    return list(map(" ".join, pairs.src))


def render_tgt_words(pairs: Pairs, links: Links) -> list[str]:
    """Write the target words of each pair as a line."""
    return list(map(" ".join, pairs.tgt))


WORD_RENDERERS: tuple[Renderer, Renderer] = (render_src_words, render_tgt_words)


@dataclass(eq=False, repr=False)
class Aligner:
    """A model ready to align. All methods may be called from several threads at once."""

    bundle: Bundle
    backend: Backend
    reason: str  # why this backend
    rule: LinkRule  # in the model's terms
    swapped: bool = False  # the model's source is the user's target
    threshold: float | None = None  # as the user gave it
    optimize_for: OptimizeFor = "aer"
    average: LinkAverager | None = None  # with links of files

    @classmethod
    def load(
        cls,
        model: str | Path | None = None,
        *,
        langs: str | None = None,
        backend: str = "auto",
        dtype: str | None = None,
        threads: int | None = None,
        symmetrize: str = SOFT,
        threshold: float | None = None,
        optimize_for: OptimizeFor = "aer",
        nulls: bool = False,
        gpu_memory: int | None = None,
        devices: Sequence[int] | None = None,
    ) -> Aligner:
        """Load a bundle: a folder or zip file, or one that came with the package.

        Args:
            model: path of the bundle; None takes an installed one.
            langs: which installed one, like "de-en"; a model for "en-de" serves as well, turned
                round, and so does a given model that has these languages the other way round.
            backend: "cpu", "cuda", "trt", "trt-rtx", or "auto" for the fastest that works.
            dtype: arithmetic, like "fp32"; None takes what the bundle recommends.
            threads: threads of the CPU; None for all cores.
            symmetrize: "soft" (the paper's), "forward", "backward", or a classic heuristic.
            threshold: lowest score of a link; None takes the bundle's own.
            optimize_for: which of the bundle's thresholds: "precision" for few wrong links,
                "recall" for few missing ones, "aer" for both.
            nulls: also find the NULL probability of every word.
            gpu_memory: bytes to use at most on each GPU; None for 80 % of what is free.
            devices: numbers of the GPUs to use; None for all.
        """
        bundle = find_bundle(model, langs)
        swapped = langs is not None and bundle.language_order(langs) < 0
        gpu = GpuOptions(gpu_memory, None if devices is None else tuple(devices))
        threads = threads or count_cores()
        chosen, reason = choose_backend(bundle, backend, dtype=dtype, threads=threads, gpu=gpu)
        mode = _OPPOSITE.get(symmetrize, symmetrize) if swapped else symmetrize
        rule = _make_rule(bundle, mode, threshold, optimize_for, nulls)
        return cls(bundle, chosen, reason, rule, swapped, threshold, optimize_for)

    # ---- sentences ----

    def align(
        self, src: Iterable[str | Words], tgt: Iterable[str | Words], *, chunk: int = CHUNK
    ) -> Iterator[Alignment]:
        """Yield the links of parallel sentences, in order, while they are read.

        A sentence is a line, split at spaces and tabs, or a sequence of words. At most three times
        `chunk` pairs are held.
        """
        if chunk < 1:
            raise MxError(f"chunk must be 1 or more, not {chunk}")
        for done in self.align_chunks(chunk_sentences(src, tgt, chunk), [build_alignments]):
            yield from done.items[0]

    def align_pair(self, src: str | Words, tgt: str | Words) -> Alignment:
        """Return the links of one pair."""
        return self.align_batch([src], [tgt])[0]

    def align_batch(
        self, src: Sequence[str | Words], tgt: Sequence[str | Words]
    ) -> list[Alignment]:
        """Return the links of some pairs, found in the calling thread."""
        if len(src) != len(tgt):
            raise InputError(f"{len(src)} source sentences but {len(tgt)} target sentences")
        pairs = Pairs(0, list(map(sentence_words, src)), list(map(sentence_words, tgt)))
        return list(run_chunk(self.make_recipe([build_alignments]), pairs).items[0])

    def soft(self, src: str | Words, tgt: str | Words) -> SoftAlignment:
        """Return all scores and weights of one pair, as matrices over its words."""
        sides = [sentence_words(src), sentence_words(tgt)]
        first, second = reversed(sides) if self.swapped else sides
        matrices = compute_matrices(self.make_settings(), first, second)
        found = SoftAlignment(tuple(first), tuple(second), **matrices)
        return found.swap_sides() if self.swapped else found

    def best_partners(self, pairs: Pairs, direction: Direction) -> list[list[Link]]:
        """Return for each pair the links of one direction: a word's best partner if it beats NULL.

        Forward links each target word to a source word, backward the other way round.
        """
        mode = _OPPOSITE[direction] if self.swapped else direction
        directed = replace(self, rule=LinkRule(mode, None, self.rule.sure), average=None)
        done = run_chunk(directed.make_recipe([build_alignments]), pairs)
        return [found.links for found in done.items[0]]

    # ---- files ----

    def align_files(
        self,
        src: str | Path,
        tgt: str | Path | None = None,
        output: str | Path | None = None,
        *,
        on_progress: Callable[[Counts, int], None] | None = None,
        on_note: Callable[[str], None] | None = None,
        **options: Any,
    ) -> CorpusSummary:
        """Align two parallel files, or one file of pairs, and write links while they are found.

        Writes what mx-align writes, byte for byte. With `output`, a run that was killed goes on
        where it stopped when it is called again with the same arguments.

        Args:
            src: one sentence per line, or without `tgt` one pair per line; "-" is standard input;
                .gz and .zst are unpacked.
            tgt: the other side.
            output: the file of links; None is standard output.
            on_progress: called after each chunk with all counts so far, and how many of the pairs
                earlier runs had done.
            on_note: called with a line about how the tokens were read, if there is need for one.
            options: other fields of `CorpusOptions`, such as format="jsonl", tokens="raw",
                scores="corpus.scores", shard=(1, 4), average=["other.links"],
                report="report.json", html="page.html", resume=False.
        """
        output = None if output is None else str(output)
        chosen = make_options(CorpusOptions, {**options, "output": output})
        src, tgt = str(src), None if tgt is None else str(tgt)
        targets = find_targets(src, tgt, chosen)
        aligner = self._with_average(chosen.average)
        signature = aligner.signature()
        source = ParallelFiles(src, tgt, chosen.separator, chosen.errors, chosen.shard)
        start = time.monotonic()
        reader = aligner.open_reader(source, chosen)
        if on_note and reader.plan.message:
            on_note(reader.plan.message)
        renderers: list[Renderer] = [aligner.make_renderer(chosen.format, chosen)]
        renderers += [aligner.make_renderer("scores", chosen)] if chosen.scores else []
        renderers += WORD_RENDERERS if chosen.write_tokenized else []
        observer = None
        if chosen.report or chosen.html:
            from .view.corpus_report import ReportCollector

            observer = ReportCollector(chosen.html_sample if chosen.html else 0)
            renderers.append(observer)
        settings = {  # which a run that goes on must repeat
            "how": signature,
            "model": aligner.bundle.digest,
            "first_line": reader.first + 1,
            **output_settings(chosen),
            "shard": format_shard(chosen.shard),
        }
        if tgt is not None:
            settings["separator"] = None  # there is nothing to separate
        if chosen.average:
            # Their lines are compared, too; sizes tell the files of several shards apart.
            settings["average"] = [os.path.getsize(name) for name in chosen.average]
        if chosen.shard[1] > 1:  # mx-merge must not join shards of different texts
            settings["input"] = hash_files(name for name in (src, tgt, *chosen.average) if name)
        with (
            OutputFiles(targets, settings, restart=not chosen.resume, notes=observer is not None)
            if targets
            else nullcontext()
        ) as files:
            total = _skip_finished(files, reader, observer) if files else Counts()
            resumed = total.pairs
            finished = bool(files and files.complete)
            for done in () if finished else aligner.align_lines(reader, renderers, chosen):
                _write_chunk(files, done, observer)
                total += done.counts
                if on_progress:
                    on_progress(total, resumed)
            summary = CorpusSummary(total, resumed, time.monotonic() - start, [signature])
            # Before the links have their name: whoever finds those finds a report of all of them.
            # Notes can only be lost if a run was killed at its very end, when all this was written.
            if observer and observer.total.pairs == total.pairs:
                names = [os.path.basename(name) for name in (src, tgt) if name]
                title = " · ".join([*names, aligner.bundle.name])
                aligner._write_reports(chosen, summary, observer, title)
            if files:
                files.finish()
        return replace(summary, seconds=time.monotonic() - start)

    def align_chunks(
        self,
        chunks: Iterable[Pairs],
        renderers: Sequence[Renderer],
        options: CorpusOptions = _DEFAULT_OPTIONS,
    ) -> Iterator[FinishedChunk]:
        """Yield finished chunks in their order, with the items of each renderer.

        At most three chunks are held. An error of the input is raised after all before it.
        """
        return stream_chunks(self.make_recipe(renderers, options), chunks, self.backend.workers)

    def align_lines(
        self, reader: ChunkReader, renderers: Sequence[Renderer], options: CorpusOptions
    ) -> Iterator[FinishedChunk]:
        """Yield the finished chunks of a reader in their order.

        After some chunks worker processes do the work, as many as the model has threads here; from
        the first on, if `options.workers` says how many. Chunks from there have no words.
        """
        chunks = reader.read_lines()
        workers = options.workers or self.backend.workers
        if self.backend.name != "cpu" or workers == 1:
            here, chunks = chunks, iter(())
        else:
            here = islice(chunks, 0 if options.workers else _SHORT_TEXT)
        yield from self.align_chunks(map(reader.split_lines, here), renderers, options)
        function = ChunkFunction(self.make_recipe(renderers, options), reader.split_lines)
        yield from run_in_processes(function, chunks, workers)

    def open_reader(
        self, lines: LineSource, options: CorpusOptions, tokens: TokenPlan | None = None
    ) -> ChunkReader:
        """Make a reader whose chunks give the same links in every run.

        `tokens` is how lines are read, where that was decided before. Where a pair's result depends
        on its batch, chunks must always have the same pairs.
        """
        if not self.backend.steady and (options.chunk_pairs or options.batch_tokens):
            raise MxError(
                "--chunk-pairs and --batch-tokens would change the links of the "
                f"{self.backend.dtype} model on {self.backend.name}, whose pairs influence "
                "each other; leave them out or give --backend cpu"
            )
        size = options.chunk_pairs or CHUNK
        return ChunkReader(
            lines,
            size,
            multiple=1 if self.backend.steady else size,
            tokens=options.token_kind if tokens is None else tokens,
            models=(options.spm_src, options.spm_tgt),
            keep_spans=options.format == "jsonl",
            link_files=options.average,
        )

    def make_renderer(self, kind: str, options: CorpusOptions) -> LinkFormat:
        """Return what writes links, or `scores`, as lines of a format."""
        # The model's calibration does not hold for means.
        calibrate = None if self.average else self.bundle.calibrate
        one_based, reverse = options.one_based, options.reverse
        return LinkFormat(kind, one_based=one_based, reverse=reverse, calibrate=calibrate)

    def _with_average(self, names: Sequence[str]) -> Aligner:
        """Return an aligner that finds weak links, too, and averages them with those of files."""
        if not names:
            return self
        if self.rule.mode != SOFT:
            raise MxError(f"--average is for soft links only; leave it or {self.rule.mode} out")
        average = LinkAverager(tuple(names), self.threshold or MEAN_THRESHOLDS[self.optimize_for])
        weakest = max(min(MIN_MODEL_SCORE, self.threshold or 1), _TINY)
        return replace(self, rule=replace(self.rule, threshold=weakest), average=average)

    def _write_reports(
        self, options: CorpusOptions, summary: CorpusSummary, observer: ReportCollector, title: str
    ) -> None:
        """Write the numbers and the page of a run, as far as they are wanted."""
        if options.report:
            report = {
                **vars(summary.total),
                "links_per_word": round(summary.links_per_word, 6),
                "resumed": summary.resumed,
                "seconds": round(summary.seconds, 3),
                "pairs_per_second": round(summary.pairs_per_second, 3),
                "signature": self.signature(),
                "backend": self.describe(),
                "model": self.bundle.digest,
                "threads": self.backend.workers,
                "shard": format_shard(options.shard),
                "corpus": observer.report(),
            }
            with atomic_write(options.report) as file:
                file.write(json.dumps(report, indent=2, ensure_ascii=False).encode() + b"\n")
        if options.html:
            from .view.page import build_page
            from .view.page_content import make_model_page

            how = self.signature() if self.average else None
            text = build_page(make_model_page(self, observer, title, how))
            with atomic_write(options.html) as file:
                file.write(text.encode())

    # ---- how ----

    def make_recipe(
        self, renderers: Sequence[Renderer], options: CorpusOptions = _DEFAULT_OPTIONS
    ) -> Recipe:
        """Return what the pipeline needs to make items of this aligner's links."""
        return Recipe(renderers, self.make_settings(options), change=self.average)

    def make_settings(self, options: CorpusOptions = _DEFAULT_OPTIONS) -> ModelSettings:
        """Return how the model is run."""
        return ModelSettings(
            self.backend,
            self.bundle.tokenizers,
            self.bundle.max_length,
            replace(self.rule, nulls=self.rule.nulls or options.format == "jsonl"),
            # Long pairs are split by links above the bundle's threshold, not the user's: a higher
            # one must only take links away.
            _make_rule(self.bundle, SOFT, None, "aer", nulls=False),
            options.batch_tokens or self.backend.batch_tokens,
            self.swapped,
        )

    def describe(self) -> str:
        """Say in one line what runs the model, and why not something faster."""
        because = f" ({self.reason})" if self.reason else ""
        return f"{self.backend.describe()}{because}"

    def signature(self) -> str:
        """Say in one line exactly how the links are made."""
        threshold = "null" if self.rule.threshold is None else f"{self.rule.threshold:.6g}"
        turned = "|turned" if self.swapped else ""
        average = self.average
        mean = f"|avg:{len(average.names)}@{average.threshold:.6g}" if average else ""
        return (
            f"mx-align|v:{__version__}|model:{self.bundle.name}#{self.bundle.digest[:8]}{turned}|"
            f"backend:{self.backend.name}|prec:{self.backend.dtype}|"
            f"sym:{self.rule.mode}|thr:{threshold}|cut:{long_pairs.SEVERAL},{long_pairs.LONG}{mean}"
        )


def _skip_finished(
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


def _write_chunk(
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


def _make_rule(
    bundle: Bundle, mode: str, threshold: float | None, optimize_for: OptimizeFor, nulls: bool
) -> LinkRule:
    """Return how links are chosen, in the model's terms; checks mode and threshold."""
    if mode not in MODES:
        raise MxError(f"no symmetrization {mode!r}; there are {', '.join(MODES)}")
    if threshold is not None and not 0 < threshold <= 1:
        raise MxError(f"the threshold must be above 0 and at most 1, not {threshold}")
    if mode == SOFT:
        threshold = max(threshold or bundle.threshold(optimize_for), _TINY)
    return LinkRule(mode, threshold, bundle.threshold("precision"), nulls)
