"""What can be chosen for the alignment of files, which files are written, and what became of them.

Light to import: the flags of mx-align are made from these fields before anything heavy is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..errors import MxError
from ..options import check_limits, flag, flag_name
from ..storage import check_target

if TYPE_CHECKING:
    from ..types import Counts

# A flag is listed in the help under a title.
input_flag = partial(flag, group="Input")
link_flag = partial(flag, group="Links")
output_flag = partial(flag, group="Output")
speed_flag = partial(flag, group="Speed")


def parse_shard(text: str) -> tuple[int, int]:
    """Parse `i/n` into its two numbers."""
    number, _, of = text.partition("/")
    if number.isascii() and number.isdigit() and of.isascii() and of.isdigit():
        shard = int(number), int(of)
        if 1 <= shard[0] <= shard[1]:
            return shard
    raise ValueError(f"{text!r} is not i/n with i from 1 to n, like 2/4")


def format_shard(shard: tuple[int, int]) -> str:
    """Write two numbers as `parse_shard` reads them."""
    return f"{shard[0]}/{shard[1]}"


@dataclass(frozen=True)
class CorpusOptions:
    """How files are read, what is written of their links, and where to.

    These are the keywords of `Aligner.align_files` and, as flags, of mx-align. A run that is
    resumed must repeat those that change the output.
    """

    separator: Literal["auto", "bars", "tab"] = input_flag(
        "auto",
        "Between the sides in one file: ' ||| ' or TAB [default: as its first line].",
        changes_output=True,
    )
    errors: Literal["strict", "replace"] = input_flag(
        "strict", "Bytes that are not UTF-8: stop, or read as U+FFFD.", changes_output=True
    )
    tokens: Literal["auto", "words", "raw", "sentencepiece", "icu", "moses", "bpe"] = input_flag(
        "auto",
        "What stands between spaces, which links count: words; pieces with ▁; ICU tokens with lone "
        "▁ for spaces; Moses escapes; pieces with @@. raw: count our own words instead "
        "[default: auto, as the first lines show].",
        changes_output=True,
    )
    tokenize: bool = input_flag(False, "The same as --tokens raw.", changes_output=True)
    spm_src: str | None = input_flag(
        None, "SRC is raw text: count the pieces of this SentencePiece model.",
        metavar="MODEL", changes_output=True,
    )  # fmt: skip
    spm_tgt: str | None = input_flag(
        None, "The same for TGT.", metavar="MODEL", changes_output=True
    )
    shard: tuple[int, int] = input_flag(
        (1, 1),
        "Only the i-th of n equal runs of lines; joined, the outputs are the whole.",
        metavar="i/n",
        parse=parse_shard,
    )
    method: Literal["auto", "model", "statistics", "both"] = link_flag(
        "auto",
        "What finds the links: a model, statistics learned from this very text, or both, weighed "
        "by how well they explain it [default: auto, all that there is].",
        changes_output=True,
    )
    average: tuple[str, ...] = link_flag(
        (),
        "Average the scores with those of a file of links, one line `i-j:score` for each pair, as "
        "`mx-seed --scores` writes. Several times: with each.",
        metavar="LINKS",
    )
    output: str | None = output_flag(
        None,
        "Write here instead of stdout; can go on after a kill. .gz and .zst are compressed.",
        short="-o",
        metavar="OUT",
    )
    format: Literal["pharaoh", "scored", "talp", "jsonl", "a3", "parquet"] = output_flag(
        "pharaoh",
        "Of the output; scored: i-j:score; parquet with --ray [default: pharaoh, i-j].",
        changes_output=True,
    )
    scores: str | None = output_flag(
        None, "One score per link, line by line (needs -o).", metavar="FILE"
    )
    sentence_scores: str | None = output_flag(
        None,
        "How well links cover the source and the target of each pair, from 0 to 1, with a TAB "
        "between; low is likely no translation (needs -o).",
        metavar="FILE",
    )
    one_based: bool = output_flag(False, "Count words from 1.", changes_output=True)
    reverse: bool = output_flag(False, "Target word first.", changes_output=True)
    write_tokenized: str | None = output_flag(
        None, "Write the words aligned to PREFIX.src and PREFIX.tgt (needs -o).", metavar="PREFIX"
    )
    resume: bool = output_flag(
        True,
        "Go on with OUT.partial if it is there, or begin anew [default: resume].",
        off="--restart",
    )
    report: str | None = output_flag(None, "Write the final numbers as JSON.", metavar="FILE")
    html: str | None = output_flag(
        None, "Write a page that shows links and scores.", metavar="FILE"
    )
    html_sample: int = output_flag(
        1000, "Pairs in the page, drawn at random, besides the 20 worst.", minimum=1
    )
    batch_tokens: int | None = speed_flag(
        None, "Padded pieces per side in a batch [default: 1024 on the CPU].", minimum=1
    )
    workers: int | None = speed_flag(
        None,
        "Processes that align, on the CPU; 1: this one alone, with --threads [default: as many as "
        "threads, if the text is long].",
        minimum=1,
    )
    chunk_pairs: int | None = speed_flag(
        None,
        "Pairs sorted by length together, and lost by a kill [default: 8192].",
        minimum=1,
    )

    def __post_init__(self) -> None:
        check_limits(self)
        number, of = self.shard
        if not 1 <= number <= of:
            raise MxError(f"shard must be (i, n) with i from 1 to n, not {self.shard}")
        if self.tokenize and self.tokens not in ("auto", "raw"):
            raise MxError(f"--tokenize is --tokens raw; leave it or --tokens {self.tokens} out")
        if self.average and (self.tokens not in ("auto", "words", "raw") or self._has_models):
            raise MxError("--average counts words, so it goes with --tokens words or raw only")

    @property
    def _has_models(self) -> bool:
        return self.spm_src is not None or self.spm_tgt is not None

    @property
    def token_kind(self) -> str:
        """How tokens are read. Files to average with count what stands between spaces: so do we."""
        if self.tokenize:
            return "raw"
        return "words" if self.average and self.tokens == "auto" else self.tokens


def find_targets(src: str, tgt: str | None, options: CorpusOptions) -> list[Path]:
    """Return the files that are completed together, none if links go to standard output.

    They, the report and the page must be different files, none of them an input.
    """
    if options.format == "parquet":
        raise MxError("--format parquet is for --ray only")
    beside = [name for name in (options.report, options.html) if name]
    inputs = [name for name in (src, tgt, *options.average) if name and name != "-"]
    if options.output in (None, "-"):
        _check_writable(beside, inputs)
        for name in ("scores", "sentence_scores", "write_tokenized"):
            if getattr(options, name) is not None:
                raise MxError(f"{flag_name(name)} needs -o OUT, to be complete together")
        return []
    names = [str(options.output)]
    names += [name for name in (options.scores, options.sentence_scores) if name]
    if options.write_tokenized:
        names += [f"{options.write_tokenized}.src", f"{options.write_tokenized}.tgt"]
    _check_writable(names + beside, inputs)
    return [Path(name) for name in names]


def _check_writable(names: Sequence[str], inputs: Sequence[str]) -> None:
    """Refuse names that cannot be written, or that would overwrite something of this run."""
    # Links and `./` may lead to the same file under two names.
    taken = {os.path.realpath(name) for name in inputs}
    real = [os.path.realpath(name) for name in names]
    for name, path in zip(names, real, strict=True):
        if real.count(path) > 1:
            raise MxError(f"{name} would be written twice; give another name")
        if path in taken:
            raise MxError(f"{name} is an input and would be overwritten; give another name")
        check_target(name)
        if os.path.exists(path) and not os.path.isfile(path):
            raise MxError(f"{name} is no regular file; write to stdout and redirect it there")


@dataclass(frozen=True)
class CorpusSummary:
    """What became of a corpus: counts, how many pairs earlier runs had done, seconds of this one,
    and how the links were made."""

    total: Counts
    resumed: int
    seconds: float
    signatures: list[str]

    @property
    def pairs_per_second(self) -> float:
        """The speed of this run."""
        return (self.total.pairs - self.resumed) / max(self.seconds, 1e-9)

    @property
    def links_per_word(self) -> float:
        """How many links a word of either side has on average."""
        return 2 * self.total.links / self.total.words if self.total.words else 0.0
