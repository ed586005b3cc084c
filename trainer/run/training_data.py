"""Makes of the user's files what training reads: vocabularies, token caches, links, gold pairs.

Every step leaves its result in the run folder and is skipped when it is there and fits.
"""

import json
import shutil
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ...engine.bundle.manifest import MANIFEST
from ...engine.errors import InputError, MxError
from ...engine.storage import file_sha256, hash_files, replace_file
from ...engine.text.files import read_pairs
from ...engine.text.pieces import PieceTokenizer
from ...engine.text.words import split_words
from ..config import STATISTICAL, RunConfig
from ..data.gold import GoldPairs, read_gold_pairs
from ..data.teacher_links import TeacherLinks, write_links
from ..data.token_cache import CacheCounts, TokenCache, build_token_cache
from ..data.vocabulary import learn_vocabulary, load_tokenizers
from ..networks.weights import MODEL
from ..teachers.teachers import Report, average_teachers, check_teachers, is_link_file, open_teacher
from .checkpoint import list_checkpoints
from .texts import Texts, rename_old_teacher

LINKS_FORMAT = 4  # of the key of links; 3 told files by size and time


@dataclass(frozen=True)
class TrainingData:
    """A run's text, ready to train on."""

    train: TokenCache
    valid: TokenCache | None
    links: TeacherLinks | None
    valid_links: TeacherLinks | None
    gold: GoldPairs | None


# ---- all of it ----


def prepare_data(texts: Texts, config: RunConfig, run: Path, report: Report) -> None:
    """Build what is missing in the run folder; other processes then only `load_data`."""
    names, folder = choose_teachers(texts, config), run / "cache"
    teachers = [teacher_identity(name) for name in names]
    known = read_link_key(folder / "links")
    if known.get("teachers") != teachers:  # before anything long is begun
        check_teachers(names, texts.src, texts.tgt)
    make_vocabularies(texts, config, run, report)
    key = cache_key(texts, config, run)
    if any(TokenCache.open(folder / name, key) is None for name in ("train", "valid")):
        tokenize_texts(texts, config, run, key, report)
    key |= {"format": LINKS_FORMAT, "teachers": teachers}
    key |= {"langs": texts.langs} if texts.langs else {}
    if names and known != key:
        # Earlier formats noted sizes and times, which tell nothing about what a file holds.
        noted = known.get("format") == LINKS_FORMAT
        if noted and known["teachers"] != teachers and list_checkpoints(run):
            raise MxError(
                f"{run} was taught by {' and '.join(names)} as it was before; "
                "put that back, choose another folder, or begin anew with --restart"
            )
        write_teacher_links(names, texts, config, run, report)
        replace_file(folder / "links" / "key.json", json.dumps(key).encode())  # all is there


def load_data(texts: Texts, config: RunConfig, run: Path) -> TrainingData:
    """Open what `prepare_data` built."""
    train, valid = (TokenCache.open(run / "cache" / name) for name in ("train", "valid"))
    if train is None:
        raise MxError(f"{run}/cache has no token cache; run the command again to build it")
    links = run / "cache" / "links"
    taught = bool(choose_teachers(texts, config))
    checked = taught and valid is not None and (links / "valid").is_dir()
    return TrainingData(
        train,
        valid if valid else None,
        TeacherLinks(links / "train") if taught else None,
        TeacherLinks(links / "valid") if checked else None,
        read_gold(texts),
    )


def read_gold(texts: Texts) -> GoldPairs | None:
    """Read the gold set, if the run has one."""
    if not (texts.gold and texts.gold_src and texts.gold_tgt):
        return None
    return read_gold_pairs(texts.gold_src, texts.gold_tgt, texts.gold)


# ---- vocabularies and tokens ----


def make_vocabularies(texts: Texts, config: RunConfig, run: Path, report: Report) -> None:
    """Put `src.spm` (and `tgt.spm` unless joint) into the run folder."""
    train, joint = config.train, config.model.joint_vocab
    for side, sides in ({"src": (0, 1)} if joint else {"src": (0,), "tgt": (1,)}).items():
        out = run / f"{side}.spm"
        if out.exists():
            continue
        if texts.start:
            raise MxError(f"{out} is gone; put back the vocabulary of {texts.start}")
        if texts.vocab:
            replace_file(out, PieceTokenizer(Path(texts.vocab)).proto)
            continue
        names = " and ".join((texts.src, texts.tgt)[i] for i in sides)
        report(f"learning a vocabulary from {names}")
        learn_vocabulary(
            # In pairs, so that files of different lengths are noticed now.
            (pair[i] for pair in read_pairs(texts.src, texts.tgt) for i in sides),
            out,
            size=train.vocab_size if joint else train.vocab_size // 2,
            lowercase=train.lowercase,
            fold_accents=train.fold_accents,
            model_type=train.vocab_type,
            seed=train.seed,
        )


def cache_key(texts: Texts, config: RunConfig, run: Path) -> dict[str, Any]:
    """Return all that the token caches depend on."""
    vocab = [run / "src.spm"] + ([] if config.model.joint_vocab else [run / "tgt.spm"])
    train = config.train
    return {
        "text": [hash_files(texts.list_read()), texts.valid_last],
        "vocab": [file_sha256(file) for file in vocab],
        "lowercase": train.lowercase,
        **({"fold_accents": True} if train.fold_accents else {}),
        "max_length": train.max_length,
        "max_ratio": train.max_ratio,
    }


