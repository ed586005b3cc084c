"""Lines that nobody should write, and what must hold of links between them."""

import json
import random
from pathlib import Path

from ...engine.text.files import read_lines
from ...engine.text.words import split_words
from .bundles import LINES

WORDS = " ".join(LINES).split(" ")
ODD = [
    "\0", "\r", "\t", "  ", "\x0b", "\x0c", "\x1c", "\x1f", "\x7f", "\x85", "\xa0", "\xad",
    "\u0301", "\u061c", "\u180e", "\u2000", "\u200b", "\u200d", "\u2028", "\u2029", "\u202e",
    "\u2060", "\u3000", "\ufeff", "\ufffd", "\ufffe", "\U000e0001", "\U0010ffff", "|||", " ||| ",
    "|", "0-0", "<unk>", "▁", "<pad>", "中", "ก็", "\U0001f3f3\ufe0f\u200d", "ß", "İ", "ﬁ", "{",
    '"', "\\", "\\n", "%s", "a" * 300, "é" * 40,
]  # fmt: skip


def hostile(rng: random.Random) -> bytes:
    """A line, without its end, that may hold anything but a line end."""
    kind = rng.random()
    if kind < 0.05:
        return b""
    if kind < 0.2:  # bytes that are mostly not UTF-8
        return bytes(rng.randrange(256) for _ in range(rng.randrange(20))).replace(b"\n", b" ")
    if kind < 0.2005:
        return " ".join(rng.choices(WORDS, k=rng.randrange(200, 5000))).encode()
    parts = rng.choices(ODD, k=rng.randrange(8)) + rng.choices(WORDS, k=rng.randrange(4))
    rng.shuffle(parts)
    return rng.choice(["", " ", "  ", "\t"]).join(parts).encode()


def write_hostile(folder: Path, n: int, rng: random.Random) -> tuple[Path, Path]:
    """Write two files of n such lines."""
    paths = folder / "f.src", folder / "f.tgt"
    for path in paths:
        path.write_bytes(b"".join(hostile(rng) + b"\n" for _ in range(n)))
    return paths


def hostile_flags(bundle: Path, folder: Path) -> list[str]:
    """Return flags of mx-align that write all that `check_hostile` looks at."""
    return [
        "-m", str(bundle), "-o", str(folder / "out"), "--errors", "replace",
        "--report", str(folder / "report.json"), "--optimize-for", "recall",
        "--write-tokenized", str(folder / "words"),
    ]  # fmt: skip


def check_hostile(folder: Path, paths: tuple[Path, Path], n: int) -> None:
    """Check that every line has its links, inside the pair, and that counts are true."""
    links = (folder / "out").read_bytes().split(b"\n")[:-1]
    src, tgt = (list(read_lines(path, errors="replace")) for path in paths)
    assert len(links) == len(src) == len(tgt) == n
    empty = total = 0
    words = [list(read_lines(folder / f"words.{side}")) for side in ("src", "tgt")]
    for line, *pair, one, two in zip(links, src, tgt, *words, strict=True):
        sides = [split_words(side) for side in pair]
        assert sides == [split_words(one), split_words(two)]
        n_src, n_tgt = map(len, sides)
        empty += not n_src or not n_tgt
        made = [tuple(map(int, link.split(b"-"))) for link in line.split(b" ") if link]
        assert made == sorted(set(made))
        assert all(0 <= i < n_src and 0 <= j < n_tgt for i, j in made)
        total += len(made)
    numbers = json.loads((folder / "report.json").read_text())
    assert numbers["pairs"] == n and numbers["empty"] == empty and numbers["links"] == total
    assert numbers["windowed"] > 0 or n < 5000
