"""Aligner: a loaded model that turns pairs of sentences, or files of them, into word links.

The door to the engine: commands, cluster and library all come in here. Joins bundle, backend,
pipeline and output; does not parse flags and prints nothing.
"""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .align import long_pairs
from .align.decoding import MODES, SOFT, LinkRule
from .align.matrices import compute_matrices
from .align.pipeline import FinishedChunk, Recipe, run_chunk, stream_chunks
from .alignment import Alignment, SoftAlignment, build_alignments, chunk_sentences, sentence_words
from .bundle.bundle import Bundle
from .bundle.installed import find_bundle
from .bundle.manifest import OptimizeFor
from .errors import InputError, MxError
from .jobs.corpus_options import CorpusOptions, find_targets, format_shard
from .jobs.corpus_output import CorpusOutput, CorpusSummary, make_renderers
from .links.average import MEAN_THRESHOLDS, MIN_MODEL_SCORE, LinkAverager
from .options import output_settings
from .runtime.backends import Backend, GpuOptions, choose_backend, count_cores
from .storage import atomic_write
from .text.corpus import ChunkReader, LineSource, ParallelFiles
from .text.word_tokenizer import tokenize_line
from .text.words import split_words
from .types import Counts, Link, LinkChange, Pairs, Renderer, Words
from .version import __version__

if TYPE_CHECKING:
    from .view.corpus_report import ReportCollector

# Pairs that are sorted by length together: enough that most batches are full, few enough that
# losing them to a kill costs little.
CHUNK = 8192
Direction = Literal["forward", "backward"]
# The lowest threshold: cells outside the sentences are 0 and must not be links.
_TINY = float(np.finfo(np.float32).tiny)
# What a direction of the user's is called by a model that is turned round.
_OPPOSITE = {"forward": "backward", "backward": "forward"}