def tokenize_texts(
    texts: Texts, config: RunConfig, run: Path, key: dict[str, Any], report: Report
) -> None:
    """Write the token caches of the training and the validation text."""
    held: list[tuple[str, str]] = []
    pairs: Iterable[tuple[str, str]] = read_pairs(texts.src, texts.tgt)
    if texts.valid_src and texts.valid_tgt:
        held.extend(read_pairs(texts.valid_src, texts.valid_tgt))
    elif texts.valid_last:
        pairs = hold_out(pairs, texts.valid_last, held)
    report("tokenising the text")

    def report_count(counts: CacheCounts) -> None:
        if counts.read % (1 << 20) == 0:
            report(f"tokenised {counts.read:,} pairs")

    build = partial(
        build_token_cache,
        tokenizers=load_tokenizers(run, config),
        max_length=config.train.max_length,
        max_ratio=config.train.max_ratio,
        key=key,
    )
    counts = build(pairs, run / "cache" / "train", progress=report_count)
    skipped = {name: n for name, n in asdict(counts).items() if n and name not in ("read", "kept")}
    why = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in skipped.items())
    report(
        f"{counts.kept:,} of {counts.read:,} pairs to learn from"
        + (f" (left out: {why})" if why else "")
    )
    if not counts.kept:
        raise InputError(
            f"no pair of {texts.src} and {texts.tgt} can be learned from: {counts.read:,} read"
            + (f", {why}" if why else "")
        )
    build(held, run / "cache" / "valid")


def hold_out(
    pairs: Iterable[tuple[str, str]], last: int, held: list[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield all but the `last` pairs, or the last tenth of a shorter text; `held` gets those."""
    # The text may be a stream: the end is only known when it is reached, so pairs wait `last` long.
    waiting: deque[tuple[str, str]] = deque()
    n = 0
    for n, pair in enumerate(pairs, 1):  # noqa: B007 (the count is used after the loop)
        waiting.append(pair)
        if len(waiting) > last:
            yield waiting.popleft()
    while len(waiting) > n // 10:
        yield waiting.popleft()
    held.extend(waiting)


# ---- links of teachers ----


def choose_teachers(texts: Texts, config: RunConfig) -> list[str]:
    """Return who teaches: those that were named, or the statistical aligner if one is needed."""
    needed = config.train.warm_start != "none" or config.model.kind == "student"
    if texts.teacher and not needed:
        raise MxError(
            "--teacher teaches nothing with --warm-start none; "
            "give --warm-start statistical or --student"
        )
    return list(texts.teacher) or ([STATISTICAL] if needed else [])


def write_teacher_links(
    names: list[str], texts: Texts, config: RunConfig, run: Path, report: Report
) -> None:
    """Store the teachers' links of the cached pairs, of training and of validation text."""

    def read_words(src: str, tgt: str) -> Iterator[tuple[list[str], list[str]]]:
        return ((split_words(s), split_words(t)) for s, t in read_pairs(src, tgt))

    text = partial(read_words, texts.src, texts.tgt)
    teachers = [open_teacher(name, text, config, report, texts.langs) for name in names]
    train, valid = (TokenCache.open(run / "cache" / name) for name in ("train", "valid"))
    assert train is not None and valid is not None
    folder = run / "cache" / "links"
    (folder / "key.json").unlink(missing_ok=True)  # it says that the others are whole
    report("finding links to learn from")
    found = average_teachers([teacher(text()) for teacher in teachers])
    # Held-out pairs come after all others in the files, so their links come in one stream.
    held_out = bool(texts.valid_last and not texts.valid_src)
    behind = (train.counts.read + line for line in valid.lines) if held_out else ()
    links = select_lines(found, chain(train.lines, behind))
    count = write_links(folder / "train", islice(links, len(train)) if held_out else links)
    report(f"{count:,} links to learn from")
    if not count:
        raise InputError(f"{' and '.join(names)} found no link in {texts.src} and {texts.tgt}")
    if held_out:
        write_links(folder / "valid", links)
    elif texts.valid_src and texts.valid_tgt and not any(map(is_link_file, names)):
        pairs = [teacher(read_words(texts.valid_src, texts.valid_tgt)) for teacher in teachers]
        write_links(folder / "valid", select_lines(average_teachers(pairs), valid.lines))
    else:
        if texts.valid_src:
            report("a file of links has none for the validation text: no accuracy is measured")
        shutil.rmtree(folder / "valid", ignore_errors=True)
    for old in (run / "cache").glob("round-*"):  # made from other links
        shutil.rmtree(old)


def select_lines(items: Iterable[Any], lines: Iterable[int]) -> Iterator[Any]:
    """Yield the items whose number is among the ascending `lines`; reads them all."""
    numbers = iter(lines)
    line = next(numbers, None)
    for number, item in enumerate(items):
        if number == line:
            yield item
            line = next(numbers, None)


def read_link_key(folder: Path) -> dict[str, Any]:
    """Read the key of links that are all there, also of an earlier version; else nothing."""
    with suppress(OSError, ValueError):
        key = json.loads((folder / "key.json").read_text("utf-8"))
        for teacher in key.get("teachers", ()):
            teacher[0] = rename_old_teacher(teacher[0])
        return key
    return {}


def teacher_identity(name: str) -> list[Any]:
    """Return a teacher's name, and what changes when it does."""
    path = Path(name)
    if name == STATISTICAL:
        return [name]
    if not path.exists():
        raise InputError(f"the teacher {name} is gone; put it back, or begin anew with --restart")
    found = [file for file in (path / MODEL, path / MANIFEST, path) if file.is_file()]
    # What a folder without a model lacks is told when it is opened.
    return [name, file_sha256(found[0]) if found else None]
