"""StatisticalAligner: links by statistics, learned from the text at hand or from other text.

Has the shape of `Aligner`, and needs NumPy alone: no model bundle, no network, no GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..alignment import Alignment, build_alignments, chunk_sentences, unzip_pairs
from ..errors import InputError, MxError
from ..links.formats import LinkFormat
from ..options import make_options
from ..text.files import open_output, read_pairs
from ..types import Links, Pairs, Words
from ..version import __version__
from .counts import ExpectedCounts
from .learning import OnProgress, count_links, estimate_model, learn_model
from .model import MODES, SOFT, StatisticalModel
from .model_file import load_model, save_model
from .settings import THRESHOLD, LearningSettings

# Pairs held while learning and while aligning: enough to fill the blocks.
_LEARN_CHUNK, _ALIGN_CHUNK = 1 << 15, 10_000
_PROGRESS_PAIRS = 100_000


class StatisticalAligner:
    """Two HMMs that agree, learned from parallel text; all methods but `learn` are quick to start.

    Methods may be called from several threads at once. The same text gives the same links.
    """

    def __init__(
        self,
        model: StatisticalModel,
        threshold: float = THRESHOLD,
        *,
        symmetrize: str = SOFT,
        nulls: bool = False,
    ) -> None:
        if not 0 < threshold <= 1:
            raise MxError(f"the threshold must be above 0 and at most 1, not {threshold}")
        if symmetrize not in MODES:
            raise MxError(f"no symmetrization {symmetrize!r}; there are {', '.join(MODES)}")
        self.model = model
        self.threshold = threshold
        self.symmetrize = symmetrize
        self.nulls = nulls

    # ---- making one ----

    @classmethod
    def learn(
        cls,
        src: Iterable[str | Words],
        tgt: Iterable[str | Words],
        *,
        threshold: float = THRESHOLD,
        symmetrize: str = SOFT,
        nulls: bool = False,
        priors: StatisticalAligner | None = None,
        on_progress: OnProgress = lambda message: None,
        **settings: Any,
    ) -> StatisticalAligner:
        """Learn from parallel sentences: lines, split at spaces and tabs, or sequences of words.

        Both are read once, side by side.

        Args:
            threshold: lowest score of a link, above 0 and at most 1.
            symmetrize: "soft", "forward", "backward", or a classic way to join these two.
            nulls: alignments tell the probability of each word to have no counterpart.
            priors: an aligner that has learned from other text of these languages: learning begins
                with what it knows, and what it has seen of a word counts as up to start_weight
                occurrences. The new aligner knows the words of the new text alone.
            on_progress: called with one line before each step.
            settings: fields of `LearningSettings`, such as lowercase=True (compare words in lower
                case; advised where the text has not been lowercased), max_pairs (learn from an even
                sample of at most so many pairs), max_cells (the limit on source words x target
                words, summed over the pairs; bounds time and memory, about 60 bytes for each pair
                of words that meet), max_words (leave out pairs with more words on a side; they can
                still be aligned), ibm1_rounds and hmm_rounds (without and with word order).
        """
        chunks = chunk_sentences(src, tgt, _LEARN_CHUNK)
        start = priors.model if priors else None
        model = learn_model(chunks, make_options(LearningSettings, settings), on_progress, start)
        return cls(model, threshold, symmetrize=symmetrize, nulls=nulls)

    @classmethod
    def learn_files(cls, src: str | Path, tgt: str | Path, **settings: Any) -> StatisticalAligner:
        """Learn from two files with equally many lines, plain, .gz or .zst, as `learn` does."""
        return cls.learn(*unzip_pairs(read_pairs(src, tgt)), **settings)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        threshold: float = THRESHOLD,
        symmetrize: str = SOFT,
        nulls: bool = False,
    ) -> StatisticalAligner:
        """Read what `save` wrote (`model_file` has the format); words are compared as then."""
        return cls(load_model(path), threshold, symmetrize=symmetrize, nulls=nulls)

    def save(self, path: str | Path) -> None:
        """Write what was learned into one .npz file, without pickle; not the threshold."""
        save_model(self.model, path)

    # ---- learning on many machines ----

    def count_files(self, src: str | Path, tgt: str | Path) -> ExpectedCounts:
        """Return what a round of learning counts in two files, for this aligner to begin with.

        Counts of the parts of a text, made on as many machines, add up (`+`) to those of the whole;
        `learn_counts` makes the next aligner of them. `save_counts` and `load_counts` in
        `model_file` keep them.
        """
        pairs = chunk_sentences(*unzip_pairs(read_pairs(src, tgt)), _LEARN_CHUNK)
        return count_links(self.model, pairs)

    def learn_counts(self, counts: ExpectedCounts) -> StatisticalAligner:
        """Return an aligner that has learned from counts made with this one."""
        if counts.digest != self.model.digest:
            raise InputError(
                "the counts were made with another model; count again with this one, or give the "
                "model that they were made with"
            )
        model = estimate_model(counts, self.model.settings)
        how: dict[str, Any] = {"symmetrize": self.symmetrize, "nulls": self.nulls}
        return StatisticalAligner(model, self.threshold, **how)

    # ---- aligning ----

    def find_links(self, pairs: Pairs) -> Links:
        """Return the links of a chunk."""
        return self.model.find_links(pairs, self.threshold, mode=self.symmetrize, nulls=self.nulls)

    def align(
        self, src: Iterable[str | Words], tgt: Iterable[str | Words], *, chunk: int = _ALIGN_CHUNK
    ) -> Iterator[Alignment]:
        """Yield the links of parallel sentences, in order, while they are read.

        At most `chunk` pairs are held. Words that were never met are linked by their beginnings.
        A pair with an empty side, with a side of more than 4,096 words or with more than four
        million pairs of words has no links.
        """
        if chunk < 1:
            raise MxError(f"chunk must be 1 or more, not {chunk}")
        for pairs in chunk_sentences(src, tgt, chunk):
            yield from build_alignments(pairs, self.find_links(pairs))

    def align_pair(self, src: str | Words, tgt: str | Words) -> Alignment:
        """Return the links of one pair."""
        return next(self.align([src], [tgt]))

    def align_batch(
        self, src: Sequence[str | Words], tgt: Sequence[str | Words]
    ) -> list[Alignment]:
        """Return the links of some pairs."""
        if len(src) != len(tgt):
            raise InputError(f"{len(src)} source sentences but {len(tgt)} target sentences")
        return list(self.align(src, tgt, chunk=max(1, len(src))))

    def align_files(
        self,
        src: str | Path,
        tgt: str | Path,
        output: str | Path = "-",
        *,
        scores: str | Path | None = None,
        directions: str | None = None,
        on_progress: OnProgress = lambda message: None,
    ) -> int:
        """Write a line of links `0-0 1-2` for each pair of lines of two files; return their number.

        `scores` also gets the links with their scores, `0-0:0.9312`; `directions` is how the names
        of two more files begin, DIRECTIONS.fwd and .bwd, for the links of each direction, found in
        the same pass. "-" is standard input or output. Files to write appear when they are
        complete.
        """
        on_progress("aligning")
        done = 0
        plan = [("pharaoh", self.symmetrize, output)]
        plan += [("scored", self.symmetrize, scores)] if scores else []
        if directions is not None:
            plan += [("pharaoh", "forward", f"{directions}.fwd")]
            plan += [("pharaoh", "backward", f"{directions}.bwd")]
        with ExitStack() as stack:
            files = [stack.enter_context(open_output(path, whole=True)) for _, _, path in plan]
            for pairs in chunk_sentences(*unzip_pairs(read_pairs(src, tgt)), _ALIGN_CHUNK):
                modes = {mode for _, mode, _ in plan}
                found = self.model.find_modes(pairs, self.threshold, modes)
                for (kind, mode, _), file in zip(plan, files, strict=True):
                    lines = LinkFormat(kind)(pairs, found[mode])
                    file.write("".join(f"{line}\n" for line in lines).encode())
                done += len(pairs.src)
                if done % _PROGRESS_PAIRS == 0:
                    on_progress(f"aligned {done:,} pairs")
        on_progress(f"aligned {done:,} pairs, all")
        return done

    # ---- what it is ----

    def describe(self) -> str:
        """Return one line: what was learned, and from how much."""
        model = self.model
        case = "in lower case" if model.settings.lowercase else "as they are written"
        return (
            f"statistical aligner, learned from {model.n_learned:,} pairs: "
            f"{len(model.src_words):,} and {len(model.tgt_words):,} words {case}, "
            f"{len(model.keys):,} translations"
        )

    def signature(self) -> str:
        """Return one line that says exactly how the links are made."""
        settings = self.model.settings
        case = "lower" if settings.lowercase else "kept"
        return (
            f"mx-seed|v:{__version__}|pairs:{self.model.n_learned}|case:{case}|"
            f"rounds:{settings.ibm1_rounds}+{settings.hmm_rounds}|agreement:{settings.agreement:g}|sym:{self.symmetrize}|"
            f"thr:{self.threshold:g}"
        )
