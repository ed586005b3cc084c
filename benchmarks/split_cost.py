"""Measures what splitting long pairs costs the host, with the links of a real model.

    python -m mx_align.benchmarks.split_cost train.de train.en --langs de-en --pairs 20000

Aligns once and records what `count_looks` and `split_long_pairs` are given, then calls them again
with that. The model's own time is no part of it. Prints CPU microseconds, the least of all rounds.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import Any

from ..engine.align import long_pairs
from ..engine.aligner import Aligner
from ..engine.text.files import read_pairs

STEPS = "count_looks", "split_long_pairs"
Call = tuple[str, Sequence[Any]]


def record_calls(aligner: Aligner, lines: Sequence[tuple[str, str]]) -> list[Call]:
    """Align all lines; return the calls of the two steps with their arguments, in order."""
    calls: list[Call] = []
    kept = {name: getattr(long_pairs, name) for name in STEPS}

    def make_spy(name: str) -> Any:
        def record_call(*arguments: Any) -> Any:
            calls.append((name, arguments))
            return kept[name](*arguments)

        return record_call

    try:
        for name in STEPS:
            setattr(long_pairs, name, make_spy(name))
        for _ in aligner.align(*zip(*lines, strict=True)):
            pass
    finally:
        for name in STEPS:
            setattr(long_pairs, name, kept[name])
    return calls


def time_calls(calls: Sequence[Call]) -> dict[str, float]:
    """Return the CPU seconds of each step."""
    seconds: dict[str, float] = defaultdict(float)
    for name, arguments in calls:
        start = time.process_time()
        getattr(long_pairs, name)(*arguments)
        seconds[name] += time.process_time() - start
    return seconds


def main() -> None:
    """Record once, time several rounds and print the best."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("src")
    parser.add_argument("tgt")
    parser.add_argument("--langs", required=True)
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    lines = list(islice(read_pairs(options.src, options.tgt), options.pairs))
    aligner = Aligner.load(langs=options.langs, backend="cpu")
    calls = record_calls(aligner, lines)
    rounds = [time_calls(calls) for _ in range(options.rounds)]
    least = {name: 1e6 * min(seconds[name] for seconds in rounds) for name in STEPS}
    looks = sum(len(arguments[0]) for name, arguments in calls if name == STEPS[1])
    result = {
        "pairs": len(lines),
        "looks": looks,
        "microseconds_per_pair": {
            name: round(least[name] / max(1, len(lines)), 2) for name in STEPS
        },
        "microseconds_per_look": round(least[STEPS[1]] / max(1, looks), 1),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
