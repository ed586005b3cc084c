"""Begins, resumes, restarts and locks run folders; decides which changes a resumed run allows.

Does not read text or weights: `training_data.py` and `checkpoint.py` do.
"""

import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...engine.errors import MxError
from ...engine.storage import atomic_write, hash_file, hold_lock
from ...engine.version import __version__
from ..config import (
    ModelConfig,
    RunConfig,
    TrainConfig,
    format_config,
    read_config,
    read_json_object,
    resolve_config,
)
from ..data.vocabulary import load_tokenizers
from .checkpoint import START
from .initial_weights import InitialModel, check_fits, load_start, start_settings
from .texts import Texts, copy_streams, is_copy, is_read_once, list_files, read_texts, resolve_paths
from .training_data import check_teachers, choose_teachers, prepare_data

# A resumed run may change these: their fields say that they do not decide what is learned.
CHANGEABLE = {
    f.name
    for part in (ModelConfig, TrainConfig, Texts)
    for f in dataclasses.fields(part)
    if "flag" in f.metadata and not f.metadata["flag"].changes_output
}
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
class RunCommand:
    """What the user asked for. Without `texts` the run goes on with those it was started on."""

    run: Path
    texts: Texts | None
    preset: str | None  # None: compact, or the one for the model started from
    overrides: tuple[dict[str, Any], ...] = ()  # of the settings; later wins
    restart: bool = False


@contextlib.contextmanager
def hold_run(run: Path, first: bool = True) -> Iterator[None]:
    """Keep others from training in the folder; the `first` of our processes does it for all."""
    if not first:
        yield
        return
    try:
        run.mkdir(parents=True, exist_ok=True)
        (run / ".lock").touch()
    except OSError as error:
        raise MxError(f"cannot use {run} as run folder: {error.strerror}") from None
    busy = f"{run} is in use by {{holder}}; wait for it, stop it, or choose another folder"
    with hold_lock(run / ".lock", busy):
        yield


def prepare_run(command: RunCommand, report: Report) -> None:
    """Leave a folder that `load_run` and `load_data` can read; the caller has locked it."""
    run = command.run
    trained = not command.restart and any((run / "checkpoints").glob("step-*"))
    asked, texts, start = resolve_command(command, trained)  # before anything is deleted
    if command.restart:
        check_restart(command)
        # Before the old run is deleted; what comes through a pipe cannot be looked at so early.
        check_teachers([n for n in choose_teachers(texts, asked) if not is_copy(n, run)], texts)
        delete_run(run)
    if asked.train.select == "aer" and not texts.gold:
        raise MxError("to select by AER a gold set is needed: --gold, --gold-src and --gold-tgt")
    if not is_run_folder(run):
        write_command(run, texts, {})  # first of all: from here on the folder is known as a run's
    if command.texts is not None and not trained:
        copy_streams(command.texts, run)
    known = known_files(run)
    files = examine_files(texts, known, report)
    changes, replaced = changed_settings(run, asked, texts), changed_files(known, files)
    if trained:
        refuse_changes(run, changes, replaced)
    elif replaced or set(changes) & _VOCAB:  # nothing was trained: the vocabulary may change
        for name in ("src.spm", "tgt.spm"):
            (run / name).unlink(missing_ok=True)
    for name, (old, new) in changes.items():
        if trained:
            report(f"{name} is {new} from now on; it was {old}")
    delete_leftovers(run)
    if start:
        report(f"starting with the weights and the vocabulary of {start.name}")
        start.write_to(run)
    elif not trained:
        (run / START).unlink(missing_ok=True)
    write_command(run, texts, files)
    # Twice: a process that is killed while it tokenises leaves the settings of what it began.
    write_text(run / "config.json", format_config(asked))
    prepare_data(texts, asked, run, report)
    write_text(run / "config.json", format_config(set_vocab_sizes(asked, run)))


def check_restart(command: RunCommand) -> None:
    """Raise an error if the new run needs something that a restart would delete."""
    texts, run = command.texts, command.run.resolve()
    if texts is None:
        return
    named = [path for path in list_files(texts).values() if not is_read_once(path)]
    for name in (*named, *([texts.start] if texts.start else [])):
        path = Path(name).resolve()
        if path == run or any(path.is_relative_to(run / ours) for ours in _OURS):
            raise MxError(
                f"--restart would delete {name}, which the new run needs; use another folder"
            )


def is_run_folder(run: Path) -> bool:
    """Tell whether a run was begun in the folder; other programs have a `config.json` too."""
    parts = (
        ("command.json", {"version", "texts", "files"}),
        ("command.json", {"version", "texts", "sizes"}),  # of older runs
        ("config.json", {"model", "train"}),
    )
    for name, keys in parts:
        with contextlib.suppress(MxError):
            if set(read_json_object(run / name)) == keys:
                return True
    return False


