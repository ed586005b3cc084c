"""Keeps a statistical model in one file: a NumPy `.npz`, a zip of arrays, without pickle.

Version 2. All arrays have one dimension; V source words, W target words, P linked pairs of words, C
classes of words that begin alike (numbered as they first occur in the source words, then in the
target words), Q pairs of classes, J the setting max_jump.

    header             uint8    JSON, UTF-8: format, version, settings, pairs (learned from) and
                                sha256 of the other arrays (name, type and bytes, in this order)
    src_words          uint8    the source words one after the other, UTF-8
    src_lengths (V)    int32    bytes of each source word
    tgt_words, tgt_lengths (W)  likewise
    pair_counts (V)    int32    with how many target words each source word is linked
    pair_tgt (P)       int32    their ids, rising for each source word
    pair_fwd, pair_bwd (P)      float32  target word given source word, and the reverse
    src_totals (V), tgt_totals (W), src_share (V), tgt_share (W)   float64
    class_counts (C), class_tgt (Q)                                as pair_counts, pair_tgt
    class_fwd (Q), class_bwd (Q)                                   float64
    fwd_null (W + 1), bwd_null (V + 1)                             float32
    fwd_jump, bwd_jump (2 J + 1), fwd_start, bwd_start, fwd_end, bwd_end (J + 1)   float32

Reading checks names, types, sizes, order and range of everything before it is used, so that a
damaged or hostile file is an error and not a crash.
"""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import InputError, MxError
from ..storage import atomic_write
from .blocks import Ints, pair_keys, split_keys
from .counts import ExpectedCounts
from .hmm import HmmDirection, HmmPair, MoveCounts
from .model import StatisticalModel
from .settings import LearningSettings
from .spelling import SpellingPrior, number_prefixes

# Zeros shrink to a thousandth in a zip, so what a file may unpack to is bounded. The model of
# 262,000 En-Fr pairs unpacks to 6.5 MB; each word takes some 100 bytes more as a Python string.
_MAX_BYTES, _MAX_WORDS, _MAX_HEADER = 1 << 31, 1 << 25, 1 << 16
_TYPES = {
    "src_words": "u1", "src_lengths": "<i4", "tgt_words": "u1", "tgt_lengths": "<i4",
    "pair_counts": "<i4", "pair_tgt": "<i4", "pair_fwd": "<f4", "pair_bwd": "<f4",
    "src_totals": "<f8", "tgt_totals": "<f8", "src_share": "<f8", "tgt_share": "<f8",
    "class_counts": "<i4", "class_tgt": "<i4", "class_fwd": "<f8", "class_bwd": "<f8",
    "fwd_null": "<f4", "fwd_jump": "<f4", "fwd_start": "<f4", "fwd_end": "<f4",
    "bwd_null": "<f4", "bwd_jump": "<f4", "bwd_start": "<f4", "bwd_end": "<f4",
}  # fmt: skip

_COUNT_TYPES = {
    "src_words": "u1", "src_lengths": "<i4", "tgt_words": "u1", "tgt_lengths": "<i4",
    "src_seen": "<i8", "tgt_seen": "<i8",
    "pair_counts": "<i4", "pair_tgt": "<i4", "pair_expected": "<f8",
    "fwd_jump": "<f8", "fwd_start": "<f8", "fwd_end": "<f8",
    "bwd_jump": "<f8", "bwd_start": "<f8", "bwd_end": "<f8",
}  # fmt: skip


class _FileKind(NamedTuple):
    """What a file says it is, and the arrays that it has."""

    format: str
    version: int
    types: dict[str, str]
    name: str
    advice: str


_MODEL = _FileKind("mx-align statistical model", 2, _TYPES, "a statistical model", "learn it again")
_COUNTS = _FileKind("mx-align expected counts", 1, _COUNT_TYPES, "a file of counts", "count again")

# Damaged, compressed in another way (NotImplementedError) or encrypted (RuntimeError).
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)

Arrays = dict[str, npt.NDArray[Any]]
Made = TypeVar("Made")


# ---- writing ----


