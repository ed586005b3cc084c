"""mx-align: parallel text to links, on standard output or, safe against a kill, in a file.

Has flags and messages; what is done is done by `Aligner.align_files` and `cluster`. NumPy and the
runtime are loaded only after the flags are read.
"""

from __future__ import annotations

import gc
import os
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..errors import MxError, NoModelError, clean_text
from ..jobs.corpus_options import CorpusOptions, find_targets
from .align_flags import TITLES, AlignFlags, give_ray_a_value
from .flags import FlagCommand, flag_name

if TYPE_CHECKING:
    from ..bundle.bundle import Bundle
    from ..jobs.corpus_options import CorpusSummary
    from ..train_on_input import TrainingRequest
    from ..types import Counts

HELP = """Align the words of SRC and TGT, files with one sentence per line, or of one file of pairs
`source ||| target` or `source TAB target`. `-` is stdin; .gz and .zst are unpacked. Words are
what stands between spaces or tabs.

\b
Examples:
  mx-align corpus.de corpus.en --langs de-en -o corpus.links
  mx-align corpus.fi corpus.hu --train-on-input --budget 1h -o corpus.links
  printf 'das Haus ||| the house\\n' | mx-align - -m de-en.mx
"""
_FEW_LANGUAGES = 4  # which a note names one by one
# How else to get a model than with --langs.
_WAYS = "give one with -m, or let one be made for your text: --train-on-input"


def run_align(flags: AlignFlags) -> int | None:
    """Align as the flags say; mistakes are noticed before anything is computed."""
    if flags.doctor:
        from .doctor import examine_machine

        return 0 if examine_machine(flags.model, click.echo) else 1
    if flags.list_models:
        _list_models()
        return 0
    mode = _find_mode(flags)
    if flags.threshold is not None and flags.optimize_for:
        raise click.UsageError("--optimize-for and --threshold exclude each other")
    _check_average(flags, mode)
    request = _make_training_request(flags)
    if flags.src is None and sys.stdin.isatty():
        raise click.UsageError("give SRC and TGT, or one file of pairs, or - for stdin")
    flags = replace(flags, src=flags.src or "-")
    if flags.input_format == "jsonl":
        _check_json_flags(flags)
    elif flags.ray is None:
        if flags.actors is not None:
            raise MxError("--actors is for --ray only")
        find_targets(str(flags.src), flags.tgt, flags)
    else:
        _check_cluster_flags(flags)
    if request:
        flags = _train_first(flags, request)
    langs = flags.langs
    if langs is None and not request:
        from ..bundle.languages import guess_pair

        langs = "-".join(guess_pair(str(flags.src), flags.tgt) or ()) or None
    names = ("model", "read", "backend", "dtype", "threshold", "gpu_memory", "devices")
    load = {
        "langs": langs,
        "symmetrize": mode,
        "optimize_for": flags.optimize_for or "aer",
        **{name: getattr(flags, name) for name in names},
    }
    if flags.input_format == "jsonl":
        return _answer_json_lines(flags, load)
    summary = (_align_here if flags.ray is None else _align_on_cluster)(flags, load)
    _note_summary(flags, summary)
    for signature in summary.signatures if flags.signature else ():
        click.echo(f"mx-align: {signature}", err=True)
    return None


def _list_models() -> None:
    """Print each installed model: its name, its size for a CPU, its languages."""
    from ..bundle.bundle import Bundle
    from ..bundle.installed import installed_models

    for name, path in installed_models().items():
        bundle = Bundle.load(path)
        size = len(bundle.read_graph()) / 1e6
        click.echo(f"{name}: {size:.1f} MB, {', '.join(bundle.told_pairs)}")


def _align_here(flags: AlignFlags, load: dict[str, Any]) -> CorpusSummary:
    """Align on this machine; `load` are arguments of `Aligner.load`."""
    from ..aligner import Aligner
    from ..bundle.installed import find_bundle, installed_models

    try:
        find_bundle(load["model"], load["langs"], flag="--langs", ways=_WAYS)
    except NoModelError:
        if flags.method in ("model", "both"):
            raise
    models = list(installed_models().values())
    if not (load["model"] or load["langs"]) and len(models) == 1:
        load = {**load, "model": models[0]}  # the text shows whether it knows it, and which way
    aligner = Aligner.load(**load, threads=flags.threads)
    if aligner.bundle and flags.model and not flags.train_on_input:
        _note_languages(flags, aligner.bundle, load["langs"])
    if aligner.backend and aligner.backend.name != "cpu":
        _write_note(flags, f"using {aligner.describe()}")
    # A chunk has many thousands of lists and no cycles: looking for those costs a tenth.
    gc.set_threshold(200_000, 20, 100)
    options = {f.name: getattr(flags, f.name) for f in fields(CorpusOptions)}
    return aligner.align_files(
        str(flags.src),
        flags.tgt,
        on_progress=_progress_printer(flags),
        on_note=partial(_write_note, flags),
        **options,
    )


