"""From the user's files to what training reads: vocabularies, token caches, links, gold pairs.

Every step leaves its result in the run folder and is skipped when it is there and fits.
"""

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.bundle.bundle import MANIFEST, language_codes
from ...engine.errors import InputError, MxError
from ...engine.links.link_files import Gold, read_links
from ...engine.text.files import atomic_write, read_lines, read_pairs
from ...engine.text.words import Tokenizer, split
from ...engine.types import ScoredLink
from ..config import RunConfig
from ..run.checkpoint import MODEL
from ..run.checkpoint import folders as checkpoints
from ..teachers.teachers import SEED, check, is_bound_to_text, mixed, open_teacher
from . import token_cache
from .batches import TeacherLinks
from .token_cache import TokenCache

Report = Callable[[str], None]


@dataclass(frozen=True)
class Texts:
    """The files a run was started on."""

    src: str
    tgt: str
    valid_src: str | None = None
    valid_tgt: str | None = None
    valid_last: int = 500
    gold_src: str | None = None
    gold_tgt: str | None = None
    gold: str | None = None
    vocab: str | None = None  # a SentencePiece model to use instead of learning one
    teacher: list[str] = field(default_factory=list)  # see `teacher.py`; else by the settings
    start: str | None = None  # a run or bundle whose weights and vocabulary are the first ones
    langs: str | None = None  # of the text, like "de-en"

    def fingerprint(self) -> dict[str, Any]:
        """What tells whether the training text is still the same."""
        files = [f for f in (self.src, self.tgt, self.valid_src, self.valid_tgt) if f]
        try:
            stats = [os.stat(f) for f in files]
        except OSError as error:
            raise InputError(f"cannot read {error.filename}: {error.strerror}") from None
        sizes = [[f, s.st_size, s.st_mtime_ns] for f, s in zip(files, stats, strict=True)]
        return {"files": sizes, "valid_last": self.valid_last}


@dataclass(frozen=True)
class Prepared:
    """A run's text, ready to train on."""

    train: TokenCache
    valid: TokenCache | None
    links: TeacherLinks | None
    valid_links: TeacherLinks | None
    gold: "GoldPairs | None"


@dataclass(frozen=True)
class GoldPairs:
    """Gold-aligned sentence pairs, as words and links."""

    src: list[list[str]]
    tgt: list[list[str]]
    gold: list[Gold]


FILES = ("src", "tgt", "valid_src", "valid_tgt", "gold_src", "gold_tgt", "gold", "vocab")


def settled(texts: Texts, run: Path) -> Texts:
    """The same texts as they are found again later: absolute paths, and for standard input and
    pipes the place in the run folder that `spool` copies them to."""
    values = asdict(texts)
    named = named_files(texts)
    if sum(path == "-" for path in named.values()) > 1:
        raise InputError("only one of the files can be `-`: standard input is read once")
    found = {n: os.path.abspath(run / "text" / n if once(p) else p) for n, p in named.items()}
    values |= {name: found[name] for name in FILES if name in found}
    if texts.start is not None:
        values["start"] = os.path.abspath(texts.start)
    values["teacher"] = [found.get(f"teacher-{k}", SEED) for k in range(len(texts.teacher))]
    for name in texts.teacher:
        if name not in (SEED, "-") and not os.path.exists(name):
            raise InputError(
                f"--teacher {name}: there is no such link file, bundle or run folder; "
                f"`{SEED}` is the statistical aligner"
            )
    return Texts(**values)


def named_files(texts: Texts) -> dict[str, str]:
    """The files that a run reads, by the names that their copies would have."""
    found = {name: getattr(texts, name) for name in FILES}
    found |= {f"teacher-{k}": n for k, n in enumerate(texts.teacher) if n != SEED}
    return {name: path for name, path in found.items() if path is not None}


def once(path: str) -> bool:
    """Whether a file can be read one time only."""
    there = os.path.isfile(path) or os.path.isdir(path)
    return path == "-" or (os.path.exists(path) and not there)


