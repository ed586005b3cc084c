"""The flags of mx-align, and how their values are parsed.

Those that are about files stand in `jobs/corpus_options.py`: Python gives them, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ..jobs.corpus_options import CorpusOptions
from .flags import CommonFlags, argument, flag

TITLES = ("Input", "Model", "A model of your text", "Links", "Output", "Speed", "Cluster")
# What follows --ray is an address if it looks like one, else it is the first file.
_ADDRESS = re.compile(r"auto|local|ray://.+|[\w.-]+:\d+|\[[\da-fA-F:]+\]:\d+")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def parse_duration(text: str) -> int:
    """Parse a time like 30m, 2h, 1h30m or 90s into seconds."""
    match = _DURATION.fullmatch(text)
    hours, minutes, rest = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    if seconds := 3600 * hours + 60 * minutes + rest:
        return seconds
    raise ValueError(f"it must be a time like 30m, 2h or 1h30m, not {text!r}")


def parse_size(text: str) -> int:
    """Parse a size like 8G or 500M into bytes."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    number, unit = text[:-1], text[-1:].upper()
    if unit in units and number.isascii() and number.isdigit() and int(number):
        return int(number) * units[unit]
    raise ValueError(f"{text!r} is not a size like 8G, 500M")


def parse_numbers(text: str) -> tuple[int, ...]:
    """Parse numbers like 0,2, each kept once."""
    parts = text.split(",")
    if all(part.isascii() and part.isdigit() for part in parts):
        return tuple(dict.fromkeys(map(int, parts)))
    raise ValueError(f"{text!r} is not a list of numbers like 0,2")


def parse_name_pair(text: str) -> tuple[str, str]:
    """Parse two different names like src,tgt."""
    src, _, tgt = text.partition(",")
    if src and tgt and src != tgt and "," not in tgt:
        return src, tgt
    raise ValueError(f"{text!r} is not two names like src,tgt")


def give_ray_a_value(arguments: list[str]) -> list[str]:
    """Let --ray stand with an address or without."""
    for n, arg in enumerate(arguments):
        if arg == "--":
            break
        if arg == "--ray":
            given = n + 1 < len(arguments) and _ADDRESS.fullmatch(arguments[n + 1])
            address = arguments[n + 1] if given else ""
            return [*arguments[:n], f"--ray={address}", *arguments[n + 1 + bool(given) :]]
    return arguments


# fmt: off
@dataclass(frozen=True)
class AlignFlags(CorpusOptions, CommonFlags):
    """The flags of mx-align, besides those of `CorpusOptions`."""

    src: str | None = argument()
    tgt: str | None = argument()
    columns: tuple[str, str] = flag(
        ("src", "tgt"), "Names of the two sides in Parquet or JSONL (--ray) [default: src,tgt].",
        group="Input", metavar="SRC,TGT", parse=parse_name_pair)
    model: str | None = flag(
        None, "Folder or zip [default: by --langs].", group="Model", short="-m", metavar="BUNDLE")
    langs: str | None = flag(
        None, "Which installed model, like de-en, or en-de: turned round.",
        group="Model", metavar="SRC-TGT")
    backend: Literal["auto", "trt", "trt-rtx", "cuda", "cpu"] = flag(
        "auto", "What runs the model [default: auto, the fastest that works].", group="Model")
    dtype: Literal["fp32", "fp16", "int8"] | None = flag(
        None, "Arithmetic [default: the bundle's choice].", group="Model")
    train_on_input: bool = flag(
        False, "Train a model on SRC and TGT first, or use the one trained on them before.",
        group="A model of your text")
    budget: int | None = flag(
        None, "Time to train, like 45m, 2h or 1h30m [default: 30m].",
        group="A model of your text", metavar="TIME", parse=parse_duration)
    start: str | None = flag(
        None, "Begin with this model: an installed one, like fr-en, or a bundle or run folder.",
        group="A model of your text", metavar="MODEL")
    keep_model: str | None = flag(
        None, "Keep it here [default: in the user's cache folder].",
        group="A model of your text", metavar="BUNDLE")
    train_flags: str | None = flag(
        None, "More flags for mx-train, like '--preset compact'.",
        group="A model of your text", metavar="FLAGS")
    symmetrize: Literal[
        "soft", "intersect", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"
    ] = flag(
        "soft", "How the directions are joined [default: soft, the harmonic mean].", group="Links")
    forward: bool = flag(False, "Best source word of each target word only.", group="Links")
    backward: bool = flag(False, "Best target word of each source word only.", group="Links")
    threshold: float | None = flag(
        None, "Lowest score of a link [default: the bundle's; of an average 0.42].",
        group="Links", metavar="T", minimum=0, maximum=1, above=True)
    optimize_for: Literal["precision", "recall", "aer"] | None = flag(
        None, "The threshold for few wrong links, few missing ones, or both [default: aer].",
        group="Links")
    signature: bool = flag(
        False, "End with one line on how the links were made.", group="Output")
    threads: int | None = flag(
        None, "Threads that run the model on the CPU [default: all cores].",
        group="Speed", metavar="N", minimum=1)
    gpu_memory: int | None = flag(
        None, "Most memory to use on each GPU, like 8G or 500M [default: 80 % of what is free].",
        group="Speed", metavar="SIZE", parse=parse_size)
    devices: tuple[int, ...] | None = flag(
        None, "GPUs to use, like 0,2 [default: all].",
        group="Speed", metavar="LIST", parse=parse_numbers)
    ray: str | None = flag(
        None, "Align on a Ray cluster, or without an address on a local one; OUT is a folder of "
        "shards.", group="Cluster", metavar="[ADDRESS]")
    actors: int | None = flag(
        None, "Aligners of --ray, each with a GPU or --threads cores [default: all of the "
        "cluster].", group="Cluster", metavar="N", minimum=1)
    doctor: bool = flag(
        False, "Only say which backends run here, check them with -m, and why not the others.")
# fmt: on
