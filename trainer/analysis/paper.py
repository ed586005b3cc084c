"""The paper's analyses of a model on gold pairs: what it predicts and what it aligns.

A word's weight is the highest of its pieces', its NULL weight the lowest: as the engine has it.
Does not read files.
"""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from ...engine.links.link_files import Gold
from ...engine.links.scoring import score_links
from ...engine.runtime.reference import pool_words
from ...engine.text.pieces import PieceTokenizer
from ...engine.types import Link
from ..data.gold import GoldPairs
from ..networks.mask_align import MaskAlign, harmonic_mean

CELLS = ("cPcA", "wPcA", "cPwA", "wPwA")


class PairWeights(Protocol):
    """All weights of a pair: matrices (source words, target words), and those of NULL."""

    @property
    def scores(self) -> np.ndarray: ...
    @property
    def fwd(self) -> np.ndarray: ...
    @property
    def bwd(self) -> np.ndarray: ...
    @property
    def src_null(self) -> np.ndarray: ...
    @property
    def tgt_null(self) -> np.ndarray: ...


WeighPair = Callable[[Sequence[str], Sequence[str]], PairWeights]


@dataclass(frozen=True)
class Observation:
    """What a run's model says about a pair; a word is predicted if all of its pieces are."""

    scores: np.ndarray
    fwd: np.ndarray
    bwd: np.ndarray
    src_null: np.ndarray
    tgt_null: np.ndarray
    src_predicted: np.ndarray
    tgt_predicted: np.ndarray


class Observer:
    """Runs a model on single pairs and keeps all that the analyses ask for."""

    def __init__(self, model: Any, tokenizers: tuple[PieceTokenizer, PieceTokenizer]) -> None:
        self.model, self.tokenizers = model, tokenizers
        # Another kind of model sees the word that it would have to predict.
        self.predicts = isinstance(model, MaskAlign)

    @torch.inference_mode()
    def __call__(self, src: Sequence[str], tgt: Sequence[str]) -> Observation:
        src_ids, src_words = self.tokenizers[0].encode(list(src))
        tgt_ids, tgt_words = self.tokenizers[1].encode(list(tgt))
        if not (src_ids and tgt_ids):
            cells = np.zeros((len(src), len(tgt)), np.float32)
            # Nothing to look at: all weight is NULL's, and nothing is predicted.
            ones = np.ones(len(src)), np.ones(len(tgt))
            return Observation(cells, cells, cells, *ones, *(one > 1 for one in ones))
        ids = [torch.tensor([src_ids]), torch.tensor([tgt_ids])]
        lengths = [torch.tensor([one.shape[1]]) for one in ids]
        fwd, bwd = self.model(ids[0], lengths[0], ids[1], lengths[1])
        both = harmonic_mean(fwd.weights, bwd.weights)[0].T
        n_src, n_tgt = len(src), len(tgt)

        def pool(cells: torch.Tensor) -> np.ndarray:
            return pool_words(cells.numpy(), np.array(src_words), np.array(tgt_words))

        def predict_words(side: int, hidden: torch.Tensor, words: list[int], n: int) -> np.ndarray:
            if not self.predicts:
                return np.zeros(n, bool)
            right = ((hidden @ self.model.table(side).T).argmax(1) == ids[side][0]).numpy()
            every = np.ones(n, bool)
            np.logical_and.at(every, words, right)
            return every

        return Observation(
            pool(both), pool(fwd.weights[0].T), pool(bwd.weights[0]),
            lowest_nulls(bwd.null[0], src_words, n_src),
            lowest_nulls(fwd.null[0], tgt_words, n_tgt),
            predict_words(0, bwd.hidden[0], src_words, n_src),
            predict_words(1, fwd.hidden[0], tgt_words, n_tgt),
        )  # fmt: skip

    @torch.inference_mode()
    def piece_norms(self, read: int, words: Sequence[str]) -> Iterator[tuple[str, float, float]]:
        """Yield the kind of each piece of side `read`, the norms of its value and what it adds."""
        ids, places = self.tokenizers[read].encode(list(words))
        if not ids:
            return
        model = self.model
        network = model.fwd if model.config.tied or read == 0 else model.bwd
        embedded, start = model.embed(torch.tensor([ids]), read)
        source = network.encoder(embedded + start, torch.tensor([len(ids)]))
        values = last_cross_attention(network).value(source)[0]
        kinds = [piece_kind(words, place) for place in places]
        yield from zip(kinds, *value_norms(last_cross_attention(network), values), strict=True)

    @torch.inference_mode()
    def null_norms(self, read: int) -> tuple[float, float] | None:
        """Return the norms of the learned NULL value; None if the attention is not leaky."""
        network = self.model.fwd if self.model.config.tied or read == 0 else self.model.bwd
        cross = last_cross_attention(network)
        if not cross.leaky:
            return None
        (value,), (after,) = value_norms(cross, cross.null_value[None])
        return value, after


