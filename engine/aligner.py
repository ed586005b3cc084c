"""Aligner: a loaded model that turns pairs of sentences into word links.
Glue of bundle, backend, pipeline and decode; files and flags are the matter of `cli`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from pathlib import Path

import numpy as np

from .align import long_pairs as cuts
from .align.batching import batches, pack
from .align.decoding import MODES, SOFT, Rule
from .align.pipeline import Engine, Work, run_all, run_here, stream
from .bundle.bundle import Bundle, Wish, language_codes
from .errors import BundleError, InputError, MxError
from .links.formats import null_rows, sentence_scores
from .runtime.backends import OUTPUTS, Backend, choose
from .runtime.gpu.devices import GpuOptions
from .runtime.reference import pool_words
from .text.words import split
from .types import Change, Floats, Link, Links, Pairs, Render, Words
from .version import __version__

# Enough pairs that most batches are full, few enough that losing them costs little.
CHUNK = 8192
_MAX_CELLS = 1 << 26
# What a direction of the user's is called by a model that is turned round.
TURNED = {"forward": "backward", "backward": "forward"}
# How else to get a model than by its languages.
_WAYS = "give the path of one, which mx-train and mx-export make"


@dataclass(frozen=True)
class Alignment:
    """The links of a pair, sorted, with a score from 0 to 1 each; iterates over the links.

    `score` is the mean over all words of the score of their best link, 0 for words without one.
    The NULL probabilities of the words are there if the aligner was loaded with `nulls=True`.
    """

    src: tuple[str, ...]
    tgt: tuple[str, ...]
    links: list[Link]
    scores: list[float]
    score: float
    src_null: list[float] | None = None
    tgt_null: list[float] | None = None

    def __iter__(self) -> Iterator[Link]:
        return iter(self.links)

    def __len__(self) -> int:
        return len(self.links)

    def __str__(self) -> str:
        return " ".join(f"{i}-{j}" for i, j in self.links)

    def _repr_html_(self) -> str:
        """Links and their scores, as notebooks show them."""
        from .view.notebook import pair_html

        nulls = self.src_null, self.tgt_null
        return pair_html(self.src, self.tgt, self.links, self.scores, *nulls)


@dataclass(frozen=True)
class Soft:
    """What the model says about all word pairs: matrices (source words, target words), where a
    cell is the highest of its pieces; and each word's probability of having no partner."""

    src: tuple[str, ...]
    tgt: tuple[str, ...]
    scores: Floats
    fwd: Floats
    bwd: Floats
    src_null: Floats
    tgt_null: Floats

    def swapped(self) -> Soft:
        """The same with the sides changed over."""
        return Soft(
            self.tgt, self.src, self.scores.T, self.bwd.T, self.fwd.T, self.tgt_null, self.src_null
        )

    def _repr_html_(self) -> str:
        """The matrix of scores, as notebooks show it."""
        from .view.notebook import matrix_html

        nulls = self.src_null.tolist(), self.tgt_null.tolist()
        return matrix_html(self.src, self.tgt, self.scores.tolist(), *nulls)