def write_command(run: Path, texts: Texts, files: Files) -> None:
    """Write `command.json`: what the run was started on."""
    record = {"version": __version__, "texts": asdict(texts), "files": files}
    write_text(run / "command.json", json.dumps(record, indent=2) + "\n")


def load_run(run: Path) -> tuple[RunConfig, Texts]:
    """Read settings and texts of a run folder."""
    return read_config(run / "config.json"), read_texts(run)


def resolve_command(
    command: RunCommand, trained: bool
) -> tuple[RunConfig, Texts, InitialModel | None]:
    """Return the settings and texts that are meant, and the model that a new run begins with."""
    texts = resolve_texts(command)
    start = load_start(texts.start, texts.langs) if texts.start and not trained else None
    if command.texts is None:
        saved = read_config(command.run / "config.json")
        settings = asdict(saved.model) | asdict(saved.train)
        config = resolve_config("paper", settings, *command.overrides)
    elif texts.start:
        # A trained run has the shape of its start, which may be gone by now.
        old = start.config if start else load_started_config(command.run, texts.start)
        config = start_settings(texts.start, old, command.preset, *command.overrides)
    else:
        config = resolve_config(command.preset or "compact", *command.overrides)
    if start:
        check_fits(start, config)
    return config, texts, start


def load_started_config(run: Path, start: str) -> RunConfig:
    """Return the settings of a run that was started from that model; refuse any other run."""
    config, texts = load_run(run)
    if texts.start != start:
        refuse_changes(run, {"start": (texts.start, start)}, [])
    return config


def resolve_texts(command: RunCommand) -> Texts:
    """Return the texts of the command, or those that the run was started on."""
    run = command.run
    if command.texts is not None:
        foreign = not is_run_folder(run) and any(path.name != ".lock" for path in run.iterdir())
        if foreign and not command.restart:  # which looks at the folder by itself
            raise MxError(f"{run} has files but is no run folder; choose another one")
        return resolve_paths(command.texts, run)
    if not all((run / name).exists() for name in ("config.json", "command.json")):
        raise MxError(
            f"{run} is no run folder to resume; start it with `mx-train SRC TGT -o {run}`"
        )
    return load_run(run)[1]


# ---- what has changed ----


def known_files(run: Path) -> Files:
    """Return the texts as they were at the last start; of older runs, their sizes alone."""
    if not (run / "command.json").exists():
        return {}
    record = read_json_object(run / "command.json")
    if "sizes" in record:
        return {file: {"size": size} for file, size in record["sizes"].items()}
    return record["files"]


def examine_files(texts: Texts, known: Files, report: Report) -> Files:
    """Return the texts as they are now; one of the known size and time is not read again."""
    found: Files = {}
    for file, size, time in texts.fingerprint()["files"]:
        old = known.get(file, {})
        if (old.get("size"), old.get("mtime_ns")) == (size, time):
            found[file] = old
        else:
            if "digest" in old:
                report(f"{file} was written to since; reading whether its text is the same")
            found[file] = {"size": size, "mtime_ns": time, "digest": hash_text(file)}
    return found


def hash_text(file: str) -> str:
    """Return a digest of all bytes of a text."""
    try:
        return hash_file(file, hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError as error:
        raise MxError(f"cannot read {file}: {error.strerror}") from None


def changed_files(known: Files, files: Files) -> list[str]:
    """Return the texts that do not hold what they held, as far as that was noted."""

    def same(old: dict[str, Any], now: dict[str, Any]) -> bool:
        return all(old[what] == now[what] for what in ("size", "digest") if what in old)

    return [file for file, now in files.items() if not same(known.get(file, {}), now)]


def changed_settings(run: Path, asked: RunConfig, texts: Texts) -> dict[str, tuple[Any, Any]]:
    """Return what is asked for now and was not at first, as {name: (old, new)}."""
    old: dict[str, Any] = {}
    if (run / "config.json").exists():
        saved = read_config(run / "config.json")
        old |= asdict(saved.model) | asdict(saved.train)
    if (run / "command.json").exists():
        old |= asdict(read_texts(run))
    new = asdict(asked.model) | asdict(asked.train) | asdict(texts)
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
    if not is_run_folder(run):
        if any(path.name != ".lock" for path in run.iterdir()):
            raise MxError(f"--restart: {run} does not look like a run folder; delete it yourself")
        return
    for name in _OURS:
        path = run / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def delete_leftovers(run: Path) -> None:
    """Delete what killed processes left half written."""
    for folder in (run, run / "cache", run / "checkpoints", run / "text"):
        for path in (*folder.glob(".*.tmp"), *folder.glob(".*.old")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def set_vocab_sizes(config: RunConfig, run: Path) -> RunConfig:
    """Return the config with the real sizes of the vocabularies."""
    src, tgt = (tokenizer.vocab_size for tokenizer in load_tokenizers(run, config))
    model = dataclasses.replace(config.model, src_vocab=src, tgt_vocab=tgt)
    return dataclasses.replace(config, model=model)


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text, at once."""
    with atomic_write(path) as file:
        file.write(text.encode())
