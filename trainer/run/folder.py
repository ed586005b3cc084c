"""Begins, resumes, restarts and locks run folders; decides which changes a resumed run allows.

Does not read text or weights: `training_data.py` and `checkpoint.py` do.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ...engine.bundle.manifest import parse_languages
from ...engine.errors import MxError
from ...engine.storage import hash_file, hold_lock, replace_file, sweep_leftovers
from ...engine.version import __version__
from ..config import (
    ModelConfig,
    RunConfig,
    TrainConfig,
    flat_settings,
    format_config,
    read_config,
    read_json_object,
    resolve_config,
)
from ..data.vocabulary import load_tokenizers
from ..teachers.teachers import Report, check_teachers
from .checkpoint import START
from .initial_weights import InitialModel, check_fits, load_start, start_settings
from .texts import Texts, copy_streams, is_copy, is_read_once, list_files, read_texts, resolve_paths
from .training_data import choose_teachers, prepare_data

# A resumed run may change these: their fields say that they do not decide what is learned.
CHANGEABLE = {
    f.name
    for part in (ModelConfig, TrainConfig, Texts)
    for f in fields(part)
    if "flag" in f.metadata and not f.metadata["flag"].changes_output
}
# What a vocabulary depends on besides the bytes of the text.
_VOCAB = {
    "src", "tgt", "vocab", "vocab_size", "vocab_type", "lowercase", "fold_accents", "joint_vocab",
    "seed", "start",
}  # fmt: skip
# By which the files of a run are told from those of other programs.
_KEYS = {"command.json": {"version", "texts"}, "config.json": {"model", "train"}}
_OURS = (
    "command.json", "config.json", "src.spm", "tgt.spm", "text", "cache", "checkpoints",
    "model.safetensors", START, "log.jsonl", "tensorboard",
)  # fmt: skip

Files = dict[str, dict[str, Any]]  # path -> size, digest


@dataclass(frozen=True)
class RunCommand:
    """What the user asked for. Without `texts` the run goes on with those it was started on."""

    run: Path
    texts: Texts | None
    preset: str | None  # None: compact, or the one for the model started from
    overrides: tuple[dict[str, Any], ...] = ()  # of the settings; later wins
    restart: bool = False


@contextlib.contextmanager
def hold_run(run: Path) -> Iterator[None]:
    """Keep others from training in the folder, which is made if there is none."""
    try:
        run.mkdir(parents=True, exist_ok=True)
        (run / ".lock").touch()
    except OSError as error:
        raise MxError(f"cannot use {run} as run folder: {error.strerror}") from None
    busy = f"{run} is in use by {{holder}}; wait for it, stop it, or choose another folder"
    with hold_lock(run / ".lock", busy):
        sweep_leftovers(run)  # a run that was killed at its very beginning has nothing else
        yield


def prepare_run(command: RunCommand, report: Report) -> None:
    """Leave a folder that `load_run` and `load_data` can read; the caller has locked it."""
    run = command.run
    trained = not command.restart and any((run / "checkpoints").glob("step-*"))
    asked, texts, start = resolve_command(command, trained)  # before anything is deleted
    if command.restart and command.texts is not None:
        check_restart(command.texts, run.resolve())
        # Before the old run is deleted; what comes through a pipe cannot be looked at so early.
        names = [name for name in choose_teachers(texts, asked) if not is_copy(name, run)]
        check_teachers(names, texts.src, texts.tgt)
        delete_run(run)
    if asked.train.select == "aer" and not texts.gold:
        raise MxError("to select by AER a gold set is needed: --gold, --gold-src and --gold-tgt")
    if not (run / "command.json").exists():
        write_command(run, texts, {})  # first of all: from here on the folder is known as a run's
    if command.texts is not None and not trained:
        copy_streams(command.texts, run)
    files, replaced = examine_files(texts, run)
    changes = changed_settings(run, asked, texts)
    if trained:
        refuse_changes(run, changes, replaced)
        for name, (old, new) in changes.items():
            report(f"{name} is {new} from now on; it was {old}")
    elif replaced or set(changes) & _VOCAB:  # nothing was trained: the vocabulary may change
        for name in ("src.spm", "tgt.spm"):
            (run / name).unlink(missing_ok=True)
    delete_leftovers(run)
    if start:
        report(f"starting with the weights and the vocabulary of {start.name}")
        start.write_to(run)
    elif not trained:
        (run / START).unlink(missing_ok=True)
    write_command(run, texts, files)
    # Twice: a process that is killed while it tokenises leaves the settings of what it began.
    replace_file(run / "config.json", format_config(asked).encode())
    prepare_data(texts, asked, run, report)
    src, tgt = (tokenizer.vocab_size for tokenizer in load_tokenizers(run, asked))
    made = replace(asked, model=replace(asked.model, src_vocab=src, tgt_vocab=tgt))
    replace_file(run / "config.json", format_config(made).encode())


def resolve_command(
    command: RunCommand, trained: bool
) -> tuple[RunConfig, Texts, InitialModel | None]:
    """Return the settings and texts that are meant, and the model that a new run begins with."""
    run, overrides = command.run, command.overrides
    if command.texts is not None:
        if not is_run_folder(run) and any(path.name != ".lock" for path in run.iterdir()):
            if command.restart:
                raise MxError(
                    f"--restart: {run} does not look like a run folder; delete it yourself"
                )
            raise MxError(f"{run} has files but is no run folder; choose another one")
        texts = resolve_paths(command.texts, run)
    elif all((run / name).exists() for name in ("config.json", "command.json")):
        texts = read_texts(run)
    else:
        raise MxError(
            f"{run} is no run folder to resume; start it with `mx-train SRC TGT -o {run}`"
        )
    if texts.langs:
        parse_languages(texts.langs)  # raises if they are none
    start = load_start(texts.start, texts.langs) if texts.start and not trained else None
    if command.texts is None:
        saved = flat_settings(read_config(run / "config.json"))
        config = resolve_config("paper", saved, *overrides)
    elif texts.start:
        # A trained run has the shape of its start, which may be gone by now.
        old = start.config if start else load_started_config(run, texts.start)
        config = start_settings(texts.start, old, command.preset, *overrides)
    else:
        config = resolve_config(command.preset or "compact", *overrides)
    if start:
        check_fits(start, config)
    return config, texts, start


def load_started_config(run: Path, start: str) -> RunConfig:
    """Return the settings of a run that was started from that model; refuse any other run."""
    config, texts = load_run(run)
    if texts.start != start:
        refuse_changes(run, {"start": (texts.start, start)}, [])
    return config


def check_restart(texts: Texts, run: Path) -> None:
    """Raise an error if the new run needs something that a restart would delete."""
    named = [path for path in list_files(texts).values() if not is_read_once(path)]
    for name in (*named, *([texts.start] if texts.start else [])):
        path = Path(name).resolve()
        if path == run or any(path.is_relative_to(run / ours) for ours in _OURS):
            raise MxError(
                f"--restart would delete {name}, which the new run needs; use another folder"
            )


def is_run_folder(run: Path) -> bool:
    """Tell whether a run was begun in the folder; other programs have a `config.json` too."""
    for name, keys in _KEYS.items():
        with contextlib.suppress(MxError):
            # Older runs noted sizes of files only.
            if read_json_object(run / name).keys() - {"files", "sizes"} == keys:
                return True
    return False


def write_command(run: Path, texts: Texts, files: Files) -> None:
    """Write `command.json`: what the run was started on."""
    record = {"version": __version__, "texts": asdict(texts), "files": files}
    replace_file(run / "command.json", json.dumps(record, indent=2).encode() + b"\n")


def load_run(run: Path) -> tuple[RunConfig, Texts]:
    """Read settings and texts of a run folder."""
    return read_config(run / "config.json"), read_texts(run)


# ---- what has changed ----


def examine_files(texts: Texts, run: Path) -> tuple[Files, list[str]]:
    """Return the texts as they are now, and which do not hold what they held at the last start.

    All of each is read: size and time may be those of another text.
    """
    record = read_json_object(run / "command.json")
    if "sizes" in record:  # all that older runs noted
        record["files"] = {file: {"size": size} for file, size in record["sizes"].items()}
    files: Files = {}
    replaced = []
    for file in texts.list_read():
        old = record["files"].get(file, {})
        try:
            size = os.stat(file).st_size
            digest = hash_file(file, hashlib.blake2b(digest_size=16)).hexdigest()
        except OSError as error:
            raise MxError(f"cannot read {file}: {error.strerror}") from None
        files[file] = {"size": size, "digest": digest}
        if old.get("size", size) != size or old.get("digest", digest) != digest:
            replaced.append(file)
    return files, replaced


def changed_settings(run: Path, asked: RunConfig, texts: Texts) -> dict[str, tuple[Any, Any]]:
    """Return what is asked for now and was not at first, as {name: (old, new)}."""
    old: dict[str, Any] = {}
    if (run / "config.json").exists():
        old |= flat_settings(read_config(run / "config.json"))
    old |= asdict(read_texts(run))
    new = flat_settings(asked) | asdict(texts)
    ignored = {"src_vocab", "tgt_vocab"}  # not known before there is a vocabulary
    return {
        name: (old[name], new[name])
        for name in new
        if name in old and name not in ignored and old[name] != new[name]
    }


def refuse_changes(run: Path, changes: dict[str, tuple[Any, Any]], replaced: list[str]) -> None:
    """Raise an error if a trained run would go on with something it may not change."""
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


def delete_run(run: Path) -> None:
    """Delete the run, and nothing else that may be in its folder."""
    for path in (run / name for name in _OURS):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def delete_leftovers(run: Path) -> None:
    """Delete what killed processes left half written."""
    for folder in (run, run / "cache", run / "checkpoints", run / "text", run / "cache" / "links"):
        sweep_leftovers(folder)