class Aligner:
    """A model ready to align. All methods may be called from several threads at once."""

    def __init__(
        self, bundle: Bundle, backend: Backend, reason: str, rule: Rule, swapped: bool = False
    ) -> None:
        self.bundle = bundle
        self.backend = backend
        self.reason = reason
        self.rule = rule  # in the model's terms
        self.swapped = swapped  # the model's source is the user's target

    @classmethod
    def load(
        cls, model: str | Path | None = None, *, langs: str | None = None, backend: str = "auto",
        dtype: str | None = None, threads: int | None = None, symmetrize: str = SOFT,
        threshold: float | None = None, wish: Wish = "aer", nulls: bool = False,
        gpu_memory: int | None = None, devices: Sequence[int] | None = None,
    ) -> Aligner:  # fmt: skip
        """Load a bundle: a folder or zip file, or one that came with the package.

        Args:
            model: path of the bundle; None takes an installed one.
            langs: which installed one, like "de-en"; a model for "en-de" serves as well, turned
                round, and so does a given model that has these languages the other way round.
            backend: "cpu", "cuda", "trt", "trt-rtx", or "auto" for the fastest that works.
            dtype: precision of the arithmetic; None takes what the bundle recommends.
            threads: threads of the CPU; None for all cores.
            symmetrize: "soft" (the paper's), "forward", "backward", or a classic heuristic.
            threshold: lowest score of a link; None takes the bundle's own.
            wish: "precision" or "recall" to take the bundle's threshold for that instead.
            nulls: also find the NULL probability of every word.
            gpu_memory: bytes to use at most on each GPU; None for 80 % of what is free.
            devices: numbers of the GPUs to use; None for all.
        """
        bundle = find_bundle(model, langs)
        swapped = langs is not None and bundle.order(langs) < 0
        chosen, reason = choose(
            bundle, backend, precision=dtype, threads=threads or default_threads(),
            gpu=GpuOptions(gpu_memory, None if devices is None else tuple(devices)),
        )  # fmt: skip
        mode = TURNED.get(symmetrize, symmetrize) if swapped else symmetrize
        rule = _rule(bundle, mode, threshold, wish, nulls)
        return cls(bundle, chosen, reason, rule, swapped)

    def align(
        self, src: Iterable[str | Words], tgt: Iterable[str | Words], *, chunk: int = CHUNK
    ) -> Iterator[Alignment]:
        """Links of parallel sentences, in order, while they are read: at most three times `chunk`
        pairs are held. A sentence is a line, cut at spaces and tabs, or a sequence of words."""
        if chunk < 1:
            raise MxError(f"chunk must be 1 or more, not {chunk}")
        engine = self.engine([_alignments])
        for done in stream(engine, _chunks(src, tgt, chunk), self.backend.workers):
            yield from done.items[0]

    def align_pair(self, src: str | Words, tgt: str | Words) -> Alignment:
        """Links of one pair."""
        return self.align_batch([src], [tgt])[0]

    def align_batch(
        self, src: Sequence[str | Words], tgt: Sequence[str | Words]
    ) -> list[Alignment]:
        """Links of some pairs, in the calling thread."""
        if len(src) != len(tgt):
            raise InputError(f"{len(src)} source sentences but {len(tgt)} target sentences")
        pairs = Pairs(0, list(map(_words, src)), list(map(_words, tgt)))
        return list(run_here(self.engine([_alignments]), pairs).result.items[0])

    def soft(self, src: str | Words, tgt: str | Words) -> Soft:
        """All scores and weights of one pair, as matrices over its words."""
        return self._soft(tgt, src).swapped() if self.swapped else self._soft(src, tgt)

    def _soft(self, src: str | Words, tgt: str | Words) -> Soft:
        """The same, in the model's terms."""
        src_words, tgt_words = _words(src), _words(tgt)
        engine = replace(self.engine([]), swapped=False)
        work = Work(engine, Pairs(0, [src_words], [tgt_words]))
        planned = work.prepare()
        src_pieces, tgt_pieces = work.src, work.tgt
        n_src, n_tgt = len(src_pieces.ids), len(tgt_pieces.ids)
        if n_src * n_tgt > _MAX_CELLS:
            raise MxError(f"{n_src} x {n_tgt} pieces are too many for a full matrix; use align")
        run_all(work, planned)
        units = work.units[-1]  # the parts, if it was cut
        cells = {name: np.zeros((n_src, n_tgt), np.float32) for name in ("scores", "fwd", "bwd")}
        # Without a partner on the other side a word is aligned to nothing.
        nulls = {"fwd_null": np.ones(n_tgt, np.float32), "bwd_null": np.ones(n_src, np.float32)}
        for places, size, other in batches(units, self.backend.batch_tokens):
            batch = pack(units, places, size, other, src_pieces, tgt_pieces)
            outputs = self.backend.run(batch, OUTPUTS)
            for row, unit in enumerate(places.tolist()):
                s, t = int(units.src_start[unit]), int(units.tgt_start[unit])
                own_src = slice(*units.own_src[unit].tolist())
                own_tgt = slice(*units.own_tgt[unit].tolist())
                rows = own_src if units.by_src[unit] else slice(s, s + int(units.src_length[unit]))
                columns = slice(t, t + int(units.tgt_length[unit]))
                columns = columns if units.by_src[unit] else own_tgt
                for name, matrix in cells.items():
                    matrix[rows, columns] = outputs[name][row][_back(rows, s), _back(columns, t)]
                nulls["fwd_null"][own_tgt] = outputs["fwd_null"][row][_back(own_tgt, t)]
                nulls["bwd_null"][own_src] = outputs["bwd_null"][row][_back(own_src, s)]
        pooled = {
            name: pool_words(matrix, src_pieces.words, tgt_pieces.words)
            for name, matrix in cells.items()
        }
        # A word is unlinked only if all its pieces are: the lowest, which is the highest of 1 - p.
        src_null = 1 - pool_words(
            1 - nulls["bwd_null"][:, None], src_pieces.words, np.zeros(1, int)
        )
        tgt_null = 1 - pool_words(
            1 - nulls["fwd_null"][:, None], tgt_pieces.words, np.zeros(1, int)
        )
        return Soft(
            tuple(src_words), tuple(tgt_words), **pooled,
            src_null=src_null[:, 0], tgt_null=tgt_null[:, 0],
        )  # fmt: skip

    def engine(
        self, renders: Sequence[Render], *, batch_tokens: int | None = None, nulls: bool = False,
        change: Change | None = None,
    ) -> Engine:  # fmt: skip
        """What `pipeline.stream` needs to make items of this aligner's links."""
        rule = replace(self.rule, nulls=True) if nulls else self.rule
        # Not the user's threshold: a higher one must only take links away.
        look = _rule(self.bundle, SOFT, None, "aer", nulls=False)
        return Engine(
            self.backend, self.bundle.tokenizers(), self.bundle.max_length, rule, look, renders,
            batch_tokens or self.backend.batch_tokens, self.swapped, change,
        )  # fmt: skip

    def describe(self) -> str:
        """One line: what runs the model, and why not something faster."""
        because = f" ({self.reason})" if self.reason else ""
        return f"{self.backend.describe()}{because}"

    def signature(self) -> str:
        """One line that says exactly how the links are made."""
        threshold = "null" if self.rule.threshold is None else f"{self.rule.threshold:.6g}"
        turned = "|turned" if self.swapped else ""
        return (
            f"mx-align|v:{__version__}|model:{self.bundle.name}#{self.bundle.digest[:8]}{turned}|"
            f"backend:{self.backend.name}|prec:{self.backend.precision}|"
            f"sym:{self.rule.mode}|thr:{threshold}|cut:{cuts.SEVERAL},{cuts.LONG}"
        )