def save_model(model: StatisticalModel, path: str | Path) -> None:
    """Write the model; the file appears when it is complete."""
    n_classes = int(max(model.prior.src_class.max(), model.prior.tgt_class.max())) + 1
    arrays: Arrays = {
        **_pack_strings("src", model.src_words),
        **_pack_strings("tgt", model.tgt_words),
        **_pack_table("pair", model, len(model.src_words)),
        "src_totals": model.src_totals,
        "tgt_totals": model.tgt_totals,
        "src_share": model.prior.src_share,
        "tgt_share": model.prior.tgt_share,
        **_pack_table("class", model.prior, n_classes),
        **{f"fwd_{name}": values for name, values in vars(model.hmms.fwd).items()},
        **{f"bwd_{name}": values for name, values in vars(model.hmms.bwd).items()},
    }
    more = {"settings": asdict(model.settings), "pairs": model.n_learned}
    _write_file(path, _MODEL, more, arrays)


def save_counts(counts: ExpectedCounts, path: str | Path) -> None:
    """Write expected counts; the file appears when it is complete.

    Arrays are named as those of a model: src_seen and tgt_seen (of each word), pair_counts,
    pair_tgt, pair_expected (float64), and fwd_jump ... bwd_end, expected counts as well.
    """
    src, tgt = split_keys(counts.keys)
    arrays: Arrays = {
        **_pack_strings("src", counts.src_words),
        **_pack_strings("tgt", counts.tgt_words),
        "src_seen": counts.src_occurrences,
        "tgt_seen": counts.tgt_occurrences,
        "pair_counts": np.bincount(src, minlength=len(counts.src_words)),
        "pair_tgt": tgt,
        "pair_expected": counts.counts,
        **{
            f"{side}_{name}": values
            for side, moves in zip(("fwd", "bwd"), counts.moves, strict=True)
            for name, values in vars(moves).items()
        },
    }
    _write_file(path, _COUNTS, {"pairs": counts.n_pairs, "counted_with": counts.digest}, arrays)


def _write_file(path: str | Path, kind: _FileKind, more: dict[str, Any], arrays: Arrays) -> None:
    arrays = {name: np.ascontiguousarray(arrays[name], t) for name, t in kind.types.items()}
    header = {
        "format": kind.format,
        "version": kind.version,
        **more,
        "sha256": _hash_arrays(arrays, kind.types),
    }
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    members: dict[str, Any] = {"header": text, **arrays}
    with atomic_write(path) as file:
        np.savez_compressed(file, **members)


def _pack_strings(side: str, words: Sequence[str]) -> Arrays:
    """Pack words as UTF-8 bytes, one after the other, and the length of each."""
    encoded = [word.encode() for word in words]
    lengths = np.array(list(map(len, encoded)))
    return {f"{side}_words": np.frombuffer(b"".join(encoded), np.uint8), f"{side}_lengths": lengths}


def _pack_table(name: str, table: StatisticalModel | SpellingPrior, n_rows: int) -> Arrays:
    """Pack a table of pairs by rows: the pairs 0-3 0-7 2-1 are counts 2 0 1 and tgt 3 7 1."""
    src, tgt = split_keys(table.keys)
    counts = np.bincount(src, minlength=n_rows)
    columns = {"counts": counts, "tgt": tgt, "fwd": table.fwd, "bwd": table.bwd}
    return {f"{name}_{column}": values for column, values in columns.items()}


def _hash_arrays(arrays: Mapping[str, npt.NDArray[Any]], types: Mapping[str, str]) -> str:
    """Return the SHA-256 of all arrays but the header, in hexadecimal digits."""
    digest = hashlib.sha256()
    for name, kind in types.items():
        digest.update(f"{name} {kind} {len(arrays[name])}\n".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


# ---- reading ----


def load_model(path: str | Path) -> StatisticalModel:
    """Read what `save_model` wrote; an InputError for anything else."""
    return _read_file(path, _MODEL, "mx-seed --save", _unpack_model)


def load_counts(path: str | Path) -> ExpectedCounts:
    """Read what `save_counts` wrote; an InputError for anything else."""
    return _read_file(path, _COUNTS, "mx-seed --save-counts", _unpack_counts)


def _read_file(
    path: str | Path, kind: _FileKind, writer: str, unpack: Callable[[dict[str, Any], Arrays], Made]
) -> Made:
    try:
        with zipfile.ZipFile(path) as archive:
            header, arrays = _read_members(archive, kind)
        return unpack(header, arrays)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; write it with {writer}") from None
    except InputError:
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError, MxError, *_ZIP_ERRORS) as error:
        raise InputError(f"{path} is not {kind.name} ({error}); {kind.advice}") from error


