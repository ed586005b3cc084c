"""A model for the text at hand, made on the spot: `mx-align --train-on-input`.
Runs mx-train, mx-export and mx-seed as programs: the engine knows nothing of training."""

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

from ..aligner import installed_models
from ..bundle.bundle import MANIFEST, Bundle
from ..errors import BundleError, MxError
from ..text.files import read_lines

PRESET = "student"  # learns and aligns fastest
# The budget ends the run; this many steps would take a CPU days.
_STEPS = "1000000"
BUDGET = 30 * 60
# Pairs from which on statistics know more than a model that has learned from another text before;
# with fewer, a model of this text alone knows much less than they do (docs/align.md).
_MANY = 10_000
# Pairs below which few words are common enough to be learned as a whole, and the pieces for them.
_FEW, _PIECES = 50_000, "4000"
# With these flags mx-train finds its teacher's links itself.
_TAUGHT = re.compile(r"--(teacher|preset|warm-start|config|fold-accents|valid-src)\b")
# With these the size of the vocabulary is theirs.
_SIZED = re.compile(r"--(preset|config|start)\b")
_NEEDED = ("torch", "safetensors", "onnx")
_BUDGET = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Order:
    """What model is wanted: the text, its languages if known, the time to train in seconds,
    where to keep the model (None: in the user's cache), further flags of mx-train, and the model
    to start from, if any: the name of an installed one, or the path of a bundle or run."""

    src: str
    tgt: str
    langs: str | None = None
    budget: int | None = None  # BUDGET; a model that has had less is used all the same
    keep: str | None = None
    flags: str = ""
    threads: int | None = None
    quiet: bool = False
    start: str | None = None


def seconds(text: str) -> int:
    """Of a time like 30m, 2h, 1h30m, 90s."""
    match = _BUDGET.fullmatch(text)
    hours, minutes, rest = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    total = 3600 * hours + 60 * minutes + rest
    if not total:
        raise MxError(f"--budget must be a time like 30m, 2h or 1h30m, not {text!r}")
    return total


def model_for(order: Order, say: Say, links: Path | None = None) -> Path:
    """The bundle that was, or is now, trained on this text; goes on with a run that was killed.
    It learns from the `links` of the statistical aligner, if they are there already."""
    order, digest, kept = _placed(order)
    had = _trained(kept, digest)
    if had is not None and (had >= (order.budget or 0) or "--minutes" in order.flags):
        more = ""
        if had < math.inf and "--minutes" not in order.flags:
            more = f" for {_shown(int(had))}; a longer --budget trains it anew"
        say(f"using {kept}, which was trained on this text{more}")
        return kept
    _make_room(kept)
    run = kept.with_name(f"{kept.name}.run")
    going = "going on with" if run.exists() else "training"
    time = _shown(order.budget or BUDGET)
    say(f"{going} a model for this text, {time} once all is read; then it is kept in {kept}")
    try:
        _program("mx-train", _training(order, run, links))
        _program("mx-export", _exporting(order, run, kept, digest))
    except KeyboardInterrupt:
        say("the training is saved; the same command goes on with it")
        raise
    shutil.rmtree(run, ignore_errors=True)
    say(f"kept the model in {kept}; -m {shlex.quote(str(kept))} uses it for other text")
    return kept


def links_for(order: Order, say: Say) -> Path:
    """Links that the statistical aligner finds in the text, with scores, to teach the model and to
    average its own with; kept beside it, under a name that tells the text."""
    _, digest, kept = _placed(order)
    _trained(kept, digest)  # nothing is computed if the place is taken
    text = hashlib.blake2b(digest_size=8)
    for path in (order.src, order.tgt):
        text.update(b"\0")
        _add(text, Path(path))
    links = kept.with_name(f"{kept.name}.{text.hexdigest()}.links.zst")
    if not links.exists():
        _make_room(kept)
        say("finding links by statistics")
        line = [
            "mx_align.engine.commands.seed",
            order.src,
            order.tgt,
            "--lowercase",
            "-o",
            os.devnull,
        ]
        line += ["--scores", str(links)] + (["--quiet"] if order.quiet else [])
        _program("mx-seed", line)
    return links


def weight_of_statistics(order: Order, links: Path) -> int:
    """How often the statistical `links` count in the average with the model, which counts once. A
    small text says little to both: less to a new model, more to one that has learned before."""
    if _has(links, _MANY):
        return 1
    return 0 if order.start else 2


def _has(links: Path, pairs: int) -> bool:
    """Whether the text of these links has so many pairs."""
    return sum(1 for _ in islice(read_lines(links), pairs)) == pairs


