"""`manifest.json` of a bundle: its fields, how its languages are written, checks, exact bytes.

Does not read any other file of the bundle. docs/bundle.md describes the format.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from ..errors import BundleError, MxError, clean_text

BUNDLE_FORMAT = "mx-bundle"
BUNDLE_VERSION = 3
MANIFEST = "manifest.json"
DTYPES = ("fp32", "fp16", "int8")

Languages = tuple[str, str]  # source, target; "und" if unknown, "de+fr" if it may be either
OptimizeFor = Literal["aer", "precision", "recall"]
READS = ("prior", "posterior")  # ways to read Mask-Align's weights as alignment
OPTIMIZE_FOR: tuple[OptimizeFor, ...] = get_args(OptimizeFor)

# Fields that are called otherwise in the file; bundles of all versions say it this way.
_FILE_KEYS = {"default_dtype": "default_precision"}

# A flat name: no separator, no drive, no leading dot, so that no path can leave the folder.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# Names that Windows takes for devices, whatever their suffix.
_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
# Far more than any aligner has: the largest known takes 1.2 GB and 8,192 pieces.
_MAX_BYTES, _MAX_FILES, _MAX_LENGTH = 1 << 33, 200, 1 << 14
_SHA256 = re.compile(r"[0-9a-f]{64}")
# Languages of a side as in BCP 47 ("de", "zh-Hans", "de+fr"); and those of two sides in `--langs`,
# where an underscore stands inside a code, because the hyphen parts the two ("zh_Hans-en").
_SUBTAGS = r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*"
_SIDE = re.compile(rf"{_SUBTAGS}(?:\+{_SUBTAGS})*")
_CODE = r"[A-Za-z]{2,8}(?:_[A-Za-z0-9]+)*"
_PAIR = re.compile(rf"({_CODE}(?:\+{_CODE})*)-({_CODE}(?:\+{_CODE})*)")


@dataclass(frozen=True)
class FileEntry:
    """Size in bytes and SHA-256 of a file of the bundle."""

    size: int
    sha256: str


@dataclass(frozen=True)
class VocabularyFiles:
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
    """The link threshold for each value of `optimize_for`, and how they were found."""

    aer: float
    precision: float
    recall: float
    chosen: str


@dataclass(frozen=True)
class Reading:
    """What scores mean if the model is read in another way than by default."""

    thresholds: Thresholds
    calibration: Calibration


@dataclass(frozen=True)
class Manifest:
    """What `manifest.json` says. `model`, `training` and `measured` are for people; aligning needs
    none of them. `mx-train --start` takes the network's shape from the first two."""

    name: str
    languages: Languages
    max_length: int  # pieces of a side the model was trained on
    graphs: Mapping[str, str]  # dtype -> file
    default_dtype: str
    tokenizer: VocabularyFiles
    thresholds: Thresholds
    calibration: Calibration
    model: Mapping[str, Any]  # the network's settings
    training: Mapping[str, Any]  # where the weights come from
    measured: Mapping[str, Any]  # what was measured when the bundle was made
    made_by: str
    files: Mapping[str, FileEntry]
    read: str = ""  # which of READS thresholds and calibration are for; "" if there is no choice
    readings: Mapping[str, Reading] = field(default_factory=dict)  # the other READS

    def to_json(self) -> bytes:
        """Return the bytes of `manifest.json`; equal manifests give equal bytes."""
        values = {_FILE_KEYS.get(key, key): value for key, value in asdict(self).items()}
        data = {"format": BUNDLE_FORMAT, "version": BUNDLE_VERSION, **values}
        return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


