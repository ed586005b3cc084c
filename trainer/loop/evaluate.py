"""Measures how good a network is: accuracy on held-out text, AER on gold pairs.

Does not know how it is trained.
"""

import torch

from ...engine.links.scoring import best_threshold, sweep_thresholds
from ...engine.text.pieces import PieceTokenizer
from ..data.batches import evaluation_batches
from ..data.gold import GoldPairs
from ..data.teacher_links import TeacherLinks
from ..data.token_cache import TokenCache
from ..networks.mask_align import MaskAlign, valid_places
from ..networks.student import Student
from ..networks.weights import Network
from ..networks.word_scores import BUDGET, select_links, word_scores

Measures = dict[str, float]  # by the names that the log has

LOWEST = 0.01  # word pairs below this score are no candidates: no threshold is so low


@torch.inference_mode()
def measure_prediction(model: MaskAlign, cache: TokenCache, device: torch.device) -> Measures:
    """Return how often the likeliest piece is the masked one, over both directions, and the NLL."""
    correct = pieces = 0
    nll = 0.0
    for batch in evaluation_batches(cache, BUDGET, device):
        inputs = batch.src, batch.src_lengths, batch.tgt, batch.tgt_lengths
        outputs = model(*inputs, read="prior")  # what predicts does not depend on it
        sides = ((batch.tgt, batch.tgt_lengths, 1), (batch.src, batch.src_lengths, 0))
        for output, (ids, lengths, side) in zip(outputs, sides, strict=True):
            real = valid_places(lengths, ids.shape[1])
            logits, wanted = output.hidden[real] @ model.table(side).T, ids[real]
            correct += int((logits.argmax(1) == wanted).sum())
            nll += float(torch.nn.functional.cross_entropy(logits, wanted, reduction="sum"))
            pieces += len(wanted)
    return {"accuracy": correct / max(pieces, 1), "nll": nll / max(pieces, 1)}


@torch.inference_mode()
def compare_with_teacher(
    model: Student, cache: TokenCache, links: TeacherLinks, device: torch.device
) -> Measures:
    """Return how often a word's best partner, or NULL, is what the teacher says, and the NLL."""
    right = words = 0
    nll = 0.0
    for batch in evaluation_batches(cache, BUDGET, device, links):
        assert batch.links is not None
        fwd, bwd = model(batch.src, batch.src_lengths, batch.tgt, batch.tgt_lengths)
        for output, wanted, rows in (
            (fwd, batch.links, model.word_starts(batch.tgt, batch.tgt_lengths, 1)),
            (bwd, batch.links.transpose(1, 2), model.word_starts(batch.src, batch.src_lengths, 0)),
        ):
            # NULL first, as a partner like others: it is right where the teacher has no link.
            wanted = torch.cat([~(wanted > 0).any(-1, keepdim=True), wanted > 0], -1)[rows]
            weights = torch.cat([output.null[..., None], output.weights], -1)[rows].float()
            right += int(wanted.gather(1, weights.argmax(1)[:, None]).sum())
            nll -= float((weights * wanted).sum(1).clamp(min=1e-20).log().sum())
            words += len(weights)
    return {"accuracy": right / max(words, 1), "nll": nll / max(words, 1)}


def score_gold_pairs(
    model: Network,
    gold: GoldPairs,
    tokenizers: tuple[PieceTokenizer, PieceTokenizer],
    threshold: float,
    device: torch.device,
) -> Measures:
    """Return AER, precision and recall at the threshold, and the lowest AER at any threshold."""
    scores = word_scores(model, gold.src, gold.tgt, tokenizers, device)
    links = select_links(scores, len(gold.gold), LOWEST)
    (at,) = sweep_thresholds(links, gold.gold, [threshold])
    best, best_score = best_threshold(links, gold.gold)
    measures = {name: getattr(at, name) for name in ("aer", "precision", "recall")}
    return {**measures, "best_aer": best_score.aer, "best_threshold": best}
