"""Aligner: a loaded model that turns pairs of sentences, or files of them, into word links.

The door to the engine: commands, cluster and library all come in here. Joins bundle, backend,
pipeline and output; does not parse flags and prints nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .align import long_pairs
from .align.decoding import LEAST_THRESHOLD, SOFT, LinkRule, make_rule
from .align.matrices import compute_matrices
from .align.pipeline import (
    ChunkFunction,
    FinishedChunk,
    ModelSettings,
    Recipe,
    find_model_links,
    run_chunk,
    stream_chunks,
)
from .align.processes import run_in_processes
from .alignment import Alignment, SoftAlignment, build_alignments, chunk_sentences, sentence_words
from .bundle.bundle import Bundle
from .bundle.installed import find_bundle
from .bundle.manifest import OptimizeFor
from .errors import InputError, MxError, NoModelError
from .jobs.chunk_output import skip_finished, write_chunk, write_reports
from .jobs.corpus_options import CorpusOptions, CorpusSummary, find_targets, format_shard
from .jobs.output_files import OutputFiles
from .links.average import MEAN_THRESHOLDS, MIN_MODEL_SCORE, LinkAverager
from .links.combination import LOWEST_SCORE, Combination, as_probabilities
from .links.formats import LinkFormat
from .method.choice import Choice, ModelCandidate, choose_method, find_no_links
from .method.text_statistics import open_twice, read_whole
from .options import make_options, output_settings
from .runtime.backends import Backend, GpuOptions, choose_backend, count_cores
from .statistical.model import StatisticalModel
from .storage import hash_files
from .text.corpus import ChunkReader, LineSource, ParallelFiles
from .text.spool import SpooledLines
from .text.tokens.detection import TokenPlan
from .types import Counts, Link, LinkFinder, Links, Pairs, Renderer, Words
from .version import __version__

if TYPE_CHECKING:
    pass

# Pairs that are sorted by length together: enough that most batches are full, few enough that
# losing them to a kill costs little.
CHUNK = 8192
# Chunks of a text that would not pay for starting worker processes, a third of a second each.
_SHORT_TEXT = 4
Direction = Literal["forward", "backward"]
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

    bundle: Bundle | None  # None: only statistics align
    backend: Backend | None
    reason: str  # why this backend, or why there is no model
    rule: LinkRule  # in the model's terms
    swapped: bool = False  # the model's source is the user's target
    threshold: float | None = None  # as the user gave it
    optimize_for: OptimizeFor = "aer"
    average: LinkAverager | None = None  # with links of files
    asked: str | None = None  # the languages, as the user named them
    threads: int = 1
    statistics: StatisticalModel | None = None
    nothing_to_align: bool = False  # the text has no words to learn from, and there is no model
    combination: Combination | None = None  # of the model's links and those of statistics

    @classmethod
    def load(
        cls,
        model: str | Path | None = None,
        *,
        langs: str | None = None,
        read: str | None = None,
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
            langs: which installed one, like "de-en", "ger-eng" or "german-english"; a model for
                "en-de" serves as well, turned round, and so does a given model that has these
                languages the other way round. If there is none for them, files can still be
                aligned, by statistics.
            read: "prior" or "posterior" of a Mask-Align; None takes the bundle's own.
            backend: "cpu", "cuda", "kernels", "trt", "trt-rtx", or "auto", the fastest that
                works.
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
        threads = threads or count_cores()
        shown: dict[str, Any] = {"threshold": threshold, "optimize_for": optimize_for}
        shown |= {"asked": langs, "threads": threads}
        try:
            bundle = find_bundle(model, langs).choose_reading(read)
        except NoModelError as error:
            rule = make_rule(None, symmetrize, threshold, optimize_for, nulls)
            return cls(None, None, str(error), rule, **shown)
        swapped = langs is not None and bundle.language_order(langs) < 0
        gpu = GpuOptions(gpu_memory, None if devices is None else tuple(devices))
        chosen, reason = choose_backend(bundle, backend, dtype=dtype, threads=threads, gpu=gpu)
        mode = _OPPOSITE.get(symmetrize, symmetrize) if swapped else symmetrize
        rule = make_rule(bundle, mode, threshold, optimize_for, nulls)
        return cls(bundle, chosen, reason, rule, swapped, **shown)

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
        say = on_note or (lambda message: None)
        source = ParallelFiles(src, tgt, chosen.separator, chosen.errors, chosen.shard)
        start = time.monotonic()
        aligner, reader = self._prepare(source, chosen, say)
        aligner = aligner._with_average(chosen.average)
        signature = aligner.signature()
        renderers: list[Renderer] = [aligner.make_renderer(chosen.format, chosen)]
        for kind, path in (("scores", chosen.scores), ("sentences", chosen.sentence_scores)):
            renderers += [aligner.make_renderer(kind, chosen)] if path else []
        renderers += WORD_RENDERERS if chosen.write_tokenized else []
        observer = None
        if chosen.report or chosen.html:
            from .view.corpus_report import ReportCollector

            observer = ReportCollector(chosen.html_sample if chosen.html else 0)
            renderers.append(observer)
        settings = {  # which a run that goes on must repeat
            "how": signature,
            "model": aligner.bundle.digest if aligner.bundle else None,
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
            total = skip_finished(files, reader, observer) if files else Counts()
            resumed = total.pairs
            finished = bool(files and files.complete)
            for done in () if finished else aligner.align_lines(reader, renderers, chosen):
                write_chunk(files, done, observer)
                total += done.counts
                if on_progress:
                    on_progress(total, resumed)
            summary = CorpusSummary(total, resumed, time.monotonic() - start, [signature])
            # Before the links have their name: whoever finds those finds a report of all of them.
            # Notes can only be lost if a run was killed at its very end, when all this was written.
            if observer and observer.total.pairs == total.pairs:
                names = [os.path.basename(name) for name in (src, tgt) if name]
                title = " · ".join([*names, aligner.name])
                write_reports(aligner, chosen, summary, observer, title)
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
        threads = self.backend.workers if self.backend else self.threads
        return stream_chunks(self.make_recipe(renderers, options), chunks, threads)

    def align_lines(
        self, reader: ChunkReader, renderers: Sequence[Renderer], options: CorpusOptions
    ) -> Iterator[FinishedChunk]:
        """Yield the finished chunks of a reader in their order.

        After some chunks worker processes do the work, as many as the model has threads here; from
        the first on, if `options.workers` says how many. Chunks from there have no words.
        """
        chunks = reader.read_lines()
        workers = options.workers or (self.backend.workers if self.backend else self.threads)
        if (self.backend and self.backend.name != "cpu") or workers == 1:
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
        steady = self.backend is None or self.backend.steady
        if self.backend and not steady and (options.chunk_pairs or options.batch_tokens):
            raise MxError(
                "--chunk-pairs and --batch-tokens would change the links of the "
                f"{self.backend.dtype} model on {self.backend.name}, whose pairs influence "
                "each other; leave them out or give --backend cpu"
            )
        size = options.chunk_pairs or CHUNK
        return ChunkReader(
            lines,
            size,
            multiple=1 if steady else size,
            tokens=options.token_kind if tokens is None else tokens,
            models=(options.spm_src, options.spm_tgt),
            keep_spans=options.format == "jsonl",
            link_files=options.average,
        )

    def make_renderer(self, kind: str, options: CorpusOptions) -> LinkFormat:
        """Return what writes links, or `scores`, as lines of a format."""
        # The model's calibration does not hold for means; what a combination gives is calibrated.
        calibrate = None if self.average or not self.bundle else self.bundle.calibrate
        calibrate = as_probabilities if self.combination else calibrate
        one_based, reverse = options.one_based, options.reverse
        return LinkFormat(kind, one_based=one_based, reverse=reverse, calibrate=calibrate)

    # ---- method ----

    def _prepare(
        self, source: ParallelFiles, options: CorpusOptions, say: Callable[[str], None]
    ) -> tuple[Aligner, ChunkReader]:
        """Return the aligner that suits a text, which may have learned from it, and its reader."""
        wanted = options.method
        if self.rule.mode != SOFT or options.average:
            if wanted == "both":
                what = "--average" if options.average else self.rule.mode
                raise MxError(f"--method both is for soft links only; leave it or {what} out")
            # Whoever joins directions or averages has said what is to be joined.
            wanted = "model" if wanted == "auto" and self.bundle else wanted
        if wanted == "model":
            self.require_model()
            reader = self.open_reader(source, options)
            _say_all(say, reader.plan.message)
            return self, reader
        part, whole = open_twice(source)
        plan = self.open_reader(whole, options).plan
        _say_all(say, plan.message)
        chosen = choose_method(
            wanted,
            read_whole(whole, plan),
            self._as_candidate(),
            why_none=f"no model knows {self.asked}" if self.asked else "the languages are unknown",
            whole=not isinstance(whole, SpooledLines) or whole.complete,
            optimize_for=self.optimize_for,
            threshold=self.threshold,
        )
        _say_all(say, *chosen.messages)
        aligner = self._with_choice(chosen)
        return aligner, aligner.open_reader(part, options, plan)

    def _as_candidate(self) -> ModelCandidate | None:
        """Return the model as one that may be chosen."""
        if self.bundle is None:
            return None
        rule = replace(self.rule, threshold=LOWEST_SCORE)
        here = replace(self, rule=rule).make_settings()
        known = self.asked is not None and bool(self.bundle.language_order(self.asked))
        return ModelCandidate(
            self.bundle.name,
            partial(find_model_links, here),
            partial(find_model_links, replace(here, swapped=not self.swapped)),
            known or "und" in self.bundle.languages,
            "und" not in self.bundle.languages,
        )

    def _with_choice(self, chosen: Choice) -> Aligner:
        """Return the aligner that was chosen."""
        aligner = replace(self, swapped=self.swapped != chosen.turned)
        if chosen.model and chosen.statistics is None:
            return aligner
        rule = replace(self.rule, threshold=LOWEST_SCORE)
        aligner = replace(aligner, rule=rule, statistics=chosen.statistics)
        if self.rule.mode == SOFT:  # other modes have no scores to weigh
            aligner = replace(aligner, combination=chosen.combination)
        if chosen.model:
            return aligner
        empty = chosen.statistics is None
        return replace(aligner, bundle=None, backend=None, nothing_to_align=empty)

    def _with_average(self, names: Sequence[str]) -> Aligner:
        """Return an aligner that finds weak links, too, and averages them with those of files."""
        if not names:
            return self
        if self.rule.mode != SOFT:
            raise MxError(f"--average is for soft links only; leave it or {self.rule.mode} out")
        average = LinkAverager(tuple(names), self.threshold or MEAN_THRESHOLDS[self.optimize_for])
        weakest = max(min(MIN_MODEL_SCORE, self.threshold or 1), LEAST_THRESHOLD)
        return replace(self, rule=replace(self.rule, threshold=weakest), average=average)

    # ---- how ----

    def make_recipe(
        self, renderers: Sequence[Renderer], options: CorpusOptions = _DEFAULT_OPTIONS
    ) -> Recipe:
        """Return what the pipeline needs to make items of this aligner's links."""
        find: LinkFinder | None = find_no_links if self.nothing_to_align else None
        if self.statistics:
            nulls = self.rule.nulls or options.format == "jsonl"
            mode, least = self.rule.mode, LOWEST_SCORE
            find = partial(self.statistics.find_links, threshold=least, mode=mode, nulls=nulls)
        model = self.make_settings(options) if self.bundle or find is None else None
        return Recipe(renderers, model, find, self.combination, self.average)

    def make_settings(self, options: CorpusOptions = _DEFAULT_OPTIONS) -> ModelSettings:
        """Return how the model is run."""
        bundle, backend = self.require_model()
        return ModelSettings(
            backend,
            bundle.tokenizers,
            bundle.max_length,
            replace(self.rule, nulls=self.rule.nulls or options.format == "jsonl"),
            # Long pairs are split by links above the bundle's threshold, not the user's: a higher
            # one must only take links away.
            make_rule(bundle, SOFT, None, "aer", nulls=False),
            options.batch_tokens or backend.batch_tokens,
            self.swapped,
        )

    def require_model(self) -> tuple[Bundle, Backend]:
        """Return the model and what runs it; an error says why there is none."""
        if self.bundle is None or self.backend is None:
            raise NoModelError(
                f"{self.reason}; or let statistics of a text align it: align_files, or "
                "StatisticalAligner"
            )
        return self.bundle, self.backend

    @property
    def name(self) -> str:
        """What aligns, in a word or two."""
        names = [self.bundle.name] if self.bundle else []
        return " + ".join(names + ["statistics"] * (self.statistics is not None))

    def describe(self) -> str:
        """Say in one line what runs the model, and why not something faster."""
        if self.backend is None:
            return "statistics, NumPy"
        because = f" ({self.reason})" if self.reason else ""
        return f"{self.backend.describe()}{because}"

    def signature(self) -> str:
        """Say in one line exactly how the links are made."""
        parts = [f"mx-align|v:{__version__}"]
        if self.bundle and self.backend:
            turned = "|turned" if self.swapped else ""
            parts.append(f"model:{self.bundle.label}{turned}")
            parts.append(f"backend:{self.backend.name}|prec:{self.backend.dtype}")
        if self.statistics:
            parts.append(f"statistics:{self.statistics.n_learned}#{self.statistics.digest[:8]}")
        threshold = "null" if self.rule.threshold is None else f"{self.rule.threshold:.6g}"
        parts.append(
            f"sym:{self.rule.mode}|thr:{threshold}|cut:{long_pairs.SEVERAL},{long_pairs.LONG}"
        )
        if self.combination:
            parts.append(f"fit:{self.combination.describe()}")
        if self.average:
            parts.append(f"avg:{len(self.average.names)}@{self.average.threshold:.6g}")
        return "|".join(parts)


def _say_all(say: Callable[[str], None], *messages: str) -> None:
    for message in filter(None, messages):
        say(message)
