"""From the user's files to what training reads: vocabularies, token caches, seed links, gold pairs.

Every step leaves its result in the run folder and is skipped when it is there and fits.
"""

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mx.engine.errors import InputError, MxError
from mx.engine.files import atomic_write, read_lines, read_pairs
from mx.engine.links import Gold, read_links
from mx.engine.text import Tokenizer, split
from mx.trainer import cache as token_cache
from mx.trainer.cache import TokenCache
from mx.trainer.config import RunConfig
from mx.trainer.data import SeedLinks

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

    def fingerprint(self) -> dict[str, Any]:
        """What tells whether the training text is still the same."""
        files = [f for f in (self.src, self.tgt, self.valid_src, self.valid_tgt) if f]
        stats = [os.stat(f) for f in files]
        sizes = [[f, s.st_size, s.st_mtime_ns] for f, s in zip(files, stats, strict=True)]
        return {"files": sizes, "valid_last": self.valid_last}


@dataclass(frozen=True)
class Prepared:
    """A run's text, ready to train on."""

    train: TokenCache
    valid: TokenCache | None
    links: SeedLinks | None
    gold: "GoldPairs | None"


@dataclass(frozen=True)
class GoldPairs:
    """Gold-aligned sentence pairs, as words and links."""

    src: list[list[str]]
    tgt: list[list[str]]
    gold: list[Gold]


def spool(texts: Texts, run: Path) -> Texts:
    """The same texts with standard input copied into the run folder: text is read several times."""
    values = asdict(texts)
    if sum(values[name] == "-" for name in values) > 1:
        raise InputError("only one of the files can be `-`: standard input is read once")
    for name in ("src", "tgt"):
        if values[name] == "-":
            copy = run / "cache" / f"stdin.{name}"
            copy.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(copy) as file:
                file.writelines(f"{line}\n".encode() for line in read_lines("-"))
            values[name] = str(copy)
    return Texts(**values)


def hold_out(pairs: Iterable[tuple[str, str]], last: int, held: list) -> Iterator[tuple[str, str]]:
    """All pairs but the `last` ones, which are put into `held` at the end."""
    waiting: deque[tuple[str, str]] = deque()
    for pair in pairs:
        waiting.append(pair)
        if len(waiting) > last:
            yield waiting.popleft()
    held.extend(waiting)


def make_vocab(texts: Texts, config: RunConfig, run: Path, report: Report) -> None:
    """Put `src.spm` (and `tgt.spm` unless joint) into the run folder."""
    from mx.trainer.vocab import train_vocab

    joint = config.model.joint_vocab
    wanted = {"src": [texts.src, texts.tgt]} if joint else {"src": [texts.src], "tgt": [texts.tgt]}
    for side, files in wanted.items():
        out = run / f"{side}.spm"
        if out.exists():
            continue
        if texts.vocab:
            with atomic_write(out) as file:
                file.write(Tokenizer.load(Path(texts.vocab)).proto)
            continue
        report(f"learning a vocabulary from {' and '.join(files)}")
        train_vocab(
            (line for name in files for line in read_lines(name)),
            out,
            size=config.train.vocab_size if joint else config.train.vocab_size // 2,
            lowercase=config.train.lowercase,
            model_type=config.train.vocab_type,
            seed=config.train.seed,
        )


def tokenizers(run: Path, config: RunConfig) -> tuple[Tokenizer, Tokenizer]:
    """The source and the target tokenizer of a run; one and the same if joint."""
    src = Tokenizer.load(run / "src.spm", lowercase=config.train.lowercase)
    if config.model.joint_vocab:
        return src, src
    return src, Tokenizer.load(run / "tgt.spm", lowercase=config.train.lowercase)


def prepare(texts: Texts, config: RunConfig, run: Path, report: Report) -> None:
    """Build what is missing in the run folder; other processes then only `open_prepared`."""
    make_vocab(texts, config, run, report)
    key = cache_key(texts, config, run)
    folder = run / "cache"
    if TokenCache.open(folder / "train", key) is None:
        tokenise(texts, config, run, key, report)
    seeds = folder / "seeds"
    wanted = config.train.warm_start == "seed"
    if wanted and (not seeds.exists() or read_key(seeds) != key):
        seed_links(texts, config, run, key, report)


