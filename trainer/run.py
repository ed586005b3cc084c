"""The life of a run folder: begun, resumed, restarted, held by one process at a time.

Knows which settings a resumed run may change. Its weights are the matter of `checkpoint.py`, its
text that of `corpus.py`.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mx.engine import __version__
from mx.engine.errors import MxError
from mx.engine.files import atomic_write
from mx.trainer.config import RunConfig, from_json, read_object, resolve, to_json
from mx.trainer.corpus import Texts, prepare, settled, spool, tokenizers

# A resumed run may change these: they decide how long, how often and how fast, not what is learned.
CHANGEABLE = {
    "steps", "eval_every", "save_every", "log_every", "keep", "average", "patience", "micro_tokens",
    "compile", "precision", "threshold", "select", "gold_src", "gold_tgt", "gold",
}  # fmt: skip
# What a vocabulary depends on besides the bytes of the text.
_VOCAB = {"src", "tgt", "vocab", "vocab_size", "vocab_type", "lowercase", "joint_vocab", "seed"}
_OURS = (
    "command.json", "config.json", "src.spm", "tgt.spm", "text", "cache", "checkpoints",
    "model.safetensors", "log.jsonl", "tensorboard",
)  # fmt: skip

Report = Callable[[str], None]


@dataclass(frozen=True)
class Command:
    """What the user asked for. Without `texts` the run goes on with those it was started on."""

    run: Path
    texts: Texts | None
    preset: str
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
    if command.restart:
        clear(run)
    trained = any((run / "checkpoints").glob("step-*"))
    asked, texts = wanted(command)
    if asked.train.select == "aer" and not texts.gold:
        raise MxError("to select by AER a gold set is needed: --gold, --gold-src and --gold-tgt")
    if not begun(run):
        remember(run, texts, {})  # first of all: from here on the folder is known as a run's
    if command.texts is not None and not trained:
        spool(command.texts, run)
    sizes = {file: size for file, size, _ in texts.fingerprint()["files"]}
    changes = differences(run, asked, texts, sizes)
    if trained:
        refuse(run, changes)
    elif set(changes) & (_VOCAB | set(sizes)):
        for name in ("src.spm", "tgt.spm"):
            (run / name).unlink(missing_ok=True)
    for name, (old, new) in changes.items():
        if trained:
            report(f"{name} is {new} from now on; it was {old}")
    sweep(run)
    remember(run, texts, sizes)
    write(run / "config.json", to_json(asked))
    prepare(texts, asked, run, report)
    write(run / "config.json", to_json(with_sizes(asked, run)))


def begun(run: Path) -> bool:
    """Whether a run was begun in the folder; other programs have a `config.json` too."""
    parts = {"command.json": {"version", "texts", "sizes"}, "config.json": {"model", "train"}}
    for name, keys in parts.items():
        with contextlib.suppress(MxError):
            if set(read_object(run / name)) == keys:
                return True
    return False


def remember(run: Path, texts: Texts, sizes: dict[str, int]) -> None:
    record = {"version": __version__, "texts": asdict(texts), "sizes": sizes}
    write(run / "command.json", json.dumps(record, indent=2) + "\n")


def opened(run: Path) -> tuple[RunConfig, Texts]:
    """What `settle` has written."""
    return from_json(run / "config.json"), Texts(**read_object(run / "command.json")["texts"])


def wanted(command: Command) -> tuple[RunConfig, Texts]:
    """The settings and texts that the command means."""
    run = command.run
    if command.texts is not None:
        foreign = not begun(run) and any(path.name != ".lock" for path in run.iterdir())
        if foreign and not command.restart:  # which has looked at the folder already
            raise MxError(f"{run} has files but is no run folder; choose another one")
        return resolve(command.preset, *command.overrides), settled(command.texts, run)
    if not all((run / name).exists() for name in ("config.json", "command.json")):
        raise MxError(
            f"{run} is no run folder to resume; start it with `mx-train SRC TGT -o {run}`"
        )
    config, texts = opened(run)
    saved = {**asdict(config.model), **asdict(config.train)}
    return resolve("paper", saved, *command.overrides), texts


def differences(
    run: Path, asked: RunConfig, texts: Texts, sizes: dict[str, int]
) -> dict[str, tuple[Any, Any]]:
    """What is asked for now and was not at first, as {name: (old, new)}."""
    old: dict[str, Any] = {}
    if (run / "config.json").exists():
        saved = from_json(run / "config.json")
        old |= asdict(saved.model) | asdict(saved.train)
    if (run / "command.json").exists():
        record = read_object(run / "command.json")
        old |= record["texts"] | record["sizes"]
    new = asdict(asked.model) | asdict(asked.train) | asdict(texts) | sizes
    ignored = {"src_vocab", "tgt_vocab"}  # not known before there is a vocabulary
    return {
        name: (old[name], new[name])
        for name in new
        if name in old and name not in ignored and old[name] != new[name]
    }


def refuse(run: Path, changes: dict[str, tuple[Any, Any]]) -> None:
    """An error if a trained run would go on with something it may not change."""
    fixed = {name: pair for name, pair in changes.items() if name not in CHANGEABLE}
    if not fixed:
        return
    listed = ", ".join(f"{name} {old} (now {new})" for name, (old, new) in fixed.items())
    raise MxError(
        f"{run} was started with {listed}; repeat that to go on, or choose another folder, "
        "or begin anew with --restart"
    )


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
