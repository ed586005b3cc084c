"""Learn what a score means: a table from scores to probabilities, and thresholds.

Knows word scores and gold links. Without gold, the two directions stand in for it: a link both
would choose is taken as sure, one that only one would choose as possible.
"""

import numpy as np

from ...engine.bundle.manifest import Calibration, Thresholds
from ...engine.links.link_files import Gold
from ...engine.links.scoring import best_threshold, sweep_thresholds
from ...engine.types import ScoredLink

LOWEST_CANDIDATE = 0.01  # word pairs below this score are no candidates for a link
# "High precision" and "high recall": how many times as much a wrong (missing) link counts.
WEIGHT = 9.0
POINTS = 40  # of the table at most
NEAR = 0.0005  # AER; thresholds that differ by less are equally good, and the middle one is taken


def calibrate_scores(
    scores: list[np.ndarray], gold: list[Gold], how: str
) -> tuple[Thresholds, Calibration]:
    """Return thresholds and the table, with `how` kept as their explanation.

    Scores are one array (source words, target words) for each pair.
    """
    candidates = [
        [(int(i), int(j), float(one[i, j])) for i, j in np.argwhere(one >= LOWEST_CANDIDATE)]
        for one in scores
    ]
    return choose_thresholds(candidates, gold, how), fit_probabilities(candidates, gold, how)


def choose_thresholds(candidates: list[list[ScoredLink]], gold: list[Gold], how: str) -> Thresholds:
    """Choose those of the lowest AER, and of the best weighted F for precision and recall.

    F = (1 + w) P R / (w P + R) with w = 1/9 for precision and 9 for recall; the threshold for
    precision is not below that of AER, and that for recall not above it.
    """
    lowest, at_lowest = best_threshold(candidates, gold)
    grid = np.unique(np.append(np.round(np.linspace(0.02, 0.98, 97), 2), lowest))
    measured = sweep_thresholds(candidates, gold, grid.tolist())
    # On an easy text many are as good, up to 1, and the lowest one of all is there by chance.
    near = grid[[m.aer <= at_lowest.aer + NEAR for m in measured]]
    best = float(near[len(near) // 2])
    precision = np.array([m.precision for m in measured])
    recall = np.array([m.recall for m in measured])

    def weighted_f(weight: float) -> np.ndarray:
        below = weight * precision + recall
        return (1 + weight) * precision * recall / np.maximum(below, 1e-9)

    high = float(grid[np.argmax(np.where(grid >= best, weighted_f(1 / WEIGHT), -1))])
    low = float(grid[np.argmax(np.where(grid <= best, weighted_f(WEIGHT), -1))])
    return Thresholds(
        aer=round(best, 4),
        precision=round(max(high, best), 4),
        recall=round(min(low, best), 4),
        chosen=f"lowest AER; best F, precision or recall counting {WEIGHT:.0f} times; on {how}",
    )


def fit_probabilities(
    candidates: list[list[ScoredLink]], gold: list[Gold], how: str
) -> Calibration:
    """Return the share of right links by score, made to rise; a possible link counts as right."""
    rows = np.array(
        [
            (score, (i, j) in wanted.possible)
            for triples, wanted in zip(candidates, gold, strict=True)
            for i, j, score in triples
        ]
    )
    if not len(rows):
        return Calibration((0.0, 1.0), (0.0, 1.0), f"the score itself: no candidates in {how}")
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    # Groups of equal size first: single candidates would make a table of ones and zeros.
    size = max(25, len(rows) // POINTS)
    groups = np.array_split(rows, max(1, len(rows) // size))
    x, right = np.array([group.mean(axis=0) for group in groups]).T
    y = fit_rising(right, np.array([len(group) for group in groups], float))
    x = np.concatenate([[0.0], x, [1.0]])
    y = np.concatenate([[0.0], y, [y[-1]]])
    return Calibration(
        tuple(round(float(v), 5) for v in np.minimum(x, 1.0)),
        tuple(round(float(v), 5) for v in y),
        f"share of right links by score, isotonic, on {how}",
    )


def fit_rising(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the closest sequence that never falls (pool adjacent violators).

    Of 0.1 0.5 0.3 0.9 with equal weights: 0.1 0.4 0.4 0.9.
    """
    pools: list[list[float]] = []  # mean, weight, number of values
    for value, weight in zip(values, weights, strict=True):
        pools.append([float(value), float(weight), 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, total, count = pools.pop()
            before = pools[-1]
            both = before[1] + total
            before[0] = (before[0] * before[1] + mean * total) / both
            before[1], before[2] = both, before[2] + count
    return np.repeat([pool[0] for pool in pools], [int(pool[2]) for pool in pools])


def agree_directions(
    fwd: np.ndarray, bwd: np.ndarray, fwd_null: np.ndarray, bwd_null: np.ndarray
) -> Gold:
    """Return links the directions choose: of each word its best partner, unless NULL is better.

    `fwd` and `bwd` are word weights (source, target); `fwd_null` is of target words.
    """
    if not fwd.size:
        return Gold(frozenset(), frozenset())
    forward = {(int(i), j) for j, i in enumerate(fwd.argmax(0)) if fwd[i, j] > fwd_null[j]}
    backward = {(i, int(j)) for i, j in enumerate(bwd.argmax(1)) if bwd[i, j] > bwd_null[i]}
    return Gold(frozenset(forward & backward), frozenset(forward | backward))