def copied(name: str, run: Path) -> bool:
    """Whether a settled name is that of a copy, which `spool` makes in the run folder."""
    return os.path.dirname(name) == os.path.abspath(run / "text")


def spool(given: Texts, run: Path) -> None:
    """Copy what can be read only once into the run folder."""
    for name, path in named_files(given).items():
        if not once(path):
            continue
        copy = run / "text" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(copy) as file:
            file.writelines(f"{line}\n".encode() for line in read_lines(path))


def hold_out(
    pairs: Iterable[tuple[str, str]], last: int, held: list[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """All pairs but the `last` ones, or the last tenth of a shorter text: `held` gets those."""
    waiting: deque[tuple[str, str]] = deque()
    n = 0
    for n, pair in enumerate(pairs, 1):  # noqa: B007 (the count is used after the loop)
        waiting.append(pair)
        if len(waiting) > last:
            yield waiting.popleft()
    while len(waiting) > n // 10:
        yield waiting.popleft()
    held.extend(waiting)


def make_vocab(texts: Texts, config: RunConfig, run: Path, report: Report) -> None:
    """Put `src.spm` (and `tgt.spm` unless joint) into the run folder."""
    from .vocabulary import train_vocab

    joint = config.model.joint_vocab
    wanted = {"src": (0, 1)} if joint else {"src": (0,), "tgt": (1,)}
    for side, sides in wanted.items():
        out = run / f"{side}.spm"
        if out.exists():
            continue
        if texts.start:
            raise MxError(f"{out} is gone; put back the vocabulary of {texts.start}")
        if texts.vocab:
            with atomic_write(out) as file:
                file.write(Tokenizer.load(Path(texts.vocab)).proto)
            continue
        report(
            f"learning a vocabulary from {' and '.join((texts.src, texts.tgt)[i] for i in sides)}"
        )
        train_vocab(
            # In pairs, so that files of different lengths are noticed now.
            (pair[i] for pair in read_pairs(texts.src, texts.tgt) for i in sides),
            out,
            size=config.train.vocab_size if joint else config.train.vocab_size // 2,
            lowercase=config.train.lowercase,
            fold_accents=config.train.fold_accents,
            model_type=config.train.vocab_type,
            seed=config.train.seed,
        )


def tokenizers(run: Path, config: RunConfig) -> tuple[Tokenizer, Tokenizer]:
    """The source and the target tokenizer of a run; one and the same if joint."""
    seen = {"lowercase": config.train.lowercase, "fold_accents": config.train.fold_accents}
    src = Tokenizer.load(run / "src.spm", **seen)
    if config.model.joint_vocab:
        return src, src
    return src, Tokenizer.load(run / "tgt.spm", **seen)


def prepare(texts: Texts, config: RunConfig, run: Path, report: Report) -> None:
    """Build what is missing in the run folder; other processes then only `open_prepared`."""
    names, folder = teachers(texts, config), run / "cache"
    if (read_key(folder / "links") or {}).get("teachers") != [identity(name) for name in names]:
        check_teachers(names, texts)  # before anything long is begun
    make_vocab(texts, config, run, report)
    key = cache_key(texts, config, run)
    if any(TokenCache.open(folder / name, key) is None for name in ("train", "valid")):
        tokenise(texts, config, run, key, report)
    taught = read_key(folder / "links")
    if names and taught != (wanted := link_key(key, names, texts.langs)):
        if taught and taught.get("teachers") != wanted["teachers"] and checkpoints(run):
            raise MxError(
                f"{run} was taught by {' and '.join(names)} as it was before; "
                "put that back, choose another folder, or begin anew with --restart"
            )
        teach(names, texts, config, run, key, report)


def cache_key(texts: Texts, config: RunConfig, run: Path) -> dict[str, Any]:
    vocab = [run / "src.spm"] + ([] if config.model.joint_vocab else [run / "tgt.spm"])
    train = config.train
    return {
        "text": json.loads(json.dumps(texts.fingerprint())),
        "vocab": [hashlib.sha256(file.read_bytes()).hexdigest() for file in vocab],
        "lowercase": train.lowercase,
        **({"fold_accents": True} if train.fold_accents else {}),
        "max_length": train.max_length,
        "max_ratio": train.max_ratio,
    }


def tokenise(
    texts: Texts, config: RunConfig, run: Path, key: dict[str, Any], report: Report
) -> None:
    """Write the token caches of the training and the validation text."""
    src_tok, tgt_tok = tokenizers(run, config)
    limits: dict[str, Any] = {
        "max_length": config.train.max_length,
        "max_ratio": config.train.max_ratio,
    }
    held: list[tuple[str, str]] = []
    pairs: Iterable[tuple[str, str]] = read_pairs(texts.src, texts.tgt)
    if texts.valid_src and texts.valid_tgt:
        held.extend(read_pairs(texts.valid_src, texts.valid_tgt))
    elif texts.valid_last:
        pairs = hold_out(pairs, texts.valid_last, held)
    report("tokenising the text")

    def count(counts: token_cache.Counts) -> None:
        if counts.read % (1 << 20) == 0:
            report(f"tokenised {counts.read:,} pairs")

    counts = token_cache.build(
        pairs, src_tok, tgt_tok, run / "cache" / "train", key=key, progress=count, **limits
    )
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
    token_cache.build(held, src_tok, tgt_tok, run / "cache" / "valid", key=key, **limits)


def teachers(texts: Texts, config: RunConfig) -> list[str]:
    """Who teaches: those that were named, else the statistical aligner where one is needed."""
    needed = config.train.warm_start == "seed" or config.model.kind == "student"
    if texts.teacher and not needed:
        raise MxError(
            "--teacher teaches nothing with --warm-start none; give --warm-start seed or --student"
        )
    return texts.teacher or ([SEED] if needed else [])


def check_teachers(names: list[str], texts: Texts) -> None:
    """An error for those that cannot teach this text, as far as that is quickly seen."""
    if texts.langs:
        language_codes(texts.langs)
    pairs = cache(lambda: sum(1 for _ in read_pairs(texts.src, texts.tgt)))
    for name in names:
        check(name, pairs)


def teach(
    names: list[str],
    texts: Texts,
    config: RunConfig,
    run: Path,
    key: dict[str, Any],
    report: Report,
) -> None:
    """Store the teachers' links of the cached pairs, of training and of validation text."""

    def words(src: str, tgt: str) -> Iterator[tuple[list[str], list[str]]]:
        return ((split(s), split(t)) for s, t in read_pairs(src, tgt))

    def text() -> Iterator[tuple[list[str], list[str]]]:
        return words(texts.src, texts.tgt)

    who = [open_teacher(name, text, config, report, texts.langs) for name in names]
    train, valid = (TokenCache.open(run / "cache" / name, key) for name in ("train", "valid"))
    assert train is not None and valid is not None
    folder = run / "cache" / "links"
    (folder / "key.json").unlink(missing_ok=True)  # it says that the others are whole
    report("finding links to learn from")
    found = mixed([teacher.align(text()) for teacher in who])
    held_out = bool(texts.valid_last and not texts.valid_src)
    behind = (train.counts.read + line for line in valid.lines) if held_out else ()
    links = at_lines(found, chain(train.lines, behind))
    count = write_links(folder / "train", islice(links, len(train)) if held_out else links)
    report(f"{count:,} links to learn from")
    if not count:
        raise InputError(f"{' and '.join(names)} found no link in {texts.src} and {texts.tgt}")
    if held_out:
        write_links(folder / "valid", links)
    elif texts.valid_src and texts.valid_tgt and not any(map(is_bound_to_text, names)):
        pairs = [teacher.align(words(texts.valid_src, texts.valid_tgt)) for teacher in who]
        write_links(folder / "valid", at_lines(mixed(pairs), valid.lines))
    else:
        if texts.valid_src:
            report("a file of links has none for the validation text: no accuracy is measured")
        shutil.rmtree(folder / "valid", ignore_errors=True)
    for old in (run / "cache").glob("round-*"):  # made from other links
        shutil.rmtree(old)
    with atomic_write(folder / "key.json") as file:
        file.write(json.dumps(link_key(key, names, texts.langs)).encode())


def write_links(
    folder: Path, links: Iterable[list[ScoredLink]], key: dict[str, Any] | None = None
) -> int:
    """What `data.TeacherLinks` reads; with a `key`, `key.json` says that all is there. Gives the
    number of links."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        atomic_write(folder / "links.bin") as file,
        atomic_write(folder / "offsets.bin") as offsets,
    ):
        end = 0
        offsets.write(end.to_bytes(8, "little"))
        for found in links:
            rows = [(i, j, round(65535 * weight)) for i, j, weight in found if max(i, j) < 65536]
            file.write(np.array(rows, "<u2").tobytes())
            end += len(rows)
            offsets.write(end.to_bytes(8, "little"))
    if key is not None:
        with atomic_write(folder / "key.json") as file:
            file.write(json.dumps(key).encode())
    return end


def at_lines(items: Iterable[Any], lines: Iterable[int]) -> Iterator[Any]:
    """The items whose number is among the ascending `lines`; reads them all."""
    numbers = iter(lines)
    line = next(numbers, None)
    for number, item in enumerate(items):
        if number == line:
            yield item
            line = next(numbers, None)


def link_key(key: dict[str, Any], names: list[str], langs: str | None) -> dict[str, Any]:
    """What links depend on: the text, and who taught them."""
    found = {**key, "format": 3, "teachers": [identity(name) for name in names]}
    return {**found, "langs": langs} if langs else found


def identity(name: str) -> list[Any]:
    """A teacher's name, and what changes when it does."""
    path = Path(name)
    if name == SEED:
        return [name]
    found = [file for file in (path / MODEL, path / MANIFEST, path) if file.exists()]
    if not found:
        raise InputError(f"the teacher {name} is gone; put it back, or begin anew with --restart")
    stat = found[0].stat()
    return [name, stat.st_size, stat.st_mtime_ns]


def read_key(folder: Path) -> Any:
    with suppress(OSError, ValueError):
        return json.loads((folder / "key.json").read_text("utf-8"))
    return None


def open_prepared(texts: Texts, config: RunConfig, run: Path) -> Prepared:
    """Open what `prepare` built."""
    train, valid = (TokenCache.open(run / "cache" / name) for name in ("train", "valid"))
    if train is None:
        raise MxError(f"{run}/cache has no token cache; run the command again to build it")
    links = run / "cache" / "links"
    taught = bool(teachers(texts, config))
    checked = taught and valid is not None and (links / "valid").is_dir()
    return Prepared(
        train,
        valid if valid is not None and len(valid) else None,
        TeacherLinks(links / "train") if taught else None,
        TeacherLinks(links / "valid") if checked else None,
        read_gold(texts),
    )


def read_gold(texts: Texts) -> GoldPairs | None:
    """The gold set, if the run has one."""
    if not (texts.gold and texts.gold_src and texts.gold_tgt):
        return None
    return gold_pairs(texts.gold_src, texts.gold_tgt, texts.gold)


def gold_pairs(src: str, tgt: str, links: str) -> GoldPairs:
    pairs = [(split(s), split(t)) for s, t in read_pairs(src, tgt)]
    gold = gold_links(links, [(len(s), len(t)) for s, t in pairs], src)
    return GoldPairs([s for s, _ in pairs], [t for _, t in pairs], gold)


def gold_links(path: str, sizes: list[tuple[int, int]], src: str) -> list[Gold]:
    """The gold links of pairs with so many words, of which `src` is the source side."""
    sentences = read_links(path).fit(len(sizes), src).sentences
    for number, ((n_src, n_tgt), gold) in enumerate(zip(sizes, sentences, strict=True), 1):
        for i, j in gold.possible:
            if i >= n_src or j >= n_tgt:
                raise InputError(
                    f"{path} sentence {number}: link {i}-{j} is outside its sentences of "
                    f"{n_src} and {n_tgt} words; words count from 0, source first"
                )
    return sentences