def _rule(bundle: Bundle, mode: str, threshold: float | None, wish: Wish, nulls: bool) -> Rule:
    if mode not in MODES:
        raise MxError(f"no symmetrization {mode!r}; there are {', '.join(MODES)}")
    if threshold is not None and not 0 < threshold <= 1:
        raise MxError(f"the threshold must be above 0 and at most 1, not {threshold}")
    if mode == SOFT:
        # Cells outside the sentences are 0, so the threshold must not be.
        threshold = max(threshold or bundle.threshold(wish), float(np.finfo(np.float32).tiny))
    return Rule(mode, threshold, bundle.threshold("precision"), nulls)


def _back(part: slice, start: int) -> slice:
    return slice(part.start - start, part.stop - start)


def _words(sentence: str | Words) -> Words:
    """A line's words, or the words that were given; lines of an open file end in a newline."""
    return split(sentence.removesuffix("\n")) if isinstance(sentence, str) else sentence


def _chunks(src: Iterable[str | Words], tgt: Iterable[str | Words], size: int) -> Iterator[Pairs]:
    """Chunks of pairs; an error, after the last complete pair, if one side ends first."""
    both = zip_longest(src, tgt)
    first = 0
    while rows := list(islice(both, size)):
        whole = [(s, t) for s, t in rows if s is not None and t is not None]
        if whole:
            yield Pairs(first, [_words(s) for s, _ in whole], [_words(t) for _, t in whole])
        first += len(whole)
        if len(whole) < len(rows):
            side = "source" if rows[len(whole)][0] is None else "target"
            raise InputError(
                f"the {side} ends after {first:,} sentences but the other side goes on"
            )


