"""Damage files in every way that comes to mind and read them: an MxError is the worst allowed.

Mutants that reach lines of the reader that none reached before are mutated further.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from ...engine.bundle.bundle import Bundle
from ...engine.bundle.manifest import parse_manifest
from ...engine.bundle.onnx_check import check_ops, check_self_contained
from ...engine.bundle.spm_check import check_pieces_model
from ...engine.errors import MxError
from ...engine.jobs.journal import read_records
from ...engine.jobs.merge import read_shard_record
from ...engine.links.link_files import read_link_file
from ...engine.runtime.onnx_cpu import CPU, start_session
from ...engine.statistical.aligner import StatisticalAligner
from ...engine.text.files import read_lines
from .bundles import graph, vocabulary, write_toy
from .fault_scenarios import make_scenarios
from .faults import NONE

_BATCH = 200  # mutants of one process
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 62)


@dataclass(frozen=True)
class Reader:
    """What reads a file, and a good one."""

    name: str
    good: bytes
    read: Callable[[Path], Any]
    may_crash: bool = False  # it is meant for a process of its own


def make_readers(folder: Path) -> list[Reader]:
    """Return the readers of everything that somebody else may have made."""
    scenarios = make_scenarios(folder, pairs=20)
    toy, packed = folder / "toy.mx", write_toy(folder / "toy.zip").path
    for name in ("mx-align, a shard", "mx-seed", "mx-align, .zst", "mx-align, .gz"):
        ending = scenarios[name].run(folder, NONE)
        assert ending.code == 0, ending
    (folder / "journal").write_bytes(b"")
    from ...engine.jobs.journal import write_records

    write_records(folder / "journal", [{"mx-align": 3}, *({"pairs": n} for n in range(9))])

    def read_graph(path: Path) -> None:
        data = path.read_bytes()
        check_self_contained(data, "m")
        check_ops(data, "m")
        start_session(data, [CPU], "m")

    def read_vocabulary(path: Path) -> None:
        check_pieces_model(path.read_bytes(), "m")

    def load_vocabulary(path: Path) -> None:
        import sentencepiece

        check_pieces_model(path.read_bytes(), "m")
        model: Any = sentencepiece.SentencePieceProcessor()
        with suppress(RuntimeError):
            model.LoadFromSerializedProto(path.read_bytes())
            model.encode("The cat é中")

    def read_bundle(path: Path) -> None:
        bundle = Bundle.load(path)
        for name in bundle.manifest.files:
            bundle.read_file(name)

    def read_text(path: Path) -> None:
        for _ in read_lines(path, errors="replace"):
            pass

    def read(name: str) -> bytes:
        return (folder / name).read_bytes()

    return [
        Reader("manifest.json", (toy / "manifest.json").read_bytes(), _read_manifest),
        Reader("graph.onnx", graph(40), read_graph),
        Reader("pieces.spm", vocabulary(), read_vocabulary),
        Reader("trial.spm", vocabulary(), load_vocabulary, may_crash=True),
        Reader("bundle.zip", packed.read_bytes(), read_bundle),
        Reader("model.npz", read("model.npz"), StatisticalAligner.load),
        Reader("links.scored", b"0-0:0.5 1-1:1 2-0:0.25\n\n3-3:0.9\n" * 5, _read_links),
        Reader("links.naacl", b"1 1 1 S\n1 2 3 P\n3 1 1\n" * 5, _read_links),
        Reader("links.talp", b"0-0 1p1\n\n3-3\n" * 5, _read_links),
        Reader("journal", read("journal"), read_records),
        Reader("x.shard.json", read("links.2.shard.json"), _read_shard),
        Reader("text.gz", read("links.gz"), read_text),
        Reader("text.zst", read("links.zst"), read_text),
    ]


def _read_shard(path: Path) -> None:
    read_shard_record(path.parent / "x")


def _read_manifest(path: Path) -> None:
    parse_manifest(path.read_bytes(), "m")


def _read_links(path: Path) -> None:
    read_link_file(str(path))


def fuzz_reader(reader: Reader, folder: Path, times: int, rng: random.Random) -> dict[str, int]:
    """Read so many mutants; return how many were read, were refused, or crashed if allowed to."""
    pool, seen = [reader.good], set[tuple[str, int]]()
    counts = {"read": 0, "refused": 0, "crashed": 0}
    for _ in range(-(-times // _BATCH)):
        mutants = [mutate(rng.choice(pool), rng) for _ in range(min(_BATCH, times))]
        start = 0
        while start < len(mutants):
            found = _read_in_fork(reader, folder / reader.name, mutants[start:])
            for data, (outcome, lines) in zip(mutants[start:], found, strict=False):
                counts[outcome] += 1
                if lines - seen and len(pool) < 500:
                    seen |= lines
                    pool.append(data)
            start += len(found)
            if start < len(mutants):
                if not reader.may_crash:
                    raise AssertionError(f"{reader.name} crashes: {mutants[start][:2000]!r}")
                counts["crashed"] += 1
                start += 1
    return counts


def _read_in_fork(
    reader: Reader, path: Path, mutants: list[bytes]
) -> list[tuple[str, set[tuple[str, int]]]]:
    """Read mutants in another process until it crashes; return what became of those before."""
    import pickle

    shared = mmap.mmap(-1, 1 << 24)
    process = os.fork()
    if not process:
        results = []
        signal.alarm(300)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        for data in mutants:
            path.write_bytes(data)
            results.append(_read_traced(reader, path))
            blob = pickle.dumps(results)
            shared.seek(0)
            shared.write(len(blob).to_bytes(8, "little") + blob)
            if results[-1][0].startswith("!"):
                break
        os._exit(0)
    os.waitpid(process, 0)
    size = int.from_bytes(shared[:8], "little")
    results = pickle.loads(shared[8 : 8 + size]) if size else []
    if results and results[-1][0].startswith("!"):
        raise AssertionError(f"{reader.name}: {results[-1][0]} for {mutants[len(results) - 1]!r}")
    return list(results)


def _read_traced(reader: Reader, path: Path) -> tuple[str, set[tuple[str, int]]]:
    lines: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, value: object) -> Any:
        name = frame.f_code.co_filename
        if "/engine/" not in name:
            return None
        lines.add((name.rpartition("/")[2], frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        reader.read(path)
        return "read", lines
    except MxError:
        return "refused", lines
    except Exception as error:
        return f"!{type(error).__name__}: {error}", lines
    finally:
        sys.settrace(None)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change a file in one to four places."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(changed) + 1)
        end = min(len(changed), place + rng.choice((1, 1, 2, 4, 8, 64, 4096)))
        kind = rng.randrange(6)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[place:end]
        elif kind == 2:
            changed[place:place] = changed[place:end]
        elif kind == 3:
            size = rng.choice((1, 2, 4, 8))
            value = rng.choice(_NUMBERS) & ((1 << 8 * size) - 1)
            changed[place : place + size] = value.to_bytes(size, rng.choice(("little", "big")))
        elif kind == 4:
            changed[place:end] = rng.randbytes(end - place)
        else:
            changed = changed[: rng.randrange(len(changed) + 1)] if rng.random() < 0.3 else changed
    return bytes(changed)