def lowest_nulls(null: torch.Tensor, words: list[int], n: int) -> np.ndarray:
    """Return for each of n words the lowest NULL weight of its pieces."""
    result = np.ones(n, np.float32)
    np.minimum.at(result, words, null.numpy())
    return result


def last_cross_attention(network: Any) -> Any:
    """Return the cross-attention that is read as alignment."""
    return network.decoder.cross[str(network.decoder.config.decoder_layers - 1)]


def value_norms(cross: Any, values: torch.Tensor) -> tuple[list[float], list[float]]:
    """Return norms of value vectors, and of what they add to the layer's output at full weight."""
    # ‖v W_O‖ without the bias, the paper's norm of a transformed value.
    after = values @ cross.out.weight.T
    return values.norm(dim=-1).tolist(), after.norm(dim=-1).tolist()


def piece_kind(words: Sequence[str], place: int) -> str:
    """Return the row of the table of norms that a word at this place belongs to."""
    if not is_punctuation(words[place]):
        return "word"
    return "final punctuation" if place == len(words) - 1 else "punctuation"


def is_punctuation(word: str) -> bool:
    """Tell whether a word has punctuation marks and symbols only."""
    return bool(word) and all(unicodedata.category(letter)[0] in "PS" for letter in word)


# ---- prediction and alignment ----


def best_partners(weights: np.ndarray, null: np.ndarray) -> np.ndarray:
    """Return for each column the row with the highest weight, -1 where NULL has more."""
    if not weights.shape[0]:
        return np.full(weights.shape[1], -1)
    return np.where(weights.max(0) > null, weights.argmax(0), -1)


def prediction_table(
    seen: Sequence[Observation], gold: Sequence[Gold]
) -> dict[str, dict[str, int]]:
    """Count words with a sure link that are predicted right or wrong (cP, wP) and aligned right or
    wrong (cA, wA), which is right if the word it looks at most is a possible partner."""
    table = {name: Counter(dict.fromkeys(CELLS, 0)) for name in ("fwd", "bwd")}
    for one, links in zip(seen, gold, strict=True):
        sides = {
            "fwd": (one.fwd, one.tgt_null, one.tgt_predicted, 1),
            "bwd": (one.bwd.T, one.src_null, one.src_predicted, 0),
        }
        for name, (weights, null, predicted, side) in sides.items():
            partners = best_partners(weights, null)
            for word in sorted({link[side] for link in links.sure}):
                other = int(partners[word])
                link = (other, word) if side else (word, other)
                right = predicted[word], link in links.possible
                table[name]["{}P{}A".format(*("c" if one else "w" for one in right))] += 1
    result = {name: dict(cells) for name, cells in table.items()}
    result["both"] = {cell: sum(table[name][cell] for name in table) for cell in CELLS}
    return result


# ---- norms ----


def norm_table(observer: Observer, gold: GoldPairs) -> dict[str, dict[str, dict[str, float]]]:
    """Return by direction and kind of piece how many there are, and the mean norms of values."""
    result = {}
    for name, read, sentences in (("fwd", 0, gold.src), ("bwd", 1, gold.tgt)):
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        null = observer.null_norms(read)
        if null:
            found["[NULL]"].append(null)
        for words in sentences:
            for what, *norms in observer.piece_norms(read, words):
                found[what].append((norms[0], norms[1]))
        result[name] = {
            what: {
                "pieces": len(norms),
                "value": float(np.mean([norm for norm, _ in norms])),
                "transformed": float(np.mean([norm for _, norm in norms])),
                "sd": float(np.std([norm for _, norm in norms])),
            }
            for what, norms in found.items()
        }
    return result


