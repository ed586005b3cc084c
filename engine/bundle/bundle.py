"""The model bundle: a folder, or a zip file of the same content, checked before any of it is used.
Knows names, versions, hashes and what an ONNX file may refer to; running it is the backends' work.

docs/bundle.md describes the format. Nothing here needs torch or onnx.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import BundleError, MxError
from ..text.files import sync_folder
from ..text.words import Tokenizer

FORMAT = "mx-bundle"
VERSION = 2
MANIFEST = "manifest.json"
PRECISIONS = ("fp32", "fp16", "int8")
WISHES = ("aer", "precision", "recall")

Wish = Literal["aer", "precision", "recall"]
Floats = npt.NDArray[np.float64]

_MAX_MANIFEST = 1 << 24
# A flat name: no separator, no drive, no leading dot, so that no path can leave the folder.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LANGUAGE = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*(\+[A-Za-z0-9]+(-[A-Za-z0-9]+)*)*")

# ---- the manifest ----


@dataclass(frozen=True)
class File:
    """Size in bytes and SHA-256 of a file of the bundle."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Vocabulary:
    """SentencePiece models of the two sides, the same file if they share one."""

    src: str
    tgt: str
    lowercase: bool
    fold_accents: bool = False


@dataclass(frozen=True)
class Calibration:
    """Points of a rising line from score to probability, and how they were found."""

    scores: tuple[float, ...]
    probabilities: tuple[float, ...]
    chosen: str


@dataclass(frozen=True)
class Thresholds:
    """The link threshold for each wish, and how they were found."""

    aer: float
    precision: float
    recall: float
    chosen: str


@dataclass(frozen=True)
class Manifest:
    """`manifest.json`. `model`, `training` and `measured` are for people; aligning needs none of
    them. `mx-train --start` takes the network's shape from the first two."""

    name: str
    languages: tuple[str, str]  # source, target; "und" if unknown, "de+fr" if it may be either
    max_length: int  # pieces of a side the model was trained on
    graphs: Mapping[str, str]  # precision -> file
    default_precision: str
    tokenizer: Vocabulary
    thresholds: Thresholds
    calibration: Calibration
    model: Mapping[str, Any]  # the network's settings
    training: Mapping[str, Any]  # where the weights come from
    measured: Mapping[str, Any]  # what was measured when the bundle was made
    made_by: str
    files: Mapping[str, File]

    def to_json(self) -> bytes:
        """The bytes of `manifest.json`; equal manifests give equal bytes."""
        data = {"format": FORMAT, "version": VERSION, **asdict(self)}
        text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
        return text.encode() + b"\n"


def read_manifest(data: bytes, where: str) -> Manifest:
    """The manifest in these bytes; an error names everything that is wrong with it."""
    try:
        values = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{where}: {MANIFEST} is not valid JSON ({error})") from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise BundleError(f"{where} is not a model bundle: {MANIFEST} lacks format {FORMAT!r}")
    version = values.get("version")
    if type(version) is not int or version < 1:
        raise BundleError(f"{where}: {MANIFEST} has no valid version; make the bundle again")
    if version > VERSION:
        raise BundleError(
            f"{where} is a bundle of version {version}, but this mx-align reads up to {VERSION}; "
            "update it: pip install -U mx-align"
        )
    if version < 2 and isinstance(values.get("tokenizer"), dict):
        values["tokenizer"].setdefault("fold_accents", False)  # not known then
    wanted = {field.name for field in fields(Manifest)}
    found = set(values) - {"format", "version"}
    problems = [f"missing {key}" for key in sorted(wanted - found)]
    problems += [f"unknown {key!r}" for key in sorted(found - wanted)]
    problems += [
        f"{key} {problem}"
        for key in sorted(wanted & found)
        for problem in _CHECKS[key](values[key])
    ]
    problems = problems or _disagreements(values)
    if problems:
        raise BundleError(f"{where}: {MANIFEST} is damaged: {'; '.join(problems)}")
    return Manifest(
        **{
            **{key: values[key] for key in wanted},
            "languages": tuple(values["languages"]),
            "tokenizer": Vocabulary(**values["tokenizer"]),
            "thresholds": Thresholds(**values["thresholds"]),
            "calibration": Calibration(
                tuple(values["calibration"]["scores"]),
                tuple(values["calibration"]["probabilities"]),
                values["calibration"]["chosen"],
            ),
            "files": {name: File(**info) for name, info in values["files"].items()},
        }
    )


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _is_number(value: Any, low: float = 0.0, high: float = 1.0) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and low <= value <= high


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(_NAME.fullmatch(value) and not _DEVICE.fullmatch(value))