def _answer_json_lines(flags: AlignFlags, load: dict[str, Any]) -> int:
    """Answer each line of JSON as soon as it comes; 2 if some could not be read."""
    from ..aligner import Aligner
    from ..json_pairs.answers import AnswerOptions
    from ..json_pairs.pipe import answer_stream

    aligner = Aligner.load(**load, threads=flags.threads)
    if aligner.backend is None:
        raise MxError(
            f"{aligner.reason}; a line alone has no text to learn statistics from: {_WAYS}"
        )
    options = AnswerOptions(flags.token_kind, one_based=flags.one_based, reverse=flags.reverse)
    with sys.stdin.buffer if flags.src == "-" else open(str(flags.src), "rb") as lines:
        n_lines, n_errors = answer_stream(
            aligner, lines, sys.stdout.buffer, options, aligner.backend.workers
        )
    _write_note(flags, f"{n_lines:,} lines answered")
    if n_errors:
        click.echo(f"mx-align: {n_errors:,} lines were no pairs; their answers say why", err=True)
    return 2 if n_errors else 0


def _align_on_cluster(flags: AlignFlags, load: dict[str, Any]) -> CorpusSummary:
    """Align on a Ray cluster, into a folder."""
    from ..bundle.installed import find_bundle
    from ..cluster.ray import align_on_cluster

    bundle = find_bundle(flags.model, load["langs"], flag="--langs", ways=_WAYS)
    if flags.model and not flags.train_on_input:
        _note_languages(flags, bundle, load["langs"])
    load = {**load, "model": bundle.path}

    return align_on_cluster(
        str(flags.src),
        flags.tgt,
        load,
        CorpusOptions(**{f.name: getattr(flags, f.name) for f in fields(CorpusOptions)}),
        _progress_printer(flags),
        address=flags.ray,
        actors=flags.actors,
        cores=flags.threads or 1,
        columns=flags.columns,
        on_note=partial(_write_note, flags),
    )


# ---- a model of the text ----


def _make_training_request(flags: AlignFlags) -> TrainingRequest | None:
    """Return what is to be trained, if anything is."""
    if not flags.train_on_input:
        for name in ("budget", "start", "keep_model", "train_flags"):
            if getattr(flags, name) is not None:
                raise MxError(f"{flag_name(name)} is for --train-on-input only")
        return None
    if flags.model:
        raise MxError("--train-on-input excludes -m; --start begins the training with a model")
    if flags.token_kind == "raw":
        raise MxError("--train-on-input excludes --tokenize: it learns from the words of SRC")
    if flags.errors != "strict":
        raise MxError("--train-on-input learns from UTF-8 only: leave out what is not, `iconv -c`")
    if flags.src is None or flags.tgt is None:
        raise MxError("--train-on-input needs SRC and TGT, two files")
    from ..bundle.manifest import parse_languages
    from ..train_on_input import TrainingRequest

    if flags.langs is not None:
        parse_languages(flags.langs)
    try:
        shlex.split(flags.train_flags or "")
    except ValueError as error:
        raise MxError(f"--train-flags {flags.train_flags!r}: {error}") from None
    return TrainingRequest(**{f.name: getattr(flags, f.name) for f in fields(TrainingRequest)})


def _train_first(flags: AlignFlags, request: TrainingRequest) -> AlignFlags:
    """Return flags with a model made of the text."""
    from ..train_on_input import find_statistical_links, find_trained_model

    say = partial(_write_note, flags)
    links = find_statistical_links(request, say)
    return replace(flags, model=str(find_trained_model(request, say, links)), langs=None)


# ---- mistakes ----


def _find_mode(flags: AlignFlags) -> str:
    """Return how directions are joined, or which one is taken."""
    given = [name for name in ("forward", "backward") if getattr(flags, name)]
    joined = ["symmetrize"] if flags.symmetrize != "soft" else []
    if len(given + joined) > 1:
        raise click.UsageError("--{} and --{} exclude each other".format(*(given + joined)))
    return given[0] if given else flags.symmetrize


def _check_average(flags: AlignFlags, mode: str) -> None:
    """Refuse files that cannot be averaged with; their lines are checked when they are read."""
    names = flags.average
    if names and mode != "soft":
        raise MxError(f"--average is for soft links only; leave it or {mode} out")
    if names and flags.ray is not None:
        raise MxError("--average is not for --ray; give each machine a --shard instead")
    for name in names:
        if not os.path.exists(name) or os.path.isdir(name):
            raise MxError(f"--average {name}: there is no such file")
    if len({os.path.realpath(name) for name in names}) < len(names):
        raise MxError(f"--average: a file is given twice: {', '.join(names)}")