# ---- reading ----


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Return the manifest in these bytes; an error names everything that is wrong with it."""
    try:
        values = json.loads(
            data.decode("utf-8"),
            parse_constant=_refuse_constant,
            object_pairs_hook=_refuse_twins,
        )
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{where}: {MANIFEST} is not valid JSON ({error})") from None
    if not isinstance(values, dict) or values.get("format") != BUNDLE_FORMAT:
        raise BundleError(
            f"{where} is not a model bundle: {MANIFEST} lacks format {BUNDLE_FORMAT!r}"
        )
    version = values.get("version")
    if type(version) is not int or version < 1:
        raise BundleError(f"{where}: {MANIFEST} has no valid version; make the bundle again")
    if version > BUNDLE_VERSION:
        raise BundleError(
            f"{where} is a bundle of version {version}, but this mx-align reads up to "
            f"{BUNDLE_VERSION}; update it: pip install -U mx-align"
        )
    if version < 2 and isinstance(values.get("tokenizer"), dict):
        values["tokenizer"].setdefault("fold_accents", False)  # not known then
    if (text := _find_unprintable(values)) is not None:
        raise BundleError(f"{where}: {MANIFEST} has control characters: {text[:60]!r}")
    if version < 3:  # there was one way to read a model
        values.setdefault("read", "")
        values.setdefault("readings", {})
    if problems := _find_problems(values):
        raise BundleError(f"{where}: {MANIFEST} is damaged: {'; '.join(problems)}")
    found = {each.name: values[_FILE_KEYS.get(each.name, each.name)] for each in fields(Manifest)}
    found["languages"] = tuple(values["languages"])
    found["tokenizer"] = VocabularyFiles(**values["tokenizer"])
    found |= _parse_meaning(values)
    found["readings"] = {
        name: Reading(**_parse_meaning(part)) for name, part in values["readings"].items()
    }
    found["files"] = {name: FileEntry(**info) for name, info in values["files"].items()}
    return Manifest(**found)


def _parse_meaning(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return thresholds and calibration, which stand side by side in a manifest or a reading."""
    table = values["calibration"]
    points = {name: tuple(table[name]) for name in ("scores", "probabilities")}
    return {
        "thresholds": Thresholds(**values["thresholds"]),
        "calibration": Calibration(**points, chosen=table["chosen"]),
    }


def parse_languages(langs: str) -> Languages:
    """Return the two codes of `--langs`; MxError if it is no pair of codes."""
    found = _PAIR.fullmatch(langs)
    if not found:
        raise MxError(f"the languages must be two codes such as de-en, not {langs!r}")
    return found[1].replace("_", "-"), found[2].replace("_", "-")


def _refuse_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs; programs differ in which of two equal keys they heed."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return found


def _find_unprintable(value: Any) -> str | None:
    """Return a text, of all that are in a value, which would move a terminal."""
    if isinstance(value, str):
        return value if clean_text(value) != value else None
    inner = (*value, *value.values()) if isinstance(value, dict) else value
    if not isinstance(inner, tuple | list):
        return None
    return next((bad for one in inner if (bad := _find_unprintable(one)) is not None), None)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _find_problems(values: Mapping[str, Any]) -> list[str]:
    """List what is wrong with each value, and if nothing is, what is wrong between them."""
    found = set(values) - {"format", "version"}
    problems = [f"missing {key}" for key in sorted(set(_CHECKS) - found)]
    problems += [f"unknown {key!r}" for key in sorted(found - set(_CHECKS))]
    problems += [
        f"{key} {problem}"
        for key in sorted(set(_CHECKS) & found)
        for problem in _CHECKS[key](values[key])
    ]
    if problems:
        return problems
    used = [*values["graphs"].values(), values["tokenizer"]["src"], values["tokenizer"]["tgt"]]
    missing = [name for name in dict.fromkeys(used) if name not in values["files"]]
    problems += [f"files lacks {name}" for name in missing]
    if (dtype := values["default_precision"]) not in values["graphs"]:
        problems.append(f"there is no graph of the default precision {dtype}")
    for each in (values, *values["readings"].values()):
        if len(each["calibration"]["scores"]) != len(each["calibration"]["probabilities"]):
            problems.append("calibration has more scores than probabilities, or fewer")
    if sum(info["size"] for info in values["files"].values()) > _MAX_BYTES:
        problems.append(f"files are more than {_MAX_BYTES:,} bytes together")
    if len({name.lower() for name in values["files"]}) < len(values["files"]):
        problems.append("files has names that differ only in case")
    return problems


# ---- checks of single values ----