Check = Callable[[Any], Iterator[str]]


def _must(test: Callable[[Any], bool], what: str) -> Check:
    def check(value: Any) -> Iterator[str]:
        if not test(value):
            yield f"must be {what}"

    return check


def _keys(checks: Mapping[str, Check]) -> Check:
    """An object with exactly these keys."""

    def check(value: Any) -> Iterator[str]:
        if not isinstance(value, dict) or set(value) != set(checks):
            yield f"must have the keys {', '.join(checks)}"
            return
        for key, inner in checks.items():
            yield from (f"{key} {problem}" for problem in inner(value[key]))

    return check


_TEXT = _must(lambda v: isinstance(v, str), "text")
_SHARE = _must(_is_number, "a number from 0 to 1")
_OBJECT = _must(lambda v: isinstance(v, dict), "an object")
_FLAT = _must(_is_name, "a file name without a path")
_FILE = _keys(
    {
        "size": _must(lambda v: type(v) is int and v >= 0, "a size in bytes"),
        "sha256": _must(
            lambda v: isinstance(v, str) and bool(_SHA256.fullmatch(v)), "64 hex digits"
        ),
    }
)


def _rising(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= 2
        and all(map(_is_number, value))
        and all(a <= b for a, b in pairwise(value))
    )


def _check_files(value: Any) -> Iterator[str]:
    if not isinstance(value, dict) or not value:
        yield "must list the files"
        return
    for name, info in value.items():
        if not _is_name(name) or name == MANIFEST:
            yield f"has {name!r}, which is not a file name without a path"
        yield from (f"{name} {problem}" for problem in _FILE(info))


def _check_graphs(value: Any) -> Iterator[str]:
    if not isinstance(value, dict) or not value or not set(value) <= set(PRECISIONS):
        yield f"must have some of the keys {', '.join(PRECISIONS)}"
        return
    for precision, name in value.items():
        yield from (f"{precision} {problem}" for problem in _FLAT(name))


def _is_languages(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(v, str) and _LANGUAGE.fullmatch(v) for v in value)
    )


_BOOL = _must(lambda v: isinstance(v, bool), "true or false")

_CHECKS: dict[str, Check] = {
    "name": _TEXT,
    "languages": _must(_is_languages, "two language codes"),
    "max_length": _must(lambda v: type(v) is int and v >= 1, "a number of pieces"),
    "graphs": _check_graphs,
    "default_precision": _TEXT,
    "tokenizer": _keys(
        {
            "src": _FLAT,
            "tgt": _FLAT,
            "lowercase": _BOOL,
            "fold_accents": _BOOL,
        }
    ),
    "thresholds": _keys({**dict.fromkeys(WISHES, _SHARE), "chosen": _TEXT}),
    "calibration": _keys(
        {
            "scores": _must(_rising, "two or more rising numbers from 0 to 1"),
            "probabilities": _must(_rising, "two or more rising numbers from 0 to 1"),
            "chosen": _TEXT,
        }
    ),
    "model": _OBJECT,
    "training": _OBJECT,
    "measured": _OBJECT,
    "made_by": _TEXT,
    "files": _check_files,
}


def _disagreements(values: Mapping[str, Any]) -> list[str]:
    """What is wrong between parts that are right by themselves."""
    problems = []
    used = [*values["graphs"].values(), values["tokenizer"]["src"], values["tokenizer"]["tgt"]]
    problems += [
        f"files lacks {name}" for name in dict.fromkeys(used) if name not in values["files"]
    ]
    if values["default_precision"] not in values["graphs"]:
        problems.append(f"there is no graph of the default precision {values['default_precision']}")
    calibration = values["calibration"]
    if len(calibration["scores"]) != len(calibration["probabilities"]):
        problems.append("calibration has more scores than probabilities, or fewer")
    if len({name.lower() for name in values["files"]}) < len(values["files"]):
        problems.append("files has names that differ only in case")
    return problems


