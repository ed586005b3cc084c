"""The flags of mx-align, and how their values are parsed.

Those that are about files stand in `jobs/corpus_options.py`: Python gives them, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ..jobs.corpus_options import CorpusOptions, input_flag, link_flag, output_flag, speed_flag
from .flags import CommonFlags, argument, flag

TITLES = ("Input", "Model", "A model of your text", "Links", "Output", "Speed", "Cluster")
model_flag = partial(flag, group="Model")
training_flag = partial(flag, group="A model of your text")
cluster_flag = partial(flag, group="Cluster")
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
    input_format: Literal["lines", "jsonl"] = input_flag(
        "lines", 'jsonl: SRC has a line {"src": ..., "tgt": ...} for each pair, answered at once '
        "by a line of --format jsonl [default: lines].")
    columns: tuple[str, str] = input_flag(
        ("src", "tgt"), "Names of the two sides in Parquet or JSONL (--ray) [default: src,tgt].",
        metavar="SRC,TGT", parse=parse_name_pair)
    model: str | None = model_flag(
        None, "Folder or zip [default: by --langs].", short="-m", metavar="BUNDLE")
    langs: str | None = model_flag(
        None, "Which installed model, like de-en, or en-de: turned round.", metavar="SRC-TGT")
    list_models: bool = model_flag(
        False, "Name the installed models and their languages, and exit.")
    read: Literal["prior", "posterior"] | None = model_flag(
        None, "What of a Mask-Align is the alignment: its attention before it knows the word, or "
        "after [default: the bundle's choice, mostly posterior].")
    backend: Literal["auto", "trt", "trt-rtx", "kernels", "cuda", "cpu"] = model_flag(
        "auto", "What runs the model [default: auto, the fastest that works].")
    dtype: Literal["fp32", "fp16", "int8"] | None = model_flag(
        None, "Arithmetic [default: the bundle's choice].")
    train_on_input: bool = training_flag(
        False, "Train a model on SRC and TGT first, or use the one trained on them before.")
    budget: int | None = training_flag(
        None, "Time to train, like 45m, 2h or 1h30m [default: 30m].",
        metavar="TIME", parse=parse_duration)
    start: str | None = training_flag(
        None, "Begin with this model: an installed one, like fr-en, or a bundle or run folder.",
        metavar="MODEL")
    keep_model: str | None = training_flag(
        None, "Keep it here [default: in the user's cache folder].", metavar="BUNDLE")
    train_flags: str | None = training_flag(
        None, "More flags for mx-train, like '--preset compact'.", metavar="FLAGS")
    symmetrize: Literal[
        "soft", "intersect", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"
    ] = link_flag("soft", "How the directions are joined [default: soft, the harmonic mean].")
    forward: bool = link_flag(False, "Best source word of each target word only.")
    backward: bool = link_flag(False, "Best target word of each source word only.")
    threshold: float | None = link_flag(
        None, "Lowest score of a link [default: the bundle's; of an average 0.42].",
        metavar="T", minimum=0, maximum=1, above=True)
    optimize_for: Literal["precision", "recall", "aer"] | None = link_flag(
        None, "The threshold for few wrong links, few missing ones, or both [default: aer].")
    signature: bool = output_flag(False, "End with one line on how the links were made.")
    threads: int | None = speed_flag(
        None, "Threads that run the model on the CPU [default: all cores].", minimum=1)
    gpu_memory: int | None = speed_flag(
        None, "Most memory to use on each GPU, like 8G or 500M [default: 80 % of what is free].",
        metavar="SIZE", parse=parse_size)
    devices: tuple[int, ...] | None = speed_flag(
        None, "GPUs to use, like 0,2 [default: all].", metavar="LIST", parse=parse_numbers)
    ray: str | None = cluster_flag(
        None, "Align on a Ray cluster, or without an address on a local one; OUT is a folder of "
        "shards.", metavar="[ADDRESS]")
    actors: int | None = cluster_flag(
        None, "Aligners of --ray, each with a GPU or --threads cores [default: all of the "
        "cluster].", minimum=1)
    doctor: bool = flag(
        False, "Only say which backends run here, check them with -m, and why not the others.")
# fmt: on
