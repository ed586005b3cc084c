"""The life of a run folder: begun, resumed, restarted, held by one process at a time.

Knows which settings a resumed run may change. Its weights are the matter of `checkpoint.py`, its
text that of `corpus.py`.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...engine.errors import MxError
from ...engine.text.files import atomic_write
from ...engine.version import __version__
from ..config import RunConfig, from_json, read_object, resolve, to_json
from ..data.corpus import (
    Texts,
    check_teachers,
    copied,
    named_files,
    once,
    prepare,
    settled,
    spool,
    teachers,
    tokenizers,
)
from .checkpoint import START
from .initial_weights import Start, check_fits, open_start, started

# A resumed run may change these: they decide how long, how often and how fast, not what is learned.
CHANGEABLE = {
    "steps", "minutes", "eval_every", "save_every", "log_every", "keep", "average", "patience",
    "micro_tokens", "compile", "precision", "threshold", "select", "gold_src", "gold_tgt", "gold",
}  # fmt: skip
# What a vocabulary depends on besides the bytes of the text.
_VOCAB = {
    "src", "tgt", "vocab", "vocab_size", "vocab_type", "lowercase", "fold_accents", "joint_vocab",
    "seed", "start",
}  # fmt: skip
_OURS = (
    "command.json", "config.json", "src.spm", "tgt.spm", "text", "cache", "checkpoints",
    "model.safetensors", START, "log.jsonl", "tensorboard",
)  # fmt: skip

Report = Callable[[str], None]
Files = dict[str, dict[str, Any]]  # path -> size, mtime_ns, digest


@dataclass(frozen=True)
class Command:
    """What the user asked for. Without `texts` the run goes on with those it was started on."""

    run: Path
    texts: Texts | None
    preset: str | None  # None: compact, or the one for the model started from
    overrides: tuple[dict[str, Any], ...] = ()  # of the settings; later wins
    restart: bool = False


@contextlib.contextmanager
def held(run: Path, first: bool = True) -> Iterator[None]:
    """Nobody else trains in the folder meanwhile; the `first` process holds it for its fellows."""
    if not first:
        yield
        return
    try:
        run.mkdir(parents=True, exist_ok=True)
        file = open(run / ".lock", "a+", encoding="utf-8")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise MxError(f"cannot use {run} as run folder: {error.strerror}") from None
    with file:
        lock(file, run)
        yield


def lock(file: Any, run: Path) -> None:
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        raise MxError(
            f"{run} is in use by {file.read().strip() or 'another process'}; "
            "wait for it, stop it, or choose another folder"
        ) from None
    except (ImportError, OSError):
        return  # systems and network disks without locks
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}")
    file.flush()


def settle(command: Command, report: Report) -> None:
    """Leave a folder that `opened` can read: config, texts, vocabularies, caches.

    The caller holds the folder.
    """
    run = command.run
    trained = not command.restart and any((run / "checkpoints").glob("step-*"))
    asked, texts, start = wanted(command, trained)  # before anything is deleted
    if command.restart:
        spare_sources(command)
        # What comes through a pipe cannot be looked at before.
        check_teachers([n for n in teachers(texts, asked) if not copied(n, run)], texts)
        clear(run)
    if asked.train.select == "aer" and not texts.gold:
        raise MxError("to select by AER a gold set is needed: --gold, --gold-src and --gold-tgt")
    if not begun(run):
        remember(run, texts, {})  # first of all: from here on the folder is known as a run's
    if command.texts is not None and not trained:
        spool(command.texts, run)
    known = known_files(run)
    files = look(texts, known, report)
    changes, replaced = differences(run, asked, texts), other_bytes(known, files)
    if trained:
        refuse(run, changes, replaced)
    elif replaced or set(changes) & _VOCAB:
        for name in ("src.spm", "tgt.spm"):
            (run / name).unlink(missing_ok=True)
    for name, (old, new) in changes.items():
        if trained:
            report(f"{name} is {new} from now on; it was {old}")
    sweep(run)
    if not trained:
        lay_start(start, run, report)
    remember(run, texts, files)
    write(run / "config.json", to_json(asked))
    prepare(texts, asked, run, report)
    write(run / "config.json", to_json(with_sizes(asked, run)))


def spare_sources(command: Command) -> None:
    """An error if something inside the folder that is to be cleared is needed for the new run."""
    texts, run = command.texts, command.run.resolve()
    if texts is None:
        return
    named = [path for path in named_files(texts).values() if not once(path)]
    for name in (*named, *([texts.start] if texts.start else [])):
        path = Path(name).resolve()
        if path == run or any(path.is_relative_to(run / ours) for ours in _OURS):
            raise MxError(
                f"--restart would delete {name}, which the new run needs; use another folder"
            )


def lay_start(start: Start | None, run: Path, report: Report) -> None:
    """Leave in the folder what the run begins with: another model, or nothing."""
    if start:
        report(f"starting with the weights and the vocabulary of {start.name}")
        start.put_into(run)
    else:
        (run / START).unlink(missing_ok=True)


def begun(run: Path) -> bool:
    """Whether a run was begun in the folder; other programs have a `config.json` too."""
    parts = (
        ("command.json", {"version", "texts", "files"}),
        ("command.json", {"version", "texts", "sizes"}),  # of older runs
        ("config.json", {"model", "train"}),
    )
    for name, keys in parts:
        with contextlib.suppress(MxError):
            if set(read_object(run / name)) == keys:
                return True
    return False


def remember(run: Path, texts: Texts, files: Files) -> None:
    record = {"version": __version__, "texts": asdict(texts), "files": files}
    write(run / "command.json", json.dumps(record, indent=2) + "\n")


def opened(run: Path) -> tuple[RunConfig, Texts]:
    """What `settle` has written."""
    return from_json(run / "config.json"), Texts(**read_object(run / "command.json")["texts"])


def wanted(command: Command, trained: bool) -> tuple[RunConfig, Texts, Start | None]:
    """The settings and texts that the command means, and the model that a new run begins with."""
    texts = wanted_texts(command)
    start = open_start(texts.start, texts.langs) if texts.start and not trained else None
    if command.texts is None:
        saved = from_json(command.run / "config.json")
        config = resolve("paper", asdict(saved.model) | asdict(saved.train), *command.overrides)
    elif texts.start:
        # A trained run has the shape of its start, which may be gone by now.
        old = start.config if start else trained_from(command.run, texts.start)
        config = started(texts.start, old, command.preset, *command.overrides)
    else:
        config = resolve(command.preset or "compact", *command.overrides)
    if start:
        check_fits(start, config)
    return config, texts, start


def trained_from(run: Path, start: str) -> RunConfig:
    """The settings of a run that was started from that model; any other run is refused."""
    config, texts = opened(run)
    if texts.start != start:
        refuse(run, {"start": (texts.start, start)}, [])
    return config


def wanted_texts(command: Command) -> Texts:
    """Those of the command, or those that the run was started on."""
    run = command.run
    if command.texts is not None:
        foreign = not begun(run) and any(path.name != ".lock" for path in run.iterdir())
        if foreign and not command.restart:  # which looks at the folder by itself
            raise MxError(f"{run} has files but is no run folder; choose another one")
        return settled(command.texts, run)
    if not all((run / name).exists() for name in ("config.json", "command.json")):
        raise MxError(
            f"{run} is no run folder to resume; start it with `mx-train SRC TGT -o {run}`"
        )
    return opened(run)[1]


# ---- what has changed ----


def known_files(run: Path) -> Files:
    """The texts as they were when the run was last started; of older runs, their sizes alone."""
    if not (run / "command.json").exists():
        return {}
    record = read_object(run / "command.json")
    if "sizes" in record:
        return {file: {"size": size} for file, size in record["sizes"].items()}
    return record["files"]


def look(texts: Texts, known: Files, report: Report) -> Files:
    """The texts as they are now. One of the known size and time is not read again."""
    found: Files = {}
    for file, size, time in texts.fingerprint()["files"]:
        old = known.get(file, {})
        if (old.get("size"), old.get("mtime_ns")) == (size, time):
            found[file] = old
        else:
            if "digest" in old:
                report(f"{file} was written to since; reading whether its text is the same")
            found[file] = {"size": size, "mtime_ns": time, "digest": digest(file)}
    return found


def digest(file: str) -> str:
    """Of all bytes; about a second for each gigabyte."""
    found = hashlib.blake2b(digest_size=16)
    try:
        with open(file, "rb") as data:
            while part := data.read(1 << 20):
                found.update(part)
    except OSError as error:
        raise MxError(f"cannot read {file}: {error.strerror}") from None
    return found.hexdigest()


def other_bytes(known: Files, files: Files) -> list[str]:
    """The texts that do not hold what they held, as far as that was noted."""

    def same(old: dict[str, Any], now: dict[str, Any]) -> bool:
        return all(old[what] == now[what] for what in ("size", "digest") if what in old)

    return [file for file, now in files.items() if not same(known.get(file, {}), now)]


def differences(run: Path, asked: RunConfig, texts: Texts) -> dict[str, tuple[Any, Any]]:
    """What is asked for now and was not at first, as {name: (old, new)}."""
    old: dict[str, Any] = {}
    if (run / "config.json").exists():
        saved = from_json(run / "config.json")
        old |= asdict(saved.model) | asdict(saved.train)
    if (run / "command.json").exists():
        old |= asdict(Texts(**read_object(run / "command.json")["texts"]))
    new = asdict(asked.model) | asdict(asked.train) | asdict(texts)
    ignored = {"src_vocab", "tgt_vocab"}  # not known before there is a vocabulary
    return {
        name: (old[name], new[name])
        for name in new
        if name in old and name not in ignored and old[name] != new[name]
    }


def refuse(run: Path, changes: dict[str, tuple[Any, Any]], replaced: list[str]) -> None:
    """An error if a trained run would go on with something it may not change."""
    fixed = [
        f"{name} {old} (now {new})"
        for name, (old, new) in changes.items()
        if name not in CHANGEABLE
    ]
    fixed += [f"another text in {file}" for file in replaced]
    if fixed:
        raise MxError(
            f"{run} was started with {', '.join(fixed)}; repeat that to go on, or choose another "
            "folder, or begin anew with --restart"
        )


# ---- files ----


def clear(run: Path) -> None:
    """Delete the run, and nothing else that may be in its folder."""
    if not begun(run):
        if any(path.name != ".lock" for path in run.iterdir()):
            raise MxError(f"--restart: {run} does not look like a run folder; delete it yourself")
        return
    for name in _OURS:
        path = run / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def sweep(run: Path) -> None:
    """Delete what killed processes left half written."""
    for folder in (run, run / "cache", run / "checkpoints", run / "text"):
        for path in (*folder.glob(".*.tmp"), *folder.glob(".*.old")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def with_sizes(config: RunConfig, run: Path) -> RunConfig:
    """The config with the real sizes of the vocabularies."""
    src, tgt = (tokenizer.vocab_size for tokenizer in tokenizers(run, config))
    model = dataclasses.replace(config.model, src_vocab=src, tgt_vocab=tgt)
    return dataclasses.replace(config, model=model)


def write(path: Path, text: str) -> None:
    with atomic_write(path) as file:
        file.write(text.encode())