_CODE = r"[A-Za-z]{2,8}(?:_[A-Za-z0-9]+)*"
_LANGS = re.compile(rf"({_CODE}(?:\+{_CODE})*)-({_CODE}(?:\+{_CODE})*)")


def language_codes(langs: str) -> tuple[str, str]:
    """Of `--langs`: `zh_Hans-en` is written with "_" inside a code, as "-" parts the two."""
    found = _LANGS.fullmatch(langs)
    if not found:
        raise MxError(f"the languages must be two codes such as de-en, not {langs!r}")
    return found[1].replace("_", "-"), found[2].replace("_", "-")


# ---- folder or zip ----


class _Folder:
    """Reads files of a folder. A name may be a link: what it leads to must have the right hash."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str, limit: int) -> bytes | None:
        """At most `limit` bytes of the file; None if there is no such file."""
        file = self.path / name
        if not file.is_file():
            return None
        with open(file, "rb") as stream:
            return stream.read(limit)

    def size(self, name: str) -> int | None:
        file = self.path / name
        return file.stat().st_size if file.is_file() else None


class _Zip:
    """Reads files of a zip file: at its top, or all inside one folder, as zip tools make it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            tops = [n.removesuffix(MANIFEST) for n in names if n.split("/")[-1] == MANIFEST]
            tops = [top for top in tops if top.count("/") <= 1]
            self.top = "" if "" in tops or len(tops) != 1 else tops[0]
            self.sizes = {info.filename: info.file_size for info in archive.infolist()}

    def read(self, name: str, limit: int) -> bytes | None:
        """At most `limit` unpacked bytes of the file; None if there is no such file."""
        if self.top + name not in self.sizes:
            return None
        with zipfile.ZipFile(self.path) as archive, archive.open(self.top + name) as stream:
            return stream.read(limit)

    def size(self, name: str) -> int | None:
        return self.sizes.get(self.top + name)