_Check = Callable[[Any], Iterator[str]]  # yields what is wrong, nothing if all is well


def _must_be(what: str, test: Callable[[Any], bool]) -> _Check:
    return lambda value: iter(() if test(value) else (f"must be {what}",))


def _must_have(checks: Mapping[str, _Check]) -> _Check:
    """Return a check for an object with exactly these keys."""

    def check(value: Any) -> Iterator[str]:
        if not isinstance(value, dict) or set(value) != set(checks):
            yield f"must have the keys {', '.join(checks)}"
            return
        for key, inner in checks.items():
            yield from (f"{key} {problem}" for problem in inner(value[key]))

    return check


# `type(...) is int` where bool must not pass: to Python, True is an int.


def _is_fraction(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value <= 1


def _is_rising(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= 2
        and all(map(_is_fraction, value))
        and (value == sorted(value))
    )


def _is_file_name(value: Any) -> bool:
    return isinstance(value, str) and bool(_NAME.fullmatch(value) and not _DEVICE.fullmatch(value))


def _is_languages(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(side, str) and _SIDE.fullmatch(side) for side in value)
    )


def _check_files(value: Any) -> Iterator[str]:
    if not isinstance(value, dict) or not 0 < len(value) <= _MAX_FILES:
        yield f"must list the files, at most {_MAX_FILES}"
        return
    for name, info in value.items():
        if not _is_file_name(name) or name == MANIFEST:
            yield f"has {name!r}, which is not a file name without a path"
        yield from (f"{name} {problem}" for problem in _FILE(info))


def _check_graphs(value: Any) -> Iterator[str]:
    if not isinstance(value, dict) or not value or not set(value) <= set(DTYPES):
        yield f"must have some of the keys {', '.join(DTYPES)}"
        return
    yield from _must_have(dict.fromkeys(value, _FILE_NAME))(value)


def _check_readings(value: Any) -> Iterator[str]:
    if not isinstance(value, dict) or not set(value) <= set(READS):
        yield f"must have none but the keys {', '.join(READS)}"
        return
    checks = {name: _CHECKS[name] for name in ("thresholds", "calibration")}
    yield from _must_have(dict.fromkeys(value, _must_have(checks)))(value)


_TEXT = _must_be("text", lambda v: isinstance(v, str))
_BOOL = _must_be("true or false", lambda v: isinstance(v, bool))
_OBJECT = _must_be("an object", lambda v: isinstance(v, dict))
_FRACTION = _must_be("a number from 0 to 1", _is_fraction)
_RISING = _must_be("two or more rising numbers from 0 to 1", _is_rising)
_FILE_NAME = _must_be("a file name without a path", _is_file_name)
_SIZE = _must_be("a size in bytes", lambda v: type(v) is int and v >= 0)
_HASH = _must_be("64 hex digits", lambda v: isinstance(v, str) and bool(_SHA256.fullmatch(v)))
_FILE = _must_have({"size": _SIZE, "sha256": _HASH})
# By the keys of the file.
_CHECKS: dict[str, _Check] = {
    "name": _TEXT,
    "languages": _must_be("two language codes", _is_languages),
    "max_length": _must_be(
        f"a number of pieces, at most {_MAX_LENGTH:,}",
        lambda v: type(v) is int and 1 <= v <= _MAX_LENGTH,
    ),
    "graphs": _check_graphs,
    "default_precision": _TEXT,
    "tokenizer": _must_have(
        {"src": _FILE_NAME, "tgt": _FILE_NAME, "lowercase": _BOOL, "fold_accents": _BOOL}
    ),
    "thresholds": _must_have({**dict.fromkeys(OPTIMIZE_FOR, _FRACTION), "chosen": _TEXT}),
    "calibration": _must_have({"scores": _RISING, "probabilities": _RISING, "chosen": _TEXT}),
    "read": _must_be(f"empty, {' or '.join(READS)}", lambda v: v in ("", *READS)),
    "readings": _check_readings,
    "model": _OBJECT,
    "training": _OBJECT,
    "measured": _OBJECT,
    "made_by": _TEXT,
    "files": _check_files,
}