def _alignments(pairs: Pairs, links: Links) -> list[Alignment]:
    src, tgt, scores = links.src.tolist(), links.tgt.tolist(), links.score.tolist()
    ends = links.offsets.tolist()
    sentence = sentence_scores(pairs, links)
    asked = links.src_null is not None
    src_null = null_rows(links.src_null, pairs.src)
    tgt_null = null_rows(links.tgt_null, pairs.tgt)
    result = []
    for k in range(len(pairs.src)):
        part = slice(ends[k], ends[k + 1])
        result.append(
            Alignment(
                tuple(pairs.src[k]),
                tuple(pairs.tgt[k]),
                list(zip(src[part], tgt[part], strict=True)),
                scores[part],
                sentence[k],
                src_null[k] if asked else None,
                tgt_null[k] if asked else None,
            )
        )
    return result


# ---- installed models ----


def default_threads() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def installed_models() -> dict[str, Path]:
    """Bundles that came with the package: name -> path."""
    folder = Path(__file__).parent / "models"
    return {path.stem: path for path in sorted(folder.glob("*.mx"))} if folder.is_dir() else {}


def find_bundle(
    model: str | Path | None, langs: str | None, *, flag: str = "langs", ways: str = _WAYS
) -> Bundle:
    """The given bundle, or the installed one for these languages. Errors name the user's `flag`
    for the languages, and what other `ways` to a model there are."""
    if model is None:
        return Bundle.load(installed(langs, flag=flag, ways=ways))
    models = installed_models()
    served = (name == str(model) or Bundle.load(m).order(str(model)) for name, m in models.items())
    if not os.path.exists(model) and any(served):
        raise BundleError(
            f"there is no model bundle {model}; check the path, or give {flag} {model} to use an "
            "installed one"
        )
    bundle = Bundle.load(model)
    if langs is not None and langs not in models and not bundle.order(langs):
        language_codes(langs)  # other languages are no mistake, if they are any
    return bundle


def installed(langs: str | None = None, *, flag: str = "langs", ways: str = _WAYS) -> Path:
    """The installed bundle for these languages, in either order, or the only one."""
    models = installed_models()
    if not models:
        raise BundleError(f"no model was given and none is installed; {ways}")
    bundles = {path: Bundle.load(path) for path in models.values()}
    several = {path: bundle.pairs for path, bundle in bundles.items() if len(bundle.pairs) > 1}
    names = ", ".join(", ".join(several.get(path, [name])) for name, path in models.items())
    names += " (either way round)"
    if langs is None:
        if len(models) > 1 or several:
            raise BundleError(f"which model? installed: {names}; choose with {flag}, or {ways}")
        return next(iter(models.values()))
    # A model of this very name first, then one for these languages, then one turned round.
    if langs in models:
        return models[langs]
    for order in (1, -1):
        found = [path for path, bundle in bundles.items() if bundle.order(langs) == order]
        if len(found) == 1:
            return found[0]
        if found:
            which = ", ".join(path.stem for path in found)
            raise BundleError(f"there are several models for {langs}: {which}; give one's name")
    language_codes(langs)
    raise BundleError(f"there is no model for {langs}; installed: {names}; {ways}")