def _check_cluster_flags(flags: AlignFlags) -> None:
    """Flags that make no sense with --ray are errors, not ignored."""
    if flags.output in (None, "-"):
        raise MxError("--ray needs -o FOLDER for the shards; `mx-merge FOLDER -o OUT` joins them")
    for name in ("scores", "sentence_scores", "write_tokenized", "report", "html"):
        if getattr(flags, name) is not None:
            raise MxError(
                f"{flag_name(name)} is not for --ray; --format jsonl or parquet has scores"
            )
    if flags.shard != (1, 1):
        raise MxError("--shard is for arrays of single machines; --ray divides the work itself")
    if flags.method in ("statistics", "both"):
        raise MxError(f"--method {flags.method} is not for --ray; give each machine a --shard")
    if flags.devices is not None:
        raise MxError("--devices is not for --ray, which gives each aligner a GPU of its own")


def _check_json_flags(flags: AlignFlags) -> None:
    """Refuse what answers to JSON lines cannot have: each line stands for itself."""
    if flags.format != "jsonl":
        raise MxError("--input-format jsonl is answered in JSON: add --format jsonl")
    if flags.tgt is not None:
        raise MxError("--input-format jsonl has both sides in one file: leave TGT out")
    if flags.output not in (None, "-"):
        raise MxError("--input-format jsonl answers on stdout: write `> OUT` instead of -o OUT")
    src = str(flags.src)
    if src != "-" and not os.path.isfile(src):
        raise MxError(f"there is no file {src}; give one of JSON lines, or - for stdin")
    if src.endswith((".gz", ".zst")):
        raise MxError(f"--input-format jsonl reads plain text: `zcat -f {src} | mx-align - ...`")
    defaults = AlignFlags()
    names = (
        "average", "method", "scores", "sentence_scores", "write_tokenized", "report", "html",
        "shard", "ray",
        "separator", "spm_src", "spm_tgt", "train_on_input", "chunk_pairs", "signature", "errors",
    )  # fmt: skip
    for name in names:
        if getattr(flags, name) != getattr(defaults, name):
            raise MxError(f"{flag_name(name)} is not for --input-format jsonl; leave it out")


# ---- messages ----


def _write_note(flags: AlignFlags, message: str) -> None:
    if not flags.quiet:
        click.echo(f"mx-align: {clean_text(message)}", err=True)


def _note_languages(flags: AlignFlags, bundle: Bundle, langs: str | None) -> None:
    """Warn of a given model for other languages; if none are given, say which sides it takes."""
    if "und" in bundle.languages:
        return
    if langs is None:
        src, tgt = (side.split("+") for side in bundle.languages)
        _write_note(
            flags,
            f"reading the source as {_name_side(src)} and the target as {_name_side(tgt)}; "
            f"--langs {tgt[0]}-{src[0]} turns the model round",
        )
    elif not bundle.language_order(langs):
        pairs = " and ".join(bundle.told_pairs)
        said = f"{flags.model} is a model for {pairs}, not for {langs}"
        click.echo(f"mx-align: warning: {said}", err=True)


def _name_side(languages: list[str]) -> str:
    if len(languages) <= _FEW_LANGUAGES:
        return " or ".join(languages)
    return f"one of {len(languages)} languages (--list-models)"


def _progress_printer(flags: AlignFlags) -> Callable[[Counts, int], None]:
    """Return what shows pairs and speed, over and over in one line, if somebody watches."""
    start, watched = time.monotonic(), sys.stderr.isatty() and not flags.quiet

    def print_progress(total: Counts, resumed: int) -> None:
        if watched:
            rate = (total.pairs - resumed) / max(time.monotonic() - start, 1e-9)
            click.echo(f"\r{total.pairs:,} pairs, {rate:,.0f} pairs/s ", err=True, nl=False)

    return print_progress


def _note_summary(flags: AlignFlags, summary: CorpusSummary) -> None:
    total, resumed = summary.total, summary.resumed
    if sys.stderr.isatty() and not flags.quiet:
        click.echo("\r", err=True, nl=False)
    again = f" ({resumed:,} of them by an earlier run)" if resumed else ""
    _write_note(
        flags,
        f"{total.pairs:,} pairs{again} in {summary.seconds:.1f} s, "
        f"{summary.pairs_per_second:,.0f} pairs/s; "
        f"{total.empty:,} with an empty side, {total.windowed:,} in windows, "
        f"{total.skipped:,} too long; {summary.links_per_word:.3f} links per word",
    )


main = FlagCommand(
    "mx-align",
    AlignFlags,
    run_align,
    help=HELP,
    titles=TITLES,
    rewrite=give_ray_a_value,
    renamed={"--precision": "--optimize-for precision", "--recall": "--optimize-for recall"},
    interrupted=lambda flags: (
        "interrupted; the same command goes on from there" if flags.output else "interrupted"
    ),
    exit_at_once=True,
)

if __name__ == "__main__":
    main(prog_name="mx-align")