class Bundle:
    """A model ready to be run, read-only. Graphs are read, and their hashes checked, when asked
    for: starting with one precision does not cost the reading of the others."""

    def __init__(self, path: Path, store: _Folder | _Zip, manifest: Manifest, digest: str) -> None:
        self.path = path
        self.manifest = manifest
        self.digest = digest  # SHA-256 of the manifest, which holds those of all other files
        self._store = store

    @classmethod
    def load(cls, path: str | Path) -> Bundle:
        """The bundle at `path`, a folder or a zip file."""
        path = Path(path)
        with _reading(path):
            if not path.exists():
                raise BundleError(f"there is no model bundle {path}; check the path")
            if not path.is_dir() and not zipfile.is_zipfile(path):
                raise BundleError(
                    f"{path} is neither a bundle folder nor a zip file of one; "
                    "`mx-export` makes bundles"
                )
            store = _Folder(path) if path.is_dir() else _Zip(path)
            data = store.read(MANIFEST, _MAX_MANIFEST + 1)
            if data is None:
                raise BundleError(f"{path} is not a model bundle: it has no {MANIFEST}")
            if len(data) > _MAX_MANIFEST:
                raise BundleError(f"{path}: {MANIFEST} is too large to be one")
            manifest = read_manifest(data, str(path))
            bundle = cls(path, store, manifest, hashlib.sha256(data).hexdigest())
            bundle._check_sizes()
        return bundle

    def _check_sizes(self) -> None:
        """All files are there and whole, as far as can be told without reading them."""
        sizes = {name: self._store.size(name) for name in self.manifest.files}
        missing = [name for name, size in sizes.items() if size is None]
        if missing:
            raise BundleError(f"{self.path} is incomplete: it lacks {', '.join(missing)}")
        for name, info in self.manifest.files.items():
            if sizes[name] != info.size:
                raise BundleError(
                    f"{self.path}: {name} has {sizes[name]:,} bytes instead of {info.size:,}; "
                    "fetch the bundle again"
                )

    def read(self, name: str) -> bytes:
        """The content of a file of the bundle, with its hash checked."""
        info = self.manifest.files[name]
        with _reading(self.path):
            data = self._store.read(name, info.size + 1)
        if data is None:
            raise BundleError(f"{self.path} is incomplete: it lacks {name}")
        if hashlib.sha256(data).hexdigest() != info.sha256:
            raise BundleError(
                f"{self.path}: {name} is not the file the bundle was made with (its SHA-256 "
                "differs); fetch the bundle again"
            )
        return data

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of the source and the target language; "und" if they were not told, and "de+fr" if
        that side may be in either."""
        return self.manifest.languages

    @property
    def pairs(self) -> list[str]:
        """The pairs of languages that it aligns, like "de-en"."""
        src, tgt = self.languages
        return [f"{s}-{t}" for s in src.split("+") for t in tgt.split("+")]

    def order(self, langs: str) -> int:
        """1 if these languages, like "de-en", are a pair of its own, -1 if they are one the other
        way round, 0 if they are neither."""
        src, tgt = ([code.lower() for code in side.split("+")] for side in self.languages)
        if langs.lower() in (f"{s}-{t}" for s in src for t in tgt):
            return 1
        return -1 if langs.lower() in (f"{t}-{s}" for s in src for t in tgt) else 0

    @property
    def max_length(self) -> int:
        """The pieces of a side the model was trained on; longer sentences are beyond it."""
        return self.manifest.max_length

    @property
    def precisions(self) -> tuple[str, ...]:
        """Precisions there are graphs of, the default one first."""
        rest = (p for p in PRECISIONS if p in self.manifest.graphs)
        return tuple(dict.fromkeys([self.manifest.default_precision, *rest]))

    def graph(self, precision: str | None = None) -> bytes:
        """The ONNX model of a precision, checked to refer to no other file."""
        precision = precision or self.manifest.default_precision
        if precision not in self.manifest.graphs:
            raise BundleError(
                f"{self.path} has no {precision} graph; it has {', '.join(self.precisions)}"
            )
        name = self.manifest.graphs[precision]
        data = self.read(name)
        check_self_contained(data, f"{self.path}: {name}")
        return data

    @cached_property
    def _tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        vocabulary = self.manifest.tokenizer
        seen = {"lowercase": vocabulary.lowercase, "fold_accents": vocabulary.fold_accents}
        src = Tokenizer.load(self.read(vocabulary.src), **seen)
        if vocabulary.tgt == vocabulary.src:
            return src, src
        return src, Tokenizer.load(self.read(vocabulary.tgt), **seen)

    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """The source and the target tokenizer; one and the same if the sides share a vocabulary."""
        return self._tokenizers

    def threshold(self, wish: Wish = "aer") -> float:
        """The score from which a word pair is a link, for the lowest AER, for few wrong links
        ("precision") or for few missing ones ("recall")."""
        if wish not in WISHES:
            raise MxError(f"no threshold for {wish!r}; there are {', '.join(WISHES)}")
        return float(getattr(self.manifest.thresholds, wish))

    def calibrate(self, scores: npt.ArrayLike) -> Floats:
        """The probability that a word pair of this score is a link, for each score."""
        table = self.manifest.calibration
        values = np.interp(np.asarray(scores, np.float64), table.scores, table.probabilities)
        return np.asarray(values, np.float64)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns what can go wrong with a file into BundleError."""
    try:
        yield
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise BundleError(f"{path} is a damaged zip file ({error})") from None


# ---- what an ONNX file may refer to ----

# How onnx.proto reaches its tensors and nodes: message -> field -> message.
_SCHEMA: dict[str, dict[int, str]] = {
    "Model": {7: "Graph", 20: "Training", 25: "Function"},
    "Training": {1: "Graph", 2: "Graph"},
    "Graph": {1: "Node", 5: "Tensor", 15: "SparseTensor"},
    "Function": {7: "Node", 11: "Attribute"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "SparseTensor",
                  23: "SparseTensor"},
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
    "Tensor": {},
}  # fmt: skip
_MAX_DEPTH = 40


