"""mx-align: parallel text to links, on standard output or, safe against a kill, in a file.
Knows flags, targets and messages; NumPy and the runtime load only after the flags are read."""

from __future__ import annotations

import gc
import json
import os
import re
import shlex
import sys
import time
import traceback
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..errors import MxError
from ..version import __version__
from .help import SectionedCommand

if TYPE_CHECKING:
    from ..align.pipeline import Done
    from ..aligner import Aligner
    from ..bundle.bundle import Bundle
    from ..jobs.journal import Journal
    from ..jobs.train_on_input import Order
    from ..links.average import Average
    from ..text.corpus import Reader
    from ..types import Counts, Render
    from ..view.digest import Collector

_SECTIONS = {
    "Input": ("separator", "columns", "errors", "tokenize", "shard"),
    "Model": ("model", "langs", "backend", "dtype"),
    "A model of your text": ("train_on_input", "budget", "start", "keep_model", "train_flags"),
    "Links": ("symmetrize", "forward", "backward", "average", "threshold", "precision", "recall"),
    "Output": ("output", "format", "scores", "one_based", "reverse", "write_tokenized", "resume",
               "report", "html", "html_sample", "signature"),
    "Speed": ("threads", "batch_tokens", "chunk_pairs", "gpu_memory", "devices"),
    "Cluster": ("ray", "actors"),
}  # fmt: skip
# What changes the bytes of shards, besides model and text.
_CLUSTER_SETTINGS = ("format", "backend", "dtype", "mode", "threshold", "wish", "tokenize",
                     "one_based", "reverse")  # fmt: skip