def cache_key(texts: Texts, config: RunConfig, run: Path) -> dict[str, Any]:
    vocab = [run / "src.spm"] + ([] if config.model.joint_vocab else [run / "tgt.spm"])
    train = config.train
    return {
        "text": json.loads(json.dumps(texts.fingerprint())),
        "vocab": [hashlib.sha256(file.read_bytes()).hexdigest() for file in vocab],
        "lowercase": train.lowercase,
        "max_length": train.max_length,
        "max_ratio": train.max_ratio,
    }


def tokenise(
    texts: Texts, config: RunConfig, run: Path, key: dict[str, Any], report: Report
) -> None:
    """Write the token caches of the training and the validation text."""
    src_tok, tgt_tok = tokenizers(run, config)
    limits = {"max_length": config.train.max_length, "max_ratio": config.train.max_ratio}
    held: list[tuple[str, str]] = []
    pairs: Iterable[tuple[str, str]] = read_pairs(texts.src, texts.tgt)
    if texts.valid_src and texts.valid_tgt:
        held.extend(read_pairs(texts.valid_src, texts.valid_tgt))
    elif texts.valid_last:
        pairs = hold_out(pairs, texts.valid_last, held)
    report("tokenising the text")
    counts = token_cache.build(pairs, src_tok, tgt_tok, run / "cache" / "train", key=key, **limits)
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
            + (f", {len(held):,} held out for validation (see --valid-last)" if held else "")
        )
    token_cache.build(held, src_tok, tgt_tok, run / "cache" / "valid", key=key, **limits)


def seed_links(
    texts: Texts, config: RunConfig, run: Path, key: dict[str, Any], report: Report
) -> None:
    """Learn the statistical aligner on the text and store its links for the cached pairs."""
    from mx.trainer.seed import SeedModel

    def words() -> Iterator[tuple[list[str], list[str]]]:
        for src, tgt in read_pairs(texts.src, texts.tgt):
            if config.train.lowercase:
                src, tgt = src.lower(), tgt.lower()
            yield split(src), split(tgt)

    report("learning seed links with the statistical aligner")
    model = SeedModel.learn(words())
    train = TokenCache.open(run / "cache" / "train", key)
    assert train is not None
    offsets, links = np.zeros(len(train) + 1, np.int64), []
    kept = iter(enumerate(train.lines.tolist()))
    index, line = next(kept)
    for number, found in enumerate(model.align(words())):
        if number != line:
            continue
        links.append(np.array([(i, j) for i, j, _ in found], np.uint16).reshape(-1, 2))
        offsets[index + 1] = offsets[index] + len(found)
        index, line = next(kept, (-1, -1))
        if index < 0:
            break
    folder = run / "cache" / "seeds"
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in (("offsets", offsets), ("links", np.concatenate(links))):
        with atomic_write(folder / f"{name}.npy") as file:
            np.save(file, array)
    with atomic_write(folder / "key.json") as file:
        file.write(json.dumps(key).encode())


def read_key(folder: Path) -> Any:
    try:
        return json.loads((folder / "key.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None


def open_prepared(texts: Texts, config: RunConfig, run: Path) -> Prepared:
    """Open what `prepare` built."""
    train, valid = (TokenCache.open(run / "cache" / name) for name in ("train", "valid"))
    if train is None:
        raise MxError(f"{run}/cache has no token cache; run the command again to build it")
    wanted = config.train.warm_start == "seed"
    return Prepared(
        train,
        valid if valid is not None and len(valid) else None,
        SeedLinks(run / "cache" / "seeds") if wanted else None,
        read_gold(texts),
    )


def read_gold(texts: Texts) -> GoldPairs | None:
    """The gold set, if the run has one."""
    if not (texts.gold and texts.gold_src and texts.gold_tgt):
        return None
    pairs = [(split(s), split(t)) for s, t in read_pairs(texts.gold_src, texts.gold_tgt)]
    links = read_links(texts.gold).fit(len(pairs), texts.gold_src)
    return GoldPairs([s for s, _ in pairs], [t for _, t in pairs], links.sentences)
