"""A model bundle opened for reading: a folder, or a zip file of the same content.

Checks names, sizes and hashes before anything is used. Does not run the model, and needs neither
torch nor onnx. docs/bundle.md describes the format.
"""

from __future__ import annotations

import copy
import hashlib
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BackendError, BundleError, MxError, clean_text
from ..text.pieces import PieceTokenizer
from .languages import parse_language_pair
from .manifest import DTYPES, MANIFEST, OPTIMIZE_FOR, Manifest, OptimizeFor, parse_manifest
from .onnx_check import check_ops, check_self_contained
from .read_out import read_prior
from .spm_check import check_pieces_model, try_pieces_model

_MAX_MANIFEST = 1 << 24
# Bytes that a file of a zip may unpack to for each packed one, from 1 MB on. Weights hardly shrink
# (1.1 times), vocabularies four times.
_MAX_RATIO, _RATIO_FROM = 50, 1 << 20
# Bundles that come with the package.
MODELS = Path(__file__).resolve().parents[1] / "models"
_FEW_PAIRS = 6  # of languages, which messages name one by one


class Bundle:
    """A model ready to be run, read-only. Graphs are read, and their hashes checked, when asked
    for: starting with one dtype does not cost the reading of the others."""

    def __init__(self, store: _Store, manifest: Manifest, digest: str) -> None:
        self.path = store.path
        self.manifest = manifest
        self.digest = digest  # SHA-256 of the manifest, which holds those of all other files
        self.name = manifest.name
        # Codes of source and target; "und" if they were not told, "de+fr" if it may be in either.
        self.languages = manifest.languages
        # The pieces of a side the model was trained on; longer sentences are beyond it.
        self.max_length = manifest.max_length
        self._store = store

    @classmethod
    def load(cls, path: str | Path) -> Bundle:
        """Open the bundle at `path`; all its files must be there and of the right size."""
        path = Path(path)
        with _bundle_errors(path):
            if not path.exists():
                raise BundleError(f"there is no model bundle {path}; check the path")
            if not path.is_dir() and not zipfile.is_zipfile(path):
                raise BundleError(
                    f"{path} is neither a bundle folder nor a zip file of one; "
                    "`mx-export` makes bundles"
                )
            store = _Store(path)
            if store.size(MANIFEST) is None:
                raise BundleError(f"{path} is not a model bundle: it has no {MANIFEST}")
            data = store.read(MANIFEST, _MAX_MANIFEST + 1)
            if len(data) > _MAX_MANIFEST:
                raise BundleError(f"{path}: {MANIFEST} is too large to be one")
            manifest = parse_manifest(data, str(path))
            sizes = {name: store.size(name) for name in manifest.files}
        if missing := [name for name, size in sizes.items() if size is None]:
            raise BundleError(f"{path} is incomplete: it lacks {', '.join(missing)}")
        for name, info in manifest.files.items():
            if sizes[name] != info.size:
                raise BundleError(
                    f"{path}: {name} has {sizes[name]:,} bytes instead of {info.size:,}; "
                    "fetch the bundle again"
                )
        return cls(store, manifest, hashlib.sha256(data).hexdigest())

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process by name; it must be the same bundle there."""
        return _reopen_bundle, (str(self.path.absolute()), self.digest)

    def read_file(self, name: str) -> bytes:
        """Return the content of a file of the bundle, with its hash checked."""
        info = self.manifest.files[name]
        with _bundle_errors(self.path):
            # One byte more than it should have, no more: a zip may unpack to any size.
            data = self._store.read(name, info.size + 1)
        if hashlib.sha256(data).hexdigest() != info.sha256:
            raise BundleError(
                f"{self.path}: {name} is not the file the bundle was made with (its SHA-256 "
                "differs); fetch the bundle again"
            )
        return data

    @property
    def language_pairs(self) -> list[str]:
        """The pairs of languages that it aligns, like "de-en"; of de+fr and en "de-en", "fr-en"."""
        src, tgt = (side.split("+") for side in self.languages)
        return [f"{s}-{t}" for t in tgt for s in src if s != t or len(src) == 1]

    @property
    def told_pairs(self) -> list[str]:
        """The pairs as messages tell them: of many languages, one text for all."""
        if len(self.language_pairs) <= _FEW_PAIRS:
            return self.language_pairs
        src, tgt = (side.split("+") for side in self.languages)
        if set(src) < set(tgt):
            return [f"any two of {' '.join(sorted(tgt))}"]
        return [f"{' '.join(tgt)} with any of {' '.join(src)}"]

    def language_order(self, langs: str) -> int:
        """Return 1 if languages like "de-en" are a pair of its own, -1 if they are one the other
        way round, 0 if they are neither."""
        src, tgt = (side.lower().split("+") for side in self.languages)
        orders = {f"{t}-{s}": -1 for s in src for t in tgt}
        orders |= {f"{s}-{t}": 1 for s in src for t in tgt}
        if langs.lower() in orders:
            return orders[langs.lower()]
        with suppress(MxError):  # deu-eng, pt_BR-en, german-english
            return orders.get("-".join(parse_language_pair(langs)), 0)
        return 0

    @property
    def label(self) -> str:
        """What signatures call it: its name, the beginning of its digest, and how it is read."""
        read = f"|read:{self.manifest.read}" if self.manifest.read else ""
        return f"{self.name}#{self.digest[:8]}{read}"

    def choose_reading(self, read: str | None) -> Bundle:
        """Return the bundle, to be read as "prior" or "posterior"; None takes its own way."""
        known = self.manifest
        if read in (None, known.read):
            return self
        if read not in known.readings:
            have = [known.read, *known.readings] if known.read else []
            there = ", ".join(have) if have else "one way only, as students and older bundles have"
            raise BundleError(f"{self.path} cannot be read as {read}: there is {there}")
        meaning = known.readings[read]
        found = copy.copy(self)
        found.manifest = replace(
            known, read=read, thresholds=meaning.thresholds, calibration=meaning.calibration
        )
        return found

    # ---- graphs ----

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes there are graphs of, the default one first."""
        rest = (dtype for dtype in DTYPES if dtype in self.manifest.graphs)
        return tuple(dict.fromkeys([self.manifest.default_dtype, *rest]))

    def choose_dtype(self, wanted: str | None, backend: str) -> str:
        """Return the dtype whose graph a backend ("cpu", "cuda", "kernels", …) should run.

        That is the one `wanted`; with None the bundle's default where it suits a CPU, and on GPUs
        fp16, or else fp32. BundleError if the bundle lacks the wanted one, BackendError if the
        backend can run none of those it has, so that `auto` tries the next backend.
        """
        if wanted == "int8" and backend != "cpu":
            # ONNX Runtime would take the CPU for all that CUDA cannot multiply, and not say so;
            # TensorRT does not read our int8 graphs.
            raise BackendError(
                f"{backend}: int8 graphs are for CPUs; give --dtype fp16 or --backend cpu"
            )
        if wanted is not None:
            self._check_dtype(wanted)
            return wanted
        if backend == "cpu":
            # Few CPUs compute in fp16: it is taken only if there is nothing else.
            return next((dtype for dtype in self.dtypes if dtype != "fp16"), "fp16")
        for dtype in ("fp16", "fp32"):
            if dtype in self.dtypes:
                return dtype
        raise BackendError(f"{backend}: {self.path} has no fp16 or fp32 graph")

    def read_graph(self, dtype: str | None = None) -> bytes:
        """Return the ONNX model of a dtype, or of the default one, checked to refer to no file."""
        dtype = dtype or self.manifest.default_dtype
        self._check_dtype(dtype)
        name = self.manifest.graphs[dtype]
        data = self.read_file(name)
        check_self_contained(data, f"{self.path}: {name}")
        check_ops(data, f"{self.path}: {name}")
        return read_prior(data) if self.manifest.read == "prior" else data

    def _check_dtype(self, dtype: str) -> None:
        if dtype not in self.manifest.graphs:
            raise BundleError(f"{self.path} has no {dtype} graph; it has {', '.join(self.dtypes)}")

    # ---- what else a model needs ----

    @cached_property
    def tokenizers(self) -> tuple[PieceTokenizer, PieceTokenizer]:
        """The tokenizers of both sides, one and the same if they share a vocabulary."""
        vocabulary = self.manifest.tokenizer
        seen = {"lowercase": vocabulary.lowercase, "fold_accents": vocabulary.fold_accents}
        src = PieceTokenizer(self._read_pieces_model(vocabulary.src), **seen)
        if vocabulary.tgt == vocabulary.src:
            return src, src
        return src, PieceTokenizer(self._read_pieces_model(vocabulary.tgt), **seen)

    def _read_pieces_model(self, name: str) -> bytes:
        """Return a SentencePiece model that its C++ code can be trusted with."""
        data = self.read_file(name)
        check_pieces_model(data, f"{self.path}: {name}")
        if not self.came_with_package:
            try_pieces_model(data, f"{self.path}: {name}")
        return data

    @property
    def came_with_package(self) -> bool:
        """Whether it is one of those in the package itself, and not somebody else's."""
        return self.path.resolve().is_relative_to(MODELS)

    def threshold(self, optimize_for: OptimizeFor = "aer") -> float:
        """Return the score from which a word pair is a link, for the lowest AER, for few wrong
        links ("precision") or for few missing ones ("recall")."""
        if optimize_for not in OPTIMIZE_FOR:
            raise MxError(f"no threshold for {optimize_for!r}; there are {', '.join(OPTIMIZE_FOR)}")
        return float(getattr(self.manifest.thresholds, optimize_for))

    def calibrate(self, scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return for each score the probability that a word pair of this score is a link."""
        table = self.manifest.calibration
        values = np.interp(np.asarray(scores, np.float64), table.scores, table.probabilities)
        return np.asarray(values, np.float64)


def _reopen_bundle(path: str, digest: str) -> Bundle:
    bundle = Bundle.load(path)
    if bundle.digest != digest:
        raise BundleError(f"{path} is not the bundle any more that was opened; start again")
    return bundle


# ---- folder or zip ----


class _Store:
    """Reads files of a folder, or of a zip file: at its top, or all inside one folder, as zip tools
    make it. A name in a folder may be a link: what it leads to must have the right hash."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_dir():
            return
        with zipfile.ZipFile(path) as archive:
            files = archive.infolist()
        self._sizes = {info.filename: info.file_size for info in files}
        if len(self._sizes) < len(files):
            raise BundleError(f"{path} has two files of one name")
        for info in files:
            if info.file_size > max(_RATIO_FROM, _MAX_RATIO * info.compress_size):
                raise BundleError(
                    f"{path}: {clean_text(info.filename)[:100]} unpacks to {info.file_size:,} "
                    f"bytes from {info.compress_size:,}, too many for a model"
                )
        tops = [name.removesuffix(MANIFEST) for name in self._sizes if Path(name).name == MANIFEST]
        tops = [top for top in tops if top.count("/") <= 1]
        self._top = "" if "" in tops or len(tops) != 1 else tops[0]

    def size(self, name: str) -> int | None:
        """Return the unpacked bytes of a file; None if there is no such file."""
        if self.path.is_dir():
            file = self.path / name
            return file.stat().st_size if file.is_file() else None
        return self._sizes.get(self._top + name)

    def read(self, name: str, limit: int) -> bytes:
        """Return at most `limit` unpacked bytes of a file."""
        if self.path.is_dir():
            with open(self.path / name, "rb") as stream:
                return stream.read(limit)
        with zipfile.ZipFile(self.path) as archive, archive.open(self._top + name) as packed:
            return packed.read(limit)


@contextmanager
def _bundle_errors(path: Path) -> Iterator[None]:
    """Turn what can go wrong with a file into BundleError."""
    try:
        yield
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError) as error:
        raise BundleError(f"{path} is a damaged zip file ({error})") from None