# How else to get a model than with --langs.
_WAYS = "give one with -m, or let one be made for your text: --train-on-input"
_HEURISTICS = ("soft", "intersect", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and")
_FORMATS = ("pharaoh", "scored", "talp", "jsonl", "a3", "parquet")
# What follows --ray is an address if it looks like one, else it is the first file.
_ADDRESS = re.compile(r"auto|local|ray://.+|[\w.-]+:\d+|\[[\da-fA-F:]+\]:\d+")


@dataclass(frozen=True)
class Options:
    """The flags, as parsed."""

    src: str
    tgt: str | None
    model: str | None
    output: str | None
    langs: str | None
    backend: str
    dtype: str | None
    threads: int | None
    batch_tokens: int | None
    chunk_pairs: int | None
    gpu_memory: int | None
    devices: tuple[int, ...] | None
    shard: tuple[int, int]
    separator: str
    errors: str
    tokenize: bool
    write_tokenized: str | None
    mode: str
    average: tuple[str, ...]
    threshold: float | None
    wish: str
    format: str
    scores: str | None
    one_based: bool
    reverse: bool
    restart: bool
    report: str | None
    html: str | None
    html_sample: int
    signature: bool
    quiet: bool
    ray: str | None
    actors: int | None
    columns: tuple[str, str]


class _Command(SectionedCommand):
    """Lets --ray stand with an address or without."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for n, arg in enumerate(args):
            if arg == "--":
                break
            if arg == "--ray":
                given = n + 1 < len(args) and _ADDRESS.fullmatch(args[n + 1])
                args = [*args[:n], f"--ray={args[n + 1] if given else ''}",
                        *args[n + 1 + bool(given):]]  # fmt: skip
                break
        return super().parse_args(ctx, args)


class _Names(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    name = "names"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        src, _, tgt = str(value).partition(",")
        if src and tgt and src != tgt and "," not in tgt:
            return src, tgt
        self.fail(f"{value!r} is not two names like src,tgt", param, ctx)


class _Shard(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    name = "i/n"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        number, _, of = str(value).partition("/")
        if number.isascii() and number.isdigit() and of.isascii() and of.isdigit():
            share = int(number), int(of)
            if 1 <= share[0] <= share[1]:
                return share
        self.fail(f"{value!r} is not i/n with i from 1 to n, like 2/4", param, ctx)


class _Size(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
        number, unit = str(value)[:-1], str(value)[-1:].upper()
        if unit in units and number.isascii() and number.isdigit() and int(number):
            return int(number) * units[unit]
        self.fail(f"{value!r} is not a size like 8G, 500M", param, ctx)


class _Numbers(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    name = "numbers"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = str(value).split(",")
        if all(part.isascii() and part.isdigit() for part in parts):
            return tuple(dict.fromkeys(map(int, parts)))
        self.fail(f"{value!r} is not a list of numbers like 0,2", param, ctx)


@click.command(cls=_Command, sections=_SECTIONS, context_settings={"max_content_width": 96})
@click.argument("src", required=False)
@click.argument("tgt", required=False)
@click.option("-m", "--model", metavar="BUNDLE", help="Folder or zip [default: by --langs].")
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    help="Write here instead of stdout; can go on after a kill. .gz and .zst are compressed.",
)
@click.option(
    "--langs", metavar="SRC-TGT", help="Which installed model, like de-en, or en-de: turned round."
)
@click.option(
    "--train-on-input",
    is_flag=True,
    help="Train a model on SRC and TGT first, or use the one trained on them before.",
)
@click.option(
    "--budget", metavar="TIME", help="Time to train, like 45m, 2h or 1h30m [default: 30m]."
)
@click.option(
    "--start",
    metavar="MODEL",
    help="Begin with this model: an installed one, like fr-en, or a bundle or run folder.",
)
@click.option(
    "--keep-model", metavar="BUNDLE", help="Keep it here [default: in the user's cache folder]."
)
@click.option(
    "--train-flags", metavar="FLAGS", help="More flags for mx-train, like '--preset compact'."
)
@click.option(
    "--backend",
    type=click.Choice(("auto", "trt", "trt-rtx", "cuda", "cpu")),
    default="auto",
    help="What runs the model [default: auto, the fastest that works].",
)
@click.option(
    "--dtype",
    type=click.Choice(("fp32", "fp16", "int8")),
    help="Arithmetic [default: the bundle's choice].",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Threads that run the model on the CPU [default: all cores].",
)
@click.option(
    "--batch-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="Padded pieces per side in a batch [default: 1024 on the CPU].",
)
@click.option(
    "--chunk-pairs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Pairs sorted by length together, and lost by a kill [default: 8192].",
)
@click.option(
    "--gpu-memory",
    type=_Size(),
    metavar="SIZE",
    help="Most memory to use on each GPU, like 8G or 500M [default: 80 % of what is free].",
)
@click.option(
    "--devices",
    type=_Numbers(),
    metavar="LIST",
    help="GPUs to use, like 0,2 [default: all].",
)
@click.option(
    "--shard",
    type=_Shard(),
    default="1/1",
    metavar="i/n",
    help="Only the i-th of n equal runs of lines; joined, the outputs are the whole.",
)
@click.option(
    "--separator",
    type=click.Choice(("auto", "bars", "tab")),
    default="auto",
    help="Between the sides in one file: ' ||| ' or TAB [default: as its first line].",
)
@click.option(
    "--errors",
    type=click.Choice(("strict", "replace")),
    default="strict",
    help="Bytes that are not UTF-8: stop, or read as U+FFFD [default: strict].",
)
@click.option(
    "--columns",
    type=_Names(),
    default="src,tgt",
    metavar="SRC,TGT",
    help="Names of the two sides in Parquet or JSONL (--ray) [default: src,tgt].",
)
@click.option("--tokenize", is_flag=True, help="Cut raw text into words first.")
@click.option(
    "--write-tokenized",
    metavar="PREFIX",
    help="Write the words aligned to PREFIX.src and PREFIX.tgt (needs -o).",
)
@click.option(
    "--symmetrize",
    type=click.Choice(_HEURISTICS),
    default="soft",
    help="How the directions are joined [default: soft, the harmonic mean].",
)
@click.option("--forward", is_flag=True, help="Best source word of each target word only.")
@click.option("--backward", is_flag=True, help="Best target word of each source word only.")
@click.option(
    "--average",
    multiple=True,
    metavar="LINKS",
    help="Average the scores with those of a file of links, one line `i-j:score` for each pair, "
    "as `mx-seed --scores` writes. Several times: with each.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="T",
    help="Lowest score of a link [default: the bundle's; of an average 0.42].",
)
@click.option("--precision", is_flag=True, help="The threshold for few wrong links.")
@click.option("--recall", is_flag=True, help="The threshold for few missing links.")
@click.option(
    "--format",
    type=click.Choice(_FORMATS),
    default="pharaoh",
    help="Of the output; scored: i-j:score; parquet with --ray [default: pharaoh, i-j].",
)
@click.option("--scores", metavar="FILE", help="One score per link, line by line (needs -o).")
@click.option("--one-based", is_flag=True, help="Count words from 1.")
@click.option("--reverse", is_flag=True, help="Target word first.")
@click.option(
    "--resume/--restart",
    "resume",
    default=True,
    help="Go on with OUT.partial if it is there, or begin anew [default: resume].",
)
@click.option("--report", metavar="FILE", help="Write the final numbers as JSON.")
@click.option("--html", metavar="FILE", help="Write a page that shows links and scores.")
@click.option(
    "--html-sample",
    type=click.IntRange(min=1),
    metavar="N",
    default=1000,
    help="Pairs in the page, drawn at random, besides the 20 worst [default: 1000].",
)
@click.option(
    "--ray",
    metavar="[ADDRESS]",
    help="Align on a Ray cluster, or without an address on a local one; OUT is a folder of shards.",
)
@click.option(
    "--actors",
    type=click.IntRange(min=1),
    metavar="N",
    help="Aligners of --ray, each with a GPU or --threads cores [default: all of the cluster].",
)
@click.option("--signature", is_flag=True, help="End with one line on how the links were made.")
@click.option("--quiet", is_flag=True, help="No notes and no summary on stderr.")
@click.option(
    "--doctor",
    is_flag=True,
    help="Only say which backends run here, check them with -m, and why not the others.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="mx-align")
def main(
    src: str | None,
    tgt: str | None,
    debug: bool,
    resume: bool,
    symmetrize: str,
    forward: bool,
    backward: bool,
    precision: bool,
    recall: bool,
    doctor: bool,
    **flags: Any,
) -> None:
    """Align the words of SRC and TGT, files with one sentence per line, or of one file of pairs
    `source ||| target` or `source TAB target`. `-` is stdin; .gz and .zst are unpacked. Words are
    what stands between spaces or tabs.

    \b
    Examples:
      mx-align corpus.de corpus.en --langs de-en -o corpus.links
      mx-align corpus.fi corpus.hu --train-on-input --budget 1h -o corpus.links
      printf 'das Haus ||| the house\\n' | mx-align - -m de-en.mx
    """
    try:
        if doctor:
            from .doctor import examine

            _leave(0 if examine(flags["model"], click.echo) else 1)
        mode = (
            _one({"forward": forward, "backward": backward, symmetrize: symmetrize != "soft"})
            or "soft"
        )
        wish = _one(
            {"precision": precision, "recall": recall, "threshold": flags["threshold"] is not None}
        )
        wish = wish if wish in ("precision", "recall") else "aer"
        _check_average(flags["average"], mode, flags["ray"])
        order = _order(src, tgt, flags)
        if src is None and sys.stdin.isatty():
            raise click.UsageError("give SRC and TGT, or one file of pairs, or - for stdin")
        options = Options(src or "-", tgt, mode=mode, wish=wish, restart=not resume, **flags)
        (_fit_for_one if options.ray is None else _fit_for_cluster)(options)
        if order:
            options = _with_model(options, order)
        elif options.model and options.langs is None and not options.quiet:
            _say_sides(options)
        (_align if options.ray is None else _cluster)(options)
    except MxError as error:
        if debug:
            traceback.print_exc()
        _say(str(error))
        _leave(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _leave(141)  # what a shell says of a program that wrote into a closed pipe
    except KeyboardInterrupt:
        hint = "; the same command goes on from there" if flags["output"] else ""
        _say(f"interrupted{hint}")
        _leave(130)


def _order(src: str | None, tgt: str | None, flags: dict[str, Any]) -> Order | None:
    """The model that is to be made of the text, if one is; takes its flags out of the others."""
    wanted = flags.pop("train_on_input")
    more = {name: flags.pop(name) for name in ("budget", "start", "keep_model", "train_flags")}
    if not wanted:
        for name, value in more.items():
            if value is not None:
                raise MxError(f"--{name.replace('_', '-')} is for --train-on-input only")
        return None
    if flags["model"]:
        raise MxError("--train-on-input excludes -m; --start begins the training with a model")
    if flags["tokenize"]:
        raise MxError("--train-on-input excludes --tokenize: it learns from the words of SRC")
    if flags["errors"] != "strict":
        raise MxError("--train-on-input learns from UTF-8 only: leave out what is not, `iconv -c`")
    if src is None or tgt is None:
        raise MxError("--train-on-input needs SRC and TGT, two files")
    from ..bundle.bundle import language_codes
    from ..jobs.train_on_input import Order, seconds

    budget = seconds(more["budget"]) if more["budget"] else None
    if flags["langs"] is not None:
        language_codes(flags["langs"])
    try:
        shlex.split(more["train_flags"] or "")
    except ValueError as error:
        raise MxError(f"--train-flags {more['train_flags']!r}: {error}") from None
    return Order(
        src, tgt, flags["langs"], budget, more["keep_model"],
        more["train_flags"] or "", flags["threads"], flags["quiet"], more["start"],
    )  # fmt: skip


def _with_model(options: Options, order: Order) -> Options:
    """With a model made of the text, and links of the statistical aligner to average it with."""
    from ..jobs.train_on_input import links_for, model_for, weight_of_statistics

    say = (lambda line: None) if options.quiet else _say
    links = links_for(order, say)
    model = model_for(order, say, links)
    average = options.average
    if options.mode == "soft" and options.ray is None:
        weight = weight_of_statistics(order, links)
        average = (*average, *[str(links)] * weight)
        if not weight:
            say(f"a text this small adds nothing by statistics: not averaged with {links}")
    return replace(options, model=str(model), langs=None, average=average)


def _check_average(names: tuple[str, ...], mode: str, ray: str | None) -> None:
    """Links that cannot be averaged with are noticed before anything is computed."""
    if names and mode != "soft":
        raise MxError(f"--average is for soft links only; leave it or {mode} out")
    if names and ray is not None:
        raise MxError("--average is not for --ray; give each machine a --shard instead")
    for name in names:
        if not os.path.exists(name) or os.path.isdir(name):
            raise MxError(f"--average {name}: there is no such file")
    if len({os.path.realpath(name) for name in names}) < len(names):
        raise MxError(f"--average: a file is given twice: {', '.join(names)}")


def _one(chosen: dict[str, bool]) -> str | None:
    names = [name for name, given in chosen.items() if given]
    if len(names) > 1:
        raise click.UsageError(f"--{names[0]} and --{names[1]} exclude each other")
    return names[0] if names else None


def _say(message: str) -> None:
    click.echo(f"mx-align: {message}", err=True)


def _leave(code: int) -> NoReturn:
    """End at once: a thread that waits for standard input must not hold up the exit."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


# ---- the run ----


def _fit_for_one(options: Options) -> None:
    """What cannot be done without --ray is noticed before anything is computed."""
    for flag, given in (("--format parquet", options.format == "parquet"),
                        ("--actors", options.actors is not None)):  # fmt: skip
        if given:
            raise MxError(f"{flag} is for --ray only")
    _targets(options)


def _align(options: Options) -> None:
    targets = _targets(options)
    aligner = _load(options)
    bundle = aligner.bundle
    known = "und" not in bundle.languages
    if known and options.model and options.langs and not bundle.order(options.langs):
        pairs = " and ".join(bundle.pairs)
        _say(f"warning: {options.model} is a model for {pairs}, not for {options.langs}")
    # A chunk has many thousands of lists and no cycles: looking for those costs a tenth.
    gc.set_threshold(200_000, 20, 100)
    if not options.quiet and aligner.backend.name != "cpu":
        _say(f"using {aligner.describe()}")
    average = _average(options)
    how = _how(aligner, average)
    start = time.monotonic()
    reader = _reader(options, aligner)
    renders = _renders(options, aligner)
    collector = _collector(options)
    if targets:
        from ..jobs.journal import Journal

        opened: Any = Journal.open(
            targets,
            {"how": how, **_settings(options, aligner, reader)},
            restart=options.restart,
            notes=collector is not None,
        )
    else:
        opened = nullcontext()
    with opened as journal:
        total, resumed = _resume(journal, reader, collector)
        if journal is None or not journal.complete:
            seen: list[Render] = [collector] if collector else []
            for done in _stream(options, aligner, reader, renders + seen, average):
                _write(done, journal, collector)
                total += done.counts
                _progress(options, total, resumed, start)
        # Before the links have their name: whoever finds those finds a report of all of them. The
        # notes can only be lost if a run was killed at its very end, when all this was written.
        if collector and collector.total.pairs == total.pairs:
            seconds = time.monotonic() - start
            _report(options, aligner, how, total, resumed, seconds, collector)
            _page(options, aligner, how if average else None, collector)
        if journal is not None:
            journal.finish()
    _summary(options, [how], total, resumed, time.monotonic() - start)


def _targets(options: Options) -> list[Path]:
    """The files to be written, which must be different and none of the input."""
    beside = [name for name in (options.report, options.html) if name]
    if options.output is None or options.output == "-":
        _writable(options, beside)
        for flag in ("scores", "write_tokenized"):
            if getattr(options, flag) is not None:
                raise MxError(f"--{flag.replace('_', '-')} needs -o OUT, to be complete together")
        return []
    names = [options.output]
    names += [options.scores] if options.scores else []
    if options.write_tokenized:
        names += [f"{options.write_tokenized}.src", f"{options.write_tokenized}.tgt"]
    _writable(options, names + beside)
    return [Path(name) for name in names]


def _writable(options: Options, names: list[str]) -> None:
    inputs = [n for n in (options.src, options.tgt, *options.average) if n not in (None, "-")]
    real = [os.path.realpath(name) for name in names]
    for name, path in zip(names, real, strict=True):
        if real.count(path) > 1:
            raise MxError(f"{name} would be written twice; give another name")
        if path in map(os.path.realpath, map(str, inputs)):
            raise MxError(f"{name} is an input and would be overwritten; give another name")
        if os.path.isdir(path):
            raise MxError(f"{name} is a folder; give the name of a file")
        if os.path.exists(path) and not os.path.isfile(path):
            raise MxError(f"{name} is no regular file; write to stdout and redirect it there")
        if not os.path.isdir(os.path.dirname(path)):
            raise MxError(f"cannot write {name}: its folder does not exist; create it first")


def _load(options: Options) -> Aligner:
    from ..aligner import Aligner
    from ..links.average import LOWEST

    loading = _loading(options)
    if options.average:
        loading["threshold"] = min(LOWEST, options.threshold or 1)  # of the mean it is
    return Aligner.load(**loading, threads=options.threads)


def _average(options: Options) -> Average | None:
    """How the links are averaged with those of files, if they are."""
    from ..links.average import THRESHOLDS, Average

    if not options.average:
        return None
    return Average(options.average, options.threshold or THRESHOLDS[options.wish])


def _how(aligner: Aligner, average: Average | None) -> str:
    """The signature of the links."""
    more = f"|avg:{len(average.names)}@{average.threshold:.6g}" if average else ""
    return aligner.signature() + more


def _bundle(options: Options) -> Bundle:
    from ..aligner import find_bundle

    return find_bundle(options.model, options.langs, flag="--langs", ways=_WAYS)


def _loading(options: Options) -> dict[str, Any]:
    return {
        "model": _bundle(options).path,
        "langs": options.langs,
        "backend": options.backend,
        "dtype": options.dtype,
        "symmetrize": options.mode,
        "threshold": options.threshold,
        "wish": options.wish,
        "gpu_memory": options.gpu_memory,
        "devices": options.devices,
    }


def _chunk_pairs(options: Options, aligner: Aligner) -> int:
    """Where a pair's result depends on its batch, batches are always made in the same way."""
    from ..aligner import CHUNK

    if not aligner.backend.steady and (options.chunk_pairs or options.batch_tokens):
        raise MxError(
            f"--chunk-pairs and --batch-tokens would change the links of the "
            f"{aligner.backend.precision} model on {aligner.backend.name}, whose pairs influence "
            "each other; leave them out or give --backend cpu --dtype fp32"
        )
    return options.chunk_pairs or CHUNK


def _reader(options: Options, aligner: Aligner) -> Reader:
    from ..text.corpus import Reader, Source
    from ..text.tokenizer import tokenize
    from ..text.words import split

    source = Source(options.src, options.tgt, options.separator, options.errors, options.shard)
    size = _chunk_pairs(options, aligner)
    cut = tokenize if options.tokenize else split
    multiple = 1 if aligner.backend.steady else size
    splits = cut, cut
    return Reader(source, size, multiple=multiple, splits=splits, others=options.average)


def _renders(options: Options, aligner: Aligner) -> list[Render]:
    from ..links.formats import Format

    based: dict[str, Any] = {"one_based": options.one_based, "reverse": options.reverse}
    calibrate = None if options.average else aligner.bundle.calibrate
    renders: list[Render] = [Format(options.format, calibrate=calibrate, **based)]
    if options.scores:
        renders.append(Format("scores", **based))
    if options.write_tokenized:
        renders.append(lambda pairs, links: list(map(" ".join, pairs.src)))
        renders.append(lambda pairs, links: list(map(" ".join, pairs.tgt)))
    return renders


def _collector(options: Options) -> Collector | None:
    """What looks at the links of the whole corpus, if anybody wants to know."""
    if not (options.report or options.html):
        return None
    from ..view.digest import Collector

    return Collector(options.html_sample if options.html else 0)


def _settings(options: Options, aligner: Aligner, reader: Reader) -> dict[str, Any]:
    """Everything that changes the bytes of the output, but the input, which is compared itself."""
    return {
        "model": aligner.bundle.digest,
        "format": options.format,
        "one_based": options.one_based,
        "reverse": options.reverse,
        "tokenize": options.tokenize,
        "errors": options.errors,
        "separator": None if options.tgt else options.separator,
        "first_line": reader.first + 1,
        "shard": "{}/{}".format(*options.shard),
        # The lines are compared, too; sizes tell the files of several shards apart.
        **({"average": list(map(os.path.getsize, options.average))} if options.average else {}),
    }


def _resume(
    journal: Journal | None, reader: Reader, collector: Collector | None
) -> tuple[Counts, int]:
    """What earlier runs counted; the reader goes over what they did, the collector recalls it."""
    from ..types import Counts

    total = Counts()
    for record in journal.records if journal is not None else []:
        if not journal or not journal.complete:
            reader.skip(record.pairs, record.digest)
        total += Counts(*record.counts)
    if journal is not None and collector:
        collector.recall(journal.notes())
    return total, total.pairs


def _stream(
    options: Options,
    aligner: Aligner,
    reader: Reader,
    renders: list[Render],
    average: Average | None,
) -> Iterable[Done]:
    from ..align.pipeline import stream

    engine = aligner.engine(
        renders, batch_tokens=options.batch_tokens, nulls=options.format == "jsonl", change=average
    )
    return stream(engine, reader.chunks(), aligner.backend.workers)


def _write(done: Done, journal: Journal | None, collector: Collector | None) -> None:
    kept = collector.add(done.items.pop()[0]) if collector else None
    parts = [_text(items) for items in done.items]
    if journal is None:
        from ..text.files import open_output

        with open_output("-") as out:
            out.write(parts[0])
        return
    note = done.pairs.note
    if collector and kept:
        parts.append(collector.note(kept))
    journal.append(parts, done.counts.pairs, note.digest, done.counts.row(), note.whole)


def _text(items: list[str]) -> bytes:
    return ("\n".join(items) + "\n").encode("utf-8") if items else b""


# ---- many machines ----


def _cluster(options: Options) -> None:
    """Align with --ray: blocks of the corpus on many machines, one file for each."""
    from ..aligner import CHUNK
    from ..cluster import blocks as cutting
    from ..cluster import ray
    from ..jobs.shards import Shards
    from ..types import Counts

    start = time.monotonic()
    bundle = _bundle(options)
    load = {**_loading(options), "model": os.path.abspath(bundle.path)}
    work = ray.Work(load, options.format, options.one_based, options.reverse, options.tokenize,
                    options.chunk_pairs, options.batch_tokens)  # fmt: skip
    blocks = cutting.cut(
        options.src, options.tgt, options.chunk_pairs or CHUNK, separator=options.separator,
        errors=options.errors, names=options.columns,
    )  # fmt: skip
    settings = {
        "model": bundle.digest, "input": cutting.fingerprint(blocks),
        **{name: getattr(options, name) for name in _CLUSTER_SETTINGS},
    }  # fmt: skip
    folder, suffix = Path(str(options.output)), ray.SUFFIXES[options.format]
    with Shards.open(folder, suffix, settings, restart=options.restart) as shards:
        left = [block for block in blocks if block.number not in shards.records]
        counts = [record["counts"] for record in shards.records.values()]
        hows = {record["how"] for record in shards.records.values()}
        total = sum((Counts(*row) for row in counts), Counts())
        resumed = total.pairs
        with ray.connected(options.ray) if left else nullcontext():
            pool = ray.Pool(options.actors, options.threads or 1)
            for number, data, note in ray.align_blocks(left, work, pool) if left else ():
                hows = _same_way(hows | {note["how"]})
                place = {"first_line": blocks[number].first + 1, "pairs": blocks[number].pairs}
                shards.add(number, data, {**place, **note})
                total += Counts(*note["counts"])
                _progress(options, total, resumed, start)
        if not shards.complete:
            shards.finish(len(blocks), {"pairs": total.pairs, "counts": vars(total)})
    _summary(options, sorted(hows), total, resumed, time.monotonic() - start)


def _fit_for_cluster(options: Options) -> None:
    """Flags that make no sense with --ray are errors, not ignored."""
    if options.output in (None, "-"):
        raise MxError("--ray needs -o FOLDER for the shards; `mx-merge FOLDER -o OUT` joins them")
    for flag in ("scores", "write_tokenized", "report", "html"):
        if getattr(options, flag) is not None:
            name = flag.replace("_", "-")
            raise MxError(f"--{name} is not for --ray; --format jsonl or parquet has scores")
    if options.shard != (1, 1):
        raise MxError("--shard is for arrays of single machines; --ray divides the work itself")
    if options.devices is not None:
        raise MxError("--devices is not for --ray, which gives each aligner a GPU of its own")


def _same_way(hows: set[str]) -> set[str]:
    """An error if machines of the cluster align in different ways."""
    if len(hows) > 1:
        raise MxError(
            f"the machines do not align in the same way: {' and '.join(sorted(hows))}; "
            "choose one with --backend and --dtype, and begin anew with --restart"
        )
    return hows


# ---- what is said ----


def _say_sides(options: Options) -> None:
    """Which side a given model takes for which language, as nobody has said it."""
    bundle = _bundle(options)
    if "und" not in bundle.languages:
        src, tgt = (side.split("+") for side in bundle.languages)
        _say(
            f"reading the source as {' or '.join(src)} and the target as {' or '.join(tgt)}; "
            f"--langs {tgt[0]}-{src[0]} turns the model round"
        )


def _progress(options: Options, total: Counts, resumed: int, start: float) -> None:
    if options.quiet or not sys.stderr.isatty():
        return
    rate = (total.pairs - resumed) / max(time.monotonic() - start, 1e-9)
    click.echo(f"\r{total.pairs:,} pairs, {rate:,.0f} pairs/s ", err=True, nl=False)


def _rates(total: Counts, resumed: int, seconds: float) -> tuple[float, float]:
    """Pairs per second of this run, links per word of all."""
    per_word = 2 * total.links / total.words if total.words else 0.0
    return (total.pairs - resumed) / max(seconds, 1e-9), per_word


def _summary(
    options: Options, hows: Iterable[str], total: Counts, resumed: int, seconds: float
) -> None:
    rate, per_word = _rates(total, resumed, seconds)
    if not options.quiet:
        if sys.stderr.isatty():
            click.echo("\r", err=True, nl=False)
        again = f" ({resumed:,} of them by an earlier run)" if resumed else ""
        _say(
            f"{total.pairs:,} pairs{again} in {seconds:.1f} s, {rate:,.0f} pairs/s; "
            f"{total.empty:,} with an empty side, {total.windowed:,} in windows, "
            f"{total.skipped:,} too long; {per_word:.3f} links per word"
        )
    for how in hows if options.signature else ():
        _say(how)


def _report(
    options: Options,
    aligner: Aligner,
    how: str,
    total: Counts,
    resumed: int,
    seconds: float,
    collector: Collector,
) -> None:
    from ..text.files import atomic_write

    if not options.report:
        return
    rate, per_word = _rates(total, resumed, seconds)
    report = {
        **vars(total),
        "links_per_word": round(per_word, 6),
        "resumed": resumed,
        "seconds": round(seconds, 3),
        "pairs_per_second": round(rate, 3),
        "signature": how,
        "backend": aligner.describe(),
        "model": aligner.bundle.digest,
        "threads": aligner.backend.workers,
        "shard": "{}/{}".format(*options.shard),
        "corpus": collector.report(),
    }
    with atomic_write(options.report) as file:
        file.write(json.dumps(report, indent=2, ensure_ascii=False).encode() + b"\n")


def _page(options: Options, aligner: Aligner, how: str | None, collector: Collector) -> None:
    from ..text.files import atomic_write
    from ..view.model import model_page
    from ..view.page import build

    if not options.html:
        return
    names = [os.path.basename(name) for name in (options.src, options.tgt) if name]
    title = " · ".join([*names, aligner.bundle.name])
    text = build(model_page(aligner, collector, title, how))
    with atomic_write(options.html) as file:
        file.write(text.encode())


if __name__ == "__main__":
    main(prog_name="mx-align")
