"""Makes a model for the text at hand, on the spot: `mx-align --train-on-input`.

Learns statistical links in this process; runs mx-train and mx-export as programs, since the engine
does not know how to train. Keeps models and links, to use them again for the same text.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from .bundle.bundle import Bundle
from .bundle.installed import find_installed, installed_models
from .bundle.manifest import MANIFEST
from .errors import BundleError, MxError
from .storage import hash_file, make_cache_folder
from .text.files import read_lines

PRESET = "student"  # learns and aligns fastest
BUDGET = 30 * 60  # seconds
# The budget ends the run; this many steps would take a CPU days.
_STEPS = "1000000"
# Pairs below which few words are common enough to be learned as a whole, and the pieces for them.
# Chosen on En-Fr test: better with 20,447 pairs, worse with 262,000 (docs/decisions.md).
_FEW_PAIRS, _FEW_PIECES = 50_000, "4000"
# With these flags mx-train finds its teacher's links itself.
_OWN_TEACHER = re.compile(r"--(teacher|preset|warm-start|config|fold-accents|valid-src)\b")
# With these the size of the vocabulary is theirs.
_OWN_VOCABULARY = re.compile(r"--(preset|config|start)\b")
_NEEDED = ("torch", "safetensors", "onnx")

Say = Callable[[str], None]


@dataclass(frozen=True)
class TrainingRequest:
    """What model is wanted, of which text; fields are the flags of mx-align."""

    src: str
    tgt: str
    langs: str | None = None
    budget: int | None = None  # seconds; None: BUDGET, or whatever a kept model has had
    keep_model: str | None = None  # None: in the user's cache
    train_flags: str | None = None  # of mx-train
    threads: int | None = None
    quiet: bool = False
    start: str | None = None  # name of an installed model, path of a bundle or run folder


def find_trained_model(request: TrainingRequest, say: Say, links: Path | None = None) -> Path:
    """Return the bundle that was, or is now, trained on this text.

    Goes on with a run that was killed. The model learns from the statistical `links`, if given.
    """
    request, digest, kept = _locate_model(request)
    # Flags of the user's may set the time, which the budget then does not tell.
    timed = "--minutes" not in (request.train_flags or "")
    had = _trained_seconds(kept, digest)
    if had is not None and (had >= (request.budget or 0) or not timed):
        more = ""
        if had < math.inf and timed:
            more = f" for {_format_seconds(int(had))}; a longer --budget trains it anew"
        say(f"using {kept}, which was trained on this text{more}")
        return kept
    _check_training(kept)
    run = kept.with_name(f"{kept.name}.run")
    going = "going on with" if run.exists() else "training"
    time = _format_seconds(request.budget or BUDGET)
    say(f"{going} a model for this text, {time} once all is read; then it is kept in {kept}")
    try:
        run_program("mx-train", _train_arguments(request, run, links))
        run_program("mx-export", _export_arguments(request, run, kept, digest))
    except KeyboardInterrupt:
        say("the training is saved; the same command goes on with it")
        raise
    shutil.rmtree(run, ignore_errors=True)
    say(f"kept the model in {kept}; -m {shlex.quote(str(kept))} uses it for other text")
    return kept


def find_statistical_links(request: TrainingRequest, say: Say) -> Path:
    """Return scored links that the statistical aligner found, or finds now, in the text.

    They teach the model. Kept beside it, under a name that tells the
    text: those of another text are never taken.
    """
    _, digest, kept = _locate_model(request)
    _trained_seconds(kept, digest)  # nothing is computed if the place is taken
    text = hashlib.blake2b(digest_size=8)
    for path in (request.src, request.tgt):
        text.update(b"\0")
        hash_file(path, text)
    links = kept.with_name(f"{kept.name}.{text.hexdigest()}.links.zst")
    if not links.exists():
        _check_training(kept)
        say("finding links by statistics")
        report = say if sys.stderr.isatty() else (lambda message: None)
        learn_links(request.src, request.tgt, links, report)
    return links


def learn_links(src: str, tgt: str, scores: Path, on_progress: Say) -> None:
    """Learn statistics from two files and write the scored links of their pairs."""
    from .statistical.aligner import StatisticalAligner

    aligner = StatisticalAligner.learn_files(src, tgt, lowercase=True, on_progress=on_progress)
    aligner.align_files(src, tgt, os.devnull, scores=scores, on_progress=on_progress)


def _has_pairs(links: Path, count: int) -> bool:
    """Tell whether the text has so many pairs, reading no more lines than that takes."""
    return sum(1 for _ in islice(read_lines(links), count)) == count


# ---- what is kept, and where ----


def _locate_model(request: TrainingRequest) -> tuple[TrainingRequest, str, Path]:
    """Return the request with the path of its start, what tells its model apart, where it is kept.

    The digest is of all bytes of both files, and of how to train on them.
    """
    if request.start:
        start = str(_find_start(request.start, request.langs))
        request = replace(request, start=start)
    found = hashlib.blake2b((request.train_flags or "").encode(), digest_size=8)
    if request.start:
        found.update(f"\0start {_weights_digest(Path(request.start))}".encode())
    for path in (request.src, request.tgt):
        if path != "-" and not os.path.exists(path):
            raise MxError(f"{path} does not exist; check the path")
        if path == "-" or not Path(path).is_file():
            raise MxError(f"--train-on-input reads the text several times; {path} is not a file")
        found.update(b"\0")
        hash_file(path, found)
    digest = found.hexdigest()
    if request.keep_model:
        return request, digest, Path(request.keep_model)
    return request, digest, _find_cache() / f"{digest}.mx"


def _find_cache() -> Path:
    """Return the folder where models are kept unless the user says where."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "mx-align" / "models"


