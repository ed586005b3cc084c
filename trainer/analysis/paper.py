"""The paper's analyses of a model on gold pairs: what it predicts and what it aligns.

A word's weight is the highest of its pieces', its NULL weight the lowest: as the engine has it.
Does not read files.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...engine.alignment import SoftAlignment
from ...engine.links.evaluation import align_columns
from ...engine.links.link_files import Gold
from ...engine.links.scoring import score_links
from ...engine.runtime.reference import pool_words
from ...engine.text.pieces import PieceTokenizer
from ...engine.types import Link
from ..data.gold import GoldPairs
from ..networks.mask_align import MaskAlign, harmonic_mean

CELLS = ("cPcA", "wPcA", "cPwA", "wPwA")


WeighPair = Callable[[Sequence[str], Sequence[str]], SoftAlignment]


@dataclass(frozen=True)
class Observation(SoftAlignment):
    """What a run's model says about a pair; a word is predicted if all of its pieces are."""

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
        (src_ids, src_words), (tgt_ids, tgt_words) = (
            tokenizer.encode(words)
            for tokenizer, words in zip(self.tokenizers, (src, tgt), strict=True)
        )
        if not (src_ids and tgt_ids):
            cells = np.zeros((len(src), len(tgt)), np.float32)
            # Nothing to look at: all weight is NULL's, and nothing is predicted.
            nulls = np.ones(len(src), np.float32), np.ones(len(tgt), np.float32)
            missed = nulls[0] > 1, nulls[1] > 1
            return Observation(tuple(src), tuple(tgt), cells, cells, cells, *nulls, *missed)
        ids = torch.tensor([src_ids]), torch.tensor([tgt_ids])
        lengths = torch.tensor([len(src_ids)]), torch.tensor([len(tgt_ids)])
        fwd, bwd = self.model(ids[0], lengths[0], ids[1], lengths[1])
        both = harmonic_mean(fwd.weights, bwd.weights)
        words = np.array(src_words), np.array(tgt_words)
        starts = [np.flatnonzero(np.diff(side, prepend=-1)) for side in words]

        def predict_words(side: int, hidden: torch.Tensor) -> np.ndarray:
            if not self.predicts:
                return np.zeros(len(starts[side]), bool)
            right = (hidden @ self.model.table(side).T).argmax(1) == ids[side][0]
            return np.logical_and.reduceat(right.numpy(), starts[side])

        return Observation(
            tuple(src),
            tuple(tgt),
            pool_words(both[0].T.numpy(), *words),
            pool_words(fwd.weights[0].T.numpy(), *words),
            pool_words(bwd.weights[0].numpy(), *words),
            np.minimum.reduceat(bwd.null[0].numpy(), starts[0]),
            np.minimum.reduceat(fwd.null[0].numpy(), starts[1]),
            predict_words(0, bwd.hidden[0]),
            predict_words(1, fwd.hidden[0]),
        )


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
    table = {name: dict.fromkeys(CELLS, 0) for name in ("fwd", "bwd", "both")}
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
                cell = "{}P{}A".format(*("c" if one else "w" for one in right))
                table[name][cell] += 1
                table["both"][cell] += 1
    return table


# ---- norms ----


@torch.inference_mode()
def norm_table(observer: Observer, gold: GoldPairs) -> dict[str, dict[str, dict[str, float]]]:
    """Return by direction and kind of piece how many there are, and the mean norms of values."""
    model, result = observer.model, {}
    for name, side, sentences in (("fwd", 0, gold.src), ("bwd", 1, gold.tgt)):
        # The cross-attention that is read as alignment.
        cross = getattr(model, name).decoder.cross[str(model.config.decoder_layers - 1)]
        rows = [(["[NULL]"], cross.null_value[None])] if cross.leaky else []
        for words in sentences:
            ids, places = observer.tokenizers[side].encode(words)
            if ids:
                source = model.encode(torch.tensor([ids]), torch.tensor([len(ids)]), side)
                kinds = [piece_kind(words, place) for place in places]
                rows.append((kinds, cross.value(source)[0]))
        found: dict[str, list[list[float]]] = defaultdict(list)
        for kinds, values in rows:
            # ‖v‖, and ‖v W_O‖ without the bias, the paper's norm of a transformed value.
            both = values.norm(dim=-1), (values @ cross.out.weight.T).norm(dim=-1)
            for kind, norms in zip(kinds, torch.stack(both, 1).tolist(), strict=True):
                found[kind].append(norms)
        result[name] = {
            kind: {
                "pieces": len(norms),
                "value": float(np.mean([norm for norm, _ in norms])),
                "transformed": float(np.mean([norm for _, norm in norms])),
                "sd": float(np.std([norm for _, norm in norms])),
            }
            for kind, norms in found.items()
        }
    return result


def piece_kind(words: Sequence[str], place: int) -> str:
    """Return the row of the table of norms that a word at this place belongs to."""
    if not is_punctuation(words[place]):
        return "word"
    return "final punctuation" if place == len(words) - 1 else "punctuation"


# ---- the end punctuation ----


def links_by_direction(weights: SoftAlignment, threshold: float) -> dict[str, list[Link]]:
    """Return the links of both directions together, and of each alone."""
    fwd = best_partners(weights.fwd, weights.tgt_null)
    bwd = best_partners(weights.bwd.T, weights.src_null)
    return {
        "soft": [(int(i), int(j)) for i, j in np.argwhere(weights.scores >= threshold)],
        "fwd": [(int(i), j) for j, i in enumerate(fwd) if i >= 0],
        "bwd": [(i, int(j)) for i, j in enumerate(bwd) if j >= 0],
    }


def punctuation_effect(
    weigh: WeighPair, gold: GoldPairs, threshold: float, seen: Sequence[SoftAlignment]
) -> dict[str, Any]:
    """Return AER as it is, and when the model is not shown the final punctuation of the source.

    The latter is judged without that word's links, and so is the former once more, to compare.
    """
    made: dict[str, dict[str, list[list[Link]]]] = {
        name: defaultdict(list) for name in ("as it is", "judged without it", "without it")
    }
    fewer = []
    n_dropped = 0
    for src, tgt, wanted, whole in zip(gold.src, gold.tgt, gold.gold, seen, strict=True):
        ends = bool(src) and is_punctuation(src[-1])
        last = len(src) - 1 if ends else -1
        n_dropped += ends
        kept = ({x for x in links if x[0] != last} for links in (wanted.sure, wanted.possible))
        fewer.append(Gold(*map(frozenset, kept)))
        part = weigh(src[:-1], tgt) if ends else whole  # word numbers stay: it was the last one
        for mode, links in links_by_direction(whole, threshold).items():
            made["as it is"][mode].append(links)
            made["judged without it"][mode].append([x for x in links if x[0] != last])
        for mode, links in links_by_direction(part, threshold).items():
            made["without it"][mode].append(links)
    return {
        "pairs": len(gold.src),
        "with_final_punctuation": n_dropped,
        "aer": {
            name: {
                mode: score_links(links, gold.gold if name == "as it is" else fewer).aer
                for mode, links in modes.items()
            }
            for name, modes in made.items()
        },
    }


# ---- as text ----


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