# ---- the end punctuation ----


def links_by_direction(weights: PairWeights, threshold: float) -> dict[str, list[Link]]:
    """Return the links of both directions together, and of each alone."""
    fwd = best_partners(weights.fwd, weights.tgt_null)
    bwd = best_partners(weights.bwd.T, weights.src_null)
    return {
        "soft": [(int(i), int(j)) for i, j in np.argwhere(weights.scores >= threshold)],
        "fwd": [(int(i), j) for j, i in enumerate(fwd) if i >= 0],
        "bwd": [(i, int(j)) for i, j in enumerate(bwd) if j >= 0],
    }


def drop_word(gold: Gold, word: int) -> Gold:
    """Return the links of all source words but one."""
    kept = ({link for link in links if link[0] != word} for links in (gold.sure, gold.possible))
    return Gold(*map(frozenset, kept))


def punctuation_effect(
    weigh: WeighPair, gold: GoldPairs, threshold: float, seen: Sequence[PairWeights]
) -> dict[str, Any]:
    """Return AER as it is, and when the model is not shown the final punctuation of the source.

    The latter is judged without that word's links, and so is the former once more, to compare.
    """
    names = ("as it is", "judged without it", "without it")
    made: dict[str, dict[str, list[list[Link]]]] = {name: defaultdict(list) for name in names}
    fewer = []
    n_dropped = 0
    for src, tgt, wanted, whole in zip(gold.src, gold.tgt, gold.gold, seen, strict=True):
        ends = bool(src) and is_punctuation(src[-1])
        last = len(src) - 1 if ends else -1
        n_dropped += ends
        fewer.append(drop_word(wanted, last))
        part = weigh(src[:-1], tgt) if ends else whole  # word numbers stay: it was the last one
        for mode, links in links_by_direction(whole, threshold).items():
            made[names[0]][mode].append(links)
            made[names[1]][mode].append([link for link in links if link[0] != last])
        for mode, links in links_by_direction(part, threshold).items():
            made[names[2]][mode].append(links)
    judges = dict(zip(names, (gold.gold, fewer, fewer), strict=True))
    return {
        "pairs": len(gold.src),
        "with_final_punctuation": n_dropped,
        "aer": {
            name: {mode: score_links(links, judges[name]).aer for mode, links in modes.items()}
            for name, modes in made.items()
        },
    }


# ---- as text ----


def align_columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return lines with columns of equal width; the first to the left, the others to the right."""
    rows = list(rows)
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def format_report(result: dict[str, Any]) -> str:
    """Return the results as tables for people."""
    lines: list[str] = []
    if found := result.get("prediction"):
        lines += ["Words with a sure link: predicted (P) and aligned (A) correctly or wrongly", ""]
        rows = [["", *CELLS]]
        for name, cells in found.items():
            total = max(sum(cells.values()), 1)
            rows.append([name, *(f"{cells[c]:,} ({100 * cells[c] / total:.1f} %)" for c in CELLS)])
        lines += [*align_columns(rows), ""]
    if found := result.get("norms"):
        lines += ["Norms of the values that the last cross-attention reads", ""]
        rows = [["", "pieces", "value", "transformed", "sd"]]
        for name, kinds in found.items():
            for what, row in kinds.items():
                shown = [f"{row[key]:.2f}" for key in ("value", "transformed", "sd")]
                rows.append([f"{name} {what}", f"{row['pieces']:,}", *shown])
        lines += [*align_columns(rows), ""]
    found = result["punctuation"]
    lines += [
        f"AER and the source's final punctuation, which {found['with_final_punctuation']:,} of "
        f"{found['pairs']:,} pairs have", "",
    ]  # fmt: skip
    rows = [["", "soft", "fwd", "bwd"]]
    for name, modes in found["aer"].items():
        rows.append([name, *(f"{100 * modes[mode]:.1f}" for mode in ("soft", "fwd", "bwd"))])
    return "\n".join([*lines, *align_columns(rows)])