def _read_members(archive: zipfile.ZipFile, kind: _FileKind) -> tuple[dict[str, Any], Arrays]:
    """Read header and arrays, after a look at their names and sizes."""
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    other = InputError(f"{archive.filename} is {kind.name} of another version; {kind.advice}")
    if "header" not in members:  # as version 1 had none
        raise other if "format" in members else ValueError("it has no header")
    _require(members["header"].file_size <= _MAX_HEADER, "its header is too large")
    header = json.loads(_read_array(archive, members.pop("header"), "u1").tobytes())
    ours = isinstance(header, dict) and header.get("format") == kind.format
    _require(ours, "its header is another's")
    if header.get("version") != kind.version:
        raise other
    wrong = ", ".join(sorted(set(members) ^ set(kind.types)))
    _require(not wrong, f"wrong arrays: {wrong}")
    size = sum(info.file_size for info in members.values())
    _require(size <= _MAX_BYTES, f"it would take more than {_MAX_BYTES >> 30} GB")
    arrays = {name: _read_array(archive, members[name], t) for name, t in kind.types.items()}
    same = header["sha256"] == _hash_arrays(arrays, kind.types)
    _require(same, "its arrays are not those it was written with")
    return header, arrays


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, kind: str) -> npt.NDArray[Any]:
    """Read a member, whose size must be what the shape in it says, before anything is allocated."""
    with archive.open(info) as file:
        known = np.lib.format.read_magic(file) == (1, 0)
        _require(known, f"{info.filename} has another version of NumPy's format")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        size = info.file_size - file.tell()
        fits = dtype == np.dtype(kind) and len(shape) == 1 and shape[0] * dtype.itemsize == size
        _require(fits, f"{info.filename} has the wrong type or size")
        return np.frombuffer(file.read(size), dtype)


def _unpack_model(header: dict[str, Any], arrays: Arrays) -> StatisticalModel:
    """Make a model of arrays that may say anything."""
    settings = LearningSettings(**header["settings"])
    for name, value in asdict(settings).items():
        whole = not isinstance(getattr(LearningSettings, name), float)
        _require(isinstance(value, int) or not whole, f"{name} must be a whole number")
    n_learned = header["pairs"]
    _require(isinstance(n_learned, int) and n_learned > 0, "it learned from no pairs")
    src_words, tgt_words = (_unpack_strings(side, arrays) for side in ("src", "tgt"))
    V, W, J = len(src_words), len(tgt_words), settings.max_jump
    numbers: dict[str, int] = {}
    src_class, tgt_class = (
        number_prefixes(words, settings.prefix_length, numbers) for words in (src_words, tgt_words)
    )
    sizes = {
        "src_totals": V, "tgt_totals": W, "src_share": V, "tgt_share": W,
        "fwd_null": W + 1, "fwd_jump": 2 * J + 1, "fwd_start": J + 1, "fwd_end": J + 1,
        "bwd_null": V + 1, "bwd_jump": 2 * J + 1, "bwd_start": J + 1, "bwd_end": J + 1,
    }  # fmt: skip
    for name, size in sizes.items():
        _require(len(arrays[name]) == size, f"{name} has {len(arrays[name])} values, not {size}")
        _require(_all_between(arrays[name], 0, math.inf), f"{name} has impossible values")
    for name in ("fwd_jump", "fwd_start", "bwd_jump", "bwd_start"):
        # The recursion divides by sums of these.
        _require(arrays[name].min() > 0, f"a weight of {name} is 0")
    fwd, bwd = (
        HmmDirection(**{f.name: arrays[f"{side}_{f.name}"] for f in fields(HmmDirection)})
        for side in ("fwd", "bwd")
    )
    return StatisticalModel(
        settings, src_words, tgt_words, **_unpack_table("pair", arrays, V, W),
        src_totals=arrays["src_totals"], tgt_totals=arrays["tgt_totals"], n_learned=n_learned,
        prior=SpellingPrior(
            settings.prefix_weight, settings.cognate_weight, src_class, tgt_class,
            arrays["src_share"], arrays["tgt_share"],
            **_unpack_table("class", arrays, len(numbers), len(numbers)),
        ),
        hmms=HmmPair(fwd, bwd, settings.null_prob, settings.hmm_rounds > 0),
    )  # fmt: skip