class Aligner:
    """A model ready to align. All methods may be called from several threads at once."""

    def __init__(
        self,
        bundle: Bundle,
        backend: Backend,
        reason: str,
        rule: LinkRule,
        swapped: bool = False,
        threshold: float | None = None,
        optimize_for: OptimizeFor = "aer",
    ) -> None:
        self.bundle = bundle
        self.backend = backend
        self.reason = reason  # why this backend
        self.rule = rule  # in the model's terms
        self.swapped = swapped  # the model's source is the user's target
        self.threshold = threshold  # as the user gave it
        self.optimize_for = optimize_for

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
        chosen, reason = choose_backend(
            bundle,
            backend,
            dtype=dtype,
            threads=threads or count_cores(),
            gpu=GpuOptions(gpu_memory, None if devices is None else tuple(devices)),
        )
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
        matrices = compute_matrices(self.make_recipe([]), first, second)
        found = SoftAlignment(tuple(first), tuple(second), **matrices)
        return found.swap_sides() if self.swapped else found

    def best_partners(self, pairs: Pairs, direction: Direction) -> list[list[Link]]:
        """Return for each pair the links of one direction: a word's best partner if it beats NULL.

        Forward links each target word to a source word, backward the other way round.
        """
        mode = _OPPOSITE[direction] if self.swapped else direction
        directed = self._with_rule(mode=mode, threshold=None, nulls=False)
        done = run_chunk(directed.make_recipe([build_alignments]), pairs)
        return [found.links for found in done.items[0]]

    # ---- files ----

    def align_files(
        self,
        src: str | Path,
        tgt: str | Path | None = None,
        *,
        on_progress: Callable[[Counts, int], None] | None = None,
        **options: Any,
    ) -> CorpusSummary:
        """Align two parallel files, or one file of pairs, and write links while they are found.

        Writes what mx-align writes, byte for byte. With `output`, a run that was killed goes on
        where it stopped when it is called again with the same arguments.

        Args:
            src: one sentence per line, or without `tgt` one pair per line; "-" is standard input;
                .gz and .zst are unpacked.
            tgt: the other side.
            on_progress: called after each chunk with all counts so far, and how many of the pairs
                earlier runs had done.
            options: fields of `CorpusOptions`, such as output="corpus.links" (None: standard
                output), format="jsonl", scores="corpus.scores", tokenize=True, shard=(1, 4),
                average=["other.links"], report="report.json", html="page.html", resume=False.
        """
        chosen = CorpusOptions(**options)
        src, tgt = str(src), None if tgt is None else str(tgt)
        targets = find_targets(src, tgt, chosen)
        aligner, average = self._prepare_average(chosen.average)
        signature = aligner.signature()
        if average:
            signature += f"|avg:{len(average.names)}@{average.threshold:.6g}"
        source = ParallelFiles(src, tgt, chosen.separator, chosen.errors, chosen.shard)
        start = time.monotonic()
        reader = aligner.open_reader(source, chosen)
        # The model's calibration does not hold for means.
        calibrate = None if average else aligner.bundle.calibrate
        renderers = make_renderers(chosen, calibrate)
        observer = None
        if chosen.report or chosen.html:
            from .view.corpus_report import ReportCollector

            observer = ReportCollector(chosen.html_sample if chosen.html else 0)
            renderers.append(observer)
        settings = {
            "how": signature,
            "model": aligner.bundle.digest,
            "first_line": reader.first + 1,
            **_resume_settings(chosen, one_file=tgt is None),
        }
        with CorpusOutput.open(
            targets, settings, restart=not chosen.resume, observer=observer
        ) as output:
            total = output.skip_finished(reader)
            resumed = total.pairs
            chunks = () if output.is_complete else reader.read_chunks()
            for done in aligner.align_chunks(
                chunks,
                renderers,
                batch_tokens=chosen.batch_tokens,
                nulls=chosen.format == "jsonl",
                change=average,
            ):
                output.write(done)
                total += done.counts
                if on_progress:
                    on_progress(total, resumed)
            summary = CorpusSummary(total, resumed, time.monotonic() - start, [signature])
            # Before the links have their name: whoever finds those finds a report of all of them.
            # Notes can only be lost if a run was killed at its very end, when all this was written.
            if observer and observer.total.pairs == total.pairs:
                names = [os.path.basename(name) for name in (src, tgt) if name]
                title = " · ".join([*names, aligner.bundle.name])
                aligner._write_reports(chosen, summary, observer, title, average is not None)
            output.finish()
        return replace(summary, seconds=time.monotonic() - start)

    def align_chunks(
        self,
        chunks: Iterable[Pairs],
        renderers: Sequence[Renderer],
        *,
        batch_tokens: int | None = None,
        nulls: bool = False,
        change: LinkChange | None = None,
    ) -> Iterator[FinishedChunk]:
        """Yield finished chunks in their order, with the items of each renderer.

        At most three chunks are held. An error of the input is raised after all before it.
        """
        recipe = self.make_recipe(renderers, batch_tokens=batch_tokens, nulls=nulls, change=change)
        return stream_chunks(recipe, chunks, self.backend.workers)

    def open_reader(self, lines: LineSource, options: CorpusOptions) -> ChunkReader:
        """Make a reader whose chunks give the same links in every run.

        Where a pair's result depends on its batch, chunks must always have the same pairs.
        """
        if not self.backend.steady and (options.chunk_pairs or options.batch_tokens):
            raise MxError(
                "--chunk-pairs and --batch-tokens would change the links of the "
                f"{self.backend.dtype} model on {self.backend.name}, whose pairs influence "
                "each other; leave them out or give --backend cpu --dtype fp32"
            )
        size = options.chunk_pairs or CHUNK
        return ChunkReader(
            lines,
            size,
            multiple=1 if self.backend.steady else size,
            split_line=tokenize_line if options.tokenize else split_words,
            link_files=options.average,
        )

    def _prepare_average(self, names: Sequence[str]) -> tuple[Aligner, LinkAverager | None]:
        """Return an aligner that gives weak links, too, and what averages them with files."""
        if not names:
            return self, None
        if self.rule.mode != SOFT:
            raise MxError(f"--average is for soft links only; leave it or {self.rule.mode} out")
        average = LinkAverager(tuple(names), self.threshold or MEAN_THRESHOLDS[self.optimize_for])
        weakest = max(min(MIN_MODEL_SCORE, self.threshold or 1), _TINY)
        return self._with_rule(threshold=weakest), average

    def _write_reports(
        self,
        options: CorpusOptions,
        summary: CorpusSummary,
        observer: ReportCollector,
        title: str,
        is_average: bool,
    ) -> None:
        """Write the numbers and the page of a run, as far as they are wanted."""
        if options.report:
            report = {
                **summary.as_report(),
                "backend": self.describe(),
                "model": self.bundle.digest,
                "threads": self.backend.workers,
                "shard": format_shard(options.shard),
                "corpus": observer.report(),
            }
            with atomic_write(options.report) as file:
                file.write(json.dumps(report, indent=2, ensure_ascii=False).encode() + b"\n")
        if options.html:
            from .view.model_page import make_model_page
            from .view.page import build_page

            how = summary.signatures[0] if is_average else None
            text = build_page(make_model_page(self, observer, title, how))
            with atomic_write(options.html) as file:
                file.write(text.encode())

    # ---- how ----

    def make_recipe(
        self,
        renderers: Sequence[Renderer],
        *,
        batch_tokens: int | None = None,
        nulls: bool = False,
        change: LinkChange | None = None,
    ) -> Recipe:
        """Return what the pipeline needs to make items of this aligner's links."""
        rule = replace(self.rule, nulls=True) if nulls else self.rule
        # Long pairs are split by links above the bundle's threshold, not the user's: a higher one
        # must only take links away.
        look = _make_rule(self.bundle, SOFT, None, "aer", nulls=False)
        return Recipe(
            self.backend,
            self.bundle.tokenizers,
            self.bundle.max_length,
            rule,
            look,
            renderers,
            batch_tokens or self.backend.batch_tokens,
            self.swapped,
            change,
        )

    def _with_rule(self, **changes: Any) -> Aligner:
        """Return an aligner that shares all but the changed rule."""
        other = copy.copy(self)
        other.rule = replace(self.rule, **changes)
        return other

    def describe(self) -> str:
        """Say in one line what runs the model, and why not something faster."""
        because = f" ({self.reason})" if self.reason else ""
        return f"{self.backend.describe()}{because}"

    def signature(self) -> str:
        """Say in one line exactly how the links are made."""
        threshold = "null" if self.rule.threshold is None else f"{self.rule.threshold:.6g}"
        turned = "|turned" if self.swapped else ""
        return (
            f"mx-align|v:{__version__}|model:{self.bundle.name}#{self.bundle.digest[:8]}{turned}|"
            f"backend:{self.backend.name}|prec:{self.backend.dtype}|"
            f"sym:{self.rule.mode}|thr:{threshold}|cut:{long_pairs.SEVERAL},{long_pairs.LONG}"
        )


def _resume_settings(options: CorpusOptions, one_file: bool) -> dict[str, Any]:
    """Return what a run that goes on must repeat, besides model and text."""
    settings = {**output_settings(options), "shard": format_shard(options.shard)}
    if not one_file:
        settings["separator"] = None  # there is nothing to separate
    if options.average:
        # Their lines are compared, too; sizes tell the files of several shards apart.
        settings["average"] = [os.path.getsize(name) for name in options.average]
    return settings


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