def _find_start(name: str, langs: str | None) -> Path:
    """Return the path of the model to start from; its languages must not be the other way round."""
    path = Path(name)
    if name in installed_models() or not path.exists():
        try:
            path, langs = find_installed(name), langs or name
        except BundleError:
            models = map(Bundle.load, installed_models().values())
            pairs = [pair for bundle in models for pair in bundle.told_pairs]
            raise MxError(
                f"--start {name}: there is no such bundle or run folder, and no installed model of "
                f"that name; installed: {', '.join(pairs) or 'none'}"
            ) from None
    if langs and not _is_run(path):
        bundle = Bundle.load(path)
        if bundle.language_order(langs) < 0:
            pairs = bundle.told_pairs
            raise MxError(
                f"--start {name} is a model for {' and '.join(pairs)}, not for {langs}: "
                "change SRC and TGT over, and the languages with them; --reverse then still gives "
                f"the links in the order of {langs}"
            )
    return path.resolve()


def _is_run(path: Path) -> bool:
    """Tell run folders from bundles, which have a manifest or are zip files."""
    return path.is_dir() and not (path / MANIFEST).exists()


def _weights_digest(model: Path) -> str:
    """Return what tells models apart, wherever they lie."""
    if not _is_run(model):
        return Bundle.load(model).digest
    found = hashlib.blake2b(digest_size=16)
    for name in ("config.json", "model.safetensors"):
        if not (model / name).is_file():
            raise MxError(f"--start {model} is neither a bundle nor a trained run: no {name}")
        hash_file(model / name, found)
    return found.hexdigest()


def _trained_seconds(path: Path, digest: str) -> float | None:
    """Return how long the kept model of this text was to be trained, None if there is none.

    Infinite if that was not limited. Anything else at its place is an error.
    """
    if not path.exists():
        return None
    try:
        training = Bundle.load(path).manifest.training
    except BundleError as error:
        raise MxError(f"cannot keep a model in {path}: {error}") from None
    if training.get("text") != digest:
        raise MxError(
            f"{path} is a model of another text, or was made in another way; use it with -m, or "
            "keep this one elsewhere"
        )
    minutes = training.get("settings", {}).get("minutes")
    return round(60 * minutes) if minutes else math.inf


def _check_training(kept: Path) -> None:
    """Fail if something that training needs is missing, as far as that can be known before."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MxError(
            f"--train-on-input needs {', '.join(missing)}, which the base install leaves out: "
            'pip install "mx-align[train,export]"'
        )
    try:
        if kept.parent == _find_cache():
            make_cache_folder(kept.parent)  # texts can be guessed from models
        kept.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MxError(f"cannot keep a model in {kept.parent}: {error.strerror}") from None


# ---- the programs ----


def _train_arguments(request: TrainingRequest, run: Path, links: Path | None) -> list[str]:
    """Return the command line of mx-train; the user's flags come last, so that they win."""
    flags = request.train_flags or ""
    # A model to start from decides the kind of network and how words are seen.
    kind = ["--start", request.start] if request.start else ["--preset", PRESET, "--lowercase"]
    line = ["mx_align.trainer", request.src, request.tgt, "-o", str(run), *kind]
    line += ["--steps", _STEPS, "--minutes", f"{(request.budget or BUDGET) / 60:g}"]
    # Often: a kill must not cost much of a short run.
    line += ["--eval-every", "500", "--save-every", "100"]
    line += ["--threads", str(request.threads)] if request.threads else []
    line += ["--quiet"] if request.quiet else []
    own_vocabulary = request.start or _OWN_VOCABULARY.search(flags)
    if links and not own_vocabulary and not _has_pairs(links, _FEW_PAIRS):
        line += ["--vocab-size", _FEW_PIECES]
    if links and not _OWN_TEACHER.search(flags):
        line += ["--teacher", str(links.absolute())]
    return [*line, *shlex.split(flags)]


def _export_arguments(request: TrainingRequest, run: Path, kept: Path, digest: str) -> list[str]:
    line = ["mx_align.export.commands.export", str(run), "-o", str(kept)]
    line += ["--text", digest, "--force", "--name", kept.name.removesuffix(".mx")]
    line += ["--langs", request.langs] if request.langs else []
    return line + (["--quiet"] if request.quiet else [])


def run_program(name: str, arguments: Sequence[str]) -> None:
    """Run one of our programs to its end, its words on stderr; it ends when we are ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=2,  # where stderr goes: ours is for links only
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )
    before = signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    try:
        code = process.wait()
    except KeyboardInterrupt:  # the terminal has told both
        process.wait()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    if code in (130, 143, -signal.SIGINT, -signal.SIGTERM):
        raise KeyboardInterrupt
    if code:
        # With 2 it was told a mistake, which the same command makes again.
        hint = "" if code == 2 else "; the same command goes on from there"
        raise MxError(f"{name} ended with {code}, see above{hint}")


def _end_with_parent() -> None:
    """Let Linux send SIGTERM to the new process when the one that started it is gone."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _format_seconds(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"