def _unpack_counts(header: dict[str, Any], arrays: Arrays) -> ExpectedCounts:
    """Make counts of arrays that may say anything."""
    words = [_unpack_strings(side, arrays) for side in ("src", "tgt")]
    V, W = map(len, words)
    n_pairs, digest = header["pairs"], header["counted_with"]
    _require(isinstance(n_pairs, int) and n_pairs > 0, "they are of no pairs")
    _require(isinstance(digest, str), "they do not tell the model they were counted with")
    moves = [
        MoveCounts(*(arrays[f"{side}_{name}"] for name in ("jump", "start", "end")))
        for side in ("fwd", "bwd")
    ]
    J = len(moves[0].start) - 1
    for found in moves:
        sizes = [len(values) for values in vars(found).values()]
        _require(sizes == [2 * J + 1, J + 1, J + 1], "moves are miscounted")
        for values in vars(found).values():
            _require(_all_between(values, 0, math.inf), "moves have impossible counts")
    expected = arrays["pair_expected"]
    _require(_all_between(expected, 0, math.inf), "pairs have impossible counts")
    seen = arrays["src_seen"], arrays["tgt_seen"]
    for values, n in zip(seen, (V, W), strict=True):
        _require(len(values) == n and _all_between(values, 0, math.inf), "words are miscounted")
    keys = _unpack_keys("pair", arrays, V, W)
    _require(len(keys) == len(expected), "pairs are miscounted")
    both = moves[0], moves[1]
    return ExpectedCounts(
        words[0], words[1], seen[0], seen[1], keys, expected, both, n_pairs, digest
    )


def _unpack_strings(side: str, arrays: Arrays) -> list[str]:
    """Return the words that `_pack_strings` packed."""
    packed, lengths = arrays[f"{side}_words"], arrays[f"{side}_lengths"]
    _require(0 < len(lengths) <= _MAX_WORDS, "a language has no words, or far too many")
    _require(_all_between(lengths, 0, len(packed)), "a word has an impossible length")
    ends = np.cumsum(lengths, dtype=np.int64)
    _require(int(ends[-1]) == len(packed), "its words have another length than they should")
    data = packed.tobytes()
    words = [data[start:end].decode() for start, end in pairwise([0, *ends.tolist()])]
    _require(len(set(words)) == len(words), "a word is there twice")
    return words


def _unpack_table(name: str, arrays: Arrays, n_rows: int, n_columns: int) -> Arrays:
    """Return keys, fwd and bwd of a table that `_pack_table` packed."""
    fwd, bwd = arrays[f"{name}_fwd"], arrays[f"{name}_bwd"]
    keys = _unpack_keys(name, arrays, n_rows, n_columns)
    _require(len(keys) == len(fwd) == len(bwd), f"{name}s are miscounted")
    # Not 1: a quotient of sums may be a little more.
    _require(_all_between(np.append(fwd, bwd), 0, 1.001), f"{name}s are no probabilities")
    return {"keys": keys, "fwd": fwd, "bwd": bwd}


def _unpack_keys(name: str, arrays: Arrays, n_rows: int, n_columns: int) -> Ints:
    """Return the keys of a table by rows."""
    counts, tgt = arrays[f"{name}_counts"], arrays[f"{name}_tgt"]
    _require(
        len(counts) == n_rows and _all_between(counts, 0, n_columns), f"{name}s are miscounted"
    )
    total = int(counts.sum(dtype=np.int64))
    _require(0 < total == len(tgt), f"{name}s are miscounted")
    _require(_all_between(tgt, 0, n_columns - 1), f"{name}s of words that are not there")
    keys = pair_keys(np.repeat(np.arange(n_rows), counts), tgt)
    _require(bool((np.diff(keys) > 0).all()), f"{name}s are not in order")
    return keys


def _all_between(values: npt.NDArray[Any], least: float, most: float) -> bool:
    """Tell whether all values lie in the range and are finite."""
    return bool((np.isfinite(values) & (values >= least) & (values <= most)).all())


def _require(condition: bool, complaint: str) -> None:
    if not condition:
        raise ValueError(complaint)