def _placed(order: Order) -> tuple[Order, str, Path]:
    """The order with the path of its start, what tells its model apart, where that is kept."""
    if order.start:
        order = replace(order, start=str(_start(order.start, order.langs)))
    digest = _digest(order)
    return order, digest, Path(order.keep) if order.keep else _cache() / f"{digest}.mx"


def _make_room(kept: Path) -> None:
    """Everything that training needs, as far as it can be known before."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MxError(
            f"--train-on-input needs {', '.join(missing)}, which the base install leaves out: "
            'pip install "mx-align[train,export]"'
        )
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MxError(f"cannot keep a model in {kept.parent}: {error.strerror}") from None


def _start(name: str, langs: str | None) -> Path:
    """Where the model to start from is; it must not have the languages the other way round."""
    models = installed_models()
    path = models.get(name, Path(name))
    if not path.exists():
        bundles = {path: Bundle.load(path) for path in models.values()}
        fitting = [path for path, bundle in bundles.items() if bundle.order(name)]
        if not fitting:
            shown = ", ".join(pair for bundle in bundles.values() for pair in bundle.pairs)
            raise MxError(
                f"--start {name}: there is no such bundle or run folder, and no installed model of "
                f"that name; installed: {shown or 'none'}"
            )
        path, langs = fitting[0], langs or name
    if langs and not _is_run(path):
        bundle = Bundle.load(path)
        if bundle.order(langs) < 0:
            raise MxError(
                f"--start {name} is a model for {' and '.join(bundle.pairs)}, not for {langs}: "
                "change SRC and TGT over, and the languages with them; --reverse then still gives "
                f"the links in the order of {langs}"
            )
    return path.resolve()


def _is_run(path: Path) -> bool:
    return path.is_dir() and not (path / MANIFEST).exists()


def _digest(order: Order) -> str:
    """What tells texts apart: all bytes of both files, and how to train on them."""
    found = hashlib.blake2b(order.flags.encode(), digest_size=8)
    if order.start:
        found.update(f"\0start {_weights(Path(order.start))}".encode())
    for path in (order.src, order.tgt):
        if path != "-" and not os.path.exists(path):
            raise MxError(f"{path} does not exist; check the path")
        if path == "-" or not Path(path).is_file():
            raise MxError(f"--train-on-input reads the text several times; {path} is not a file")
        found.update(b"\0")
        _add(found, Path(path))
    return found.hexdigest()


def _weights(model: Path) -> str:
    """What tells models apart, wherever they lie."""
    if not _is_run(model):
        return Bundle.load(model).digest
    found = hashlib.blake2b(digest_size=16)
    for name in ("config.json", "model.safetensors"):
        if not (model / name).is_file():
            raise MxError(f"--start {model} is neither a bundle nor a trained run: no {name}")
        _add(found, model / name)
    return found.hexdigest()


def _add(digest: hashlib.blake2b, path: Path) -> None:
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)


def _trained(path: Path, digest: str) -> float | None:
    """How many seconds the model of this text was to be trained, if it is there; anything else at
    its place is an error."""
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


def _training(order: Order, run: Path, links: Path | None) -> list[str]:
    # A model to start from decides the kind of network and how words are seen.
    kind = ["--start", order.start] if order.start else ["--preset", PRESET, "--lowercase"]
    line = [
        "mx_align.trainer", order.src, order.tgt, "-o", str(run), *kind,
        "--steps", _STEPS, "--minutes", f"{(order.budget or BUDGET) / 60:g}",
        # Often: a kill must not cost much of a short run.
        "--eval-every", "500", "--save-every", "100",
    ]  # fmt: skip
    line += ["--threads", str(order.threads)] if order.threads else []
    line += ["--quiet"] if order.quiet else []
    own_size = order.start or _SIZED.search(order.flags)
    if links and not own_size and not _has(links, _FEW):
        line += ["--vocab-size", _PIECES]
    if links and not _TAUGHT.search(order.flags):
        line += ["--teacher", str(links.absolute())]
    return [*line, *shlex.split(order.flags)]


def _exporting(order: Order, run: Path, kept: Path, digest: str) -> list[str]:
    line = [
        "mx_align.export.commands.export",
        str(run),
        "-o",
        str(kept),
        "--kernels",
        "none",
        "--text",
        digest,
    ]
    line += ["--force", "--name", kept.name.removesuffix(".mx")]
    line += ["--langs", order.langs] if order.langs else []
    return line + (["--quiet"] if order.quiet else [])


def _program(name: str, arguments: Sequence[str]) -> None:
    """Run one of our programs to its end, its words on stderr; it ends when we are ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=2,  # where stderr goes: ours is for links only
        preexec_fn=_die_together if sys.platform == "linux" else None,
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


def _die_together() -> None:
    """Linux sends SIGTERM to the new process when the one that started it is gone."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "mx-align" / "models"


def _shown(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"