def check_self_contained(data: bytes, where: str) -> None:
    """An error if an ONNX model keeps tensors in other files, or runs code kept in them.

    ONNX Runtime would open such a file wherever it is, so this is looked for in the protobuf
    itself, before the runtime sees the model.
    """
    waiting: list[tuple[str, memoryview, int]] = [("Model", memoryview(data), 0)]
    graphs = 0
    while waiting:
        message, view, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise BundleError(f"{where} is nested too deeply to be one of our graphs")
        try:
            for field, value in _fields(view):
                if message == "Tensor" and (field == 13 or (field == 14 and value != 0)):
                    raise BundleError(
                        f"{where} keeps weights in another file, which a bundle must not do"
                    )
                if message == "Node" and field == 4 and _is_text(value, b"EPContext"):
                    raise BundleError(f"{where} loads compiled code, which a bundle must not do")
                if (inner := _SCHEMA[message].get(field)) and isinstance(value, memoryview):
                    waiting.append((inner, value, depth + 1))
                    graphs += message == "Model" and field == 7
        except (IndexError, ValueError):
            raise BundleError(f"{where} is not a valid ONNX file") from None
    if graphs != 1:
        raise BundleError(f"{where} is not a valid ONNX file")


def _is_text(value: memoryview | int, text: bytes) -> bool:
    return isinstance(value, memoryview) and value.tobytes() == text


def _fields(view: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Field numbers and values of a protobuf message; IndexError or ValueError if it is none."""
    place, end = 0, len(view)
    while place < end:
        key, place = _varint(view, place)
        if key >> 32:  # readers that keep 32 bits would see another field than we do
            raise ValueError("tag too large")
        field, kind = key >> 3, key & 7
        if kind == 0:
            value, place = _varint(view, place)
            yield field, value
            continue
        if kind == 2:
            size, place = _varint(view, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError
        if place + size > end:
            raise ValueError
        yield field, view[place : place + size]
        place += size


def _varint(view: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[place]
        value |= (byte & 127) << shift
        place += 1
        if byte < 128:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError


# ---- writing ----


def write_bundle(
    path: str | Path, manifest: Manifest, files: Mapping[str, bytes], *, force: bool = False
) -> Bundle:
    """Write a folder, or a zip file if `path` ends in `.zip`, that appears whole or not at all.

    `manifest.files` is filled in from `files`. With `force`, a bundle already there is replaced;
    anything else at `path` stays, with an error.
    """
    path = Path(path)
    check_free(path, force)
    listed = {name: File(len(d), hashlib.sha256(d).hexdigest()) for name, d in files.items()}
    manifest = replace(manifest, files=listed)
    content = {MANIFEST: manifest.to_json(), **files}
    read_manifest(content[MANIFEST], str(path))  # never write what could not be read again
    temp = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        if path.suffix == ".zip":
            _write_zip(temp, content)
        else:
            _write_folder(temp, content)
        _put(temp, path)
        sync_folder(path.parent)
    except OSError as error:
        raise MxError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        _remove(temp)
    return Bundle.load(path)


def check_free(path: Path, force: bool) -> None:
    """An error if `path` cannot be written: something is there that must not be replaced."""
    if not path.parent.is_dir():
        raise MxError(f"cannot write {path}: its folder does not exist; create it first")
    if not os.path.lexists(path):
        return
    if not force:
        raise MxError(f"{path} exists already; give another name, or --force to replace it")
    try:
        if not (path.is_dir() and not any(path.iterdir())):
            Bundle.load(path)
    except BundleError:
        if not (path.is_dir() and (path / MANIFEST).is_file()):
            raise MxError(
                f"{path} exists and is not a bundle, so --force does not replace it; remove it"
            ) from None


def _write_folder(temp: Path, content: Mapping[str, bytes]) -> None:
    temp.mkdir()
    for name, data in content.items():
        with open(temp / name, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    sync_folder(temp)


def _write_zip(temp: Path, content: Mapping[str, bytes]) -> None:
    """Uncompressed, because weights hardly shrink; no times, so equal content is equal bytes."""
    with open(temp, "xb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, data in content.items():
                info = zipfile.ZipInfo(name)
                info.external_attr = 0o644 << 16
                archive.writestr(info, data)
        file.flush()
        os.fsync(file.fileno())


def _put(temp: Path, path: Path) -> None:
    """Move into place; an older bundle there steps aside first and returns if that fails."""
    if not os.path.lexists(path):
        temp.rename(path)
        return
    aside = temp.with_suffix(".old")
    path.rename(aside)
    try:
        temp.rename(path)
    except OSError:
        aside.rename(path)
        raise
    _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
