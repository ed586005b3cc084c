"""The symmetric student: reads each side once and scores word pairs by how alike their vectors are.

It learns from links of a teacher (`teachers/`); its loss is in `losses.py`.

One small encoder reads both sides. A layer sees a piece and its two neighbours, and nothing but the
order of pieces tells where they are, so a piece is read the same wherever it stands. Scores of
all pairs lean towards the diagonal by a learned amount and are turned into weights both ways, with
NULL each way; then a look at the weights around each cell corrects its score: neighbours tend to
be linked to neighbours, which is what an HMM aligner knows of word order.

Shapes: B pairs, S source pieces, T target pieces, L either, D width. A word is represented by its
first piece; the other ones only help it to its meaning and are never linked.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import ModelConfig
from .mask_align import Attention, valid_places

# Pieces that a layer of the encoder sees: as good as attention on the En-Fr test pairs, and faster;
# other sizes were not measured.
WINDOW = 3
# Rows and columns that a correction sees. Without it best AER after 500 steps is 9.47 instead of
# 7.32, on the En-Fr test pairs; other sizes were not measured.
AROUND = 5
LARGE = 1e9


class Layer(nn.Module):
    """Add to each piece what it and its neighbours say; padding counts as zero."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.up = nn.Linear(WINDOW * config.width, config.ff)
        self.down = nn.Linear(config.ff, config.width)
        self.dropout = config.dropout

    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        seen = join_neighbours(self.norm(x) * rows)
        return x + F.dropout(self.down(F.relu(self.up(seen))), self.dropout, self.training)


def join_neighbours(x: Tensor) -> Tensor:
    """Return (B, L, 3D): the piece before, the piece itself, the piece after.

    Of a b c, with 0 for no piece:  0ab  abc  bc0
    """
    size, reach = x.shape[1], WINDOW // 2
    padded = F.pad(x, (0, 0, reach, reach))
    return torch.cat([padded[:, k : k + size] for k in range(WINDOW)], dim=-1)


class Correction(nn.Module):
    """A small network over the matrix: what the cells around one say about its score."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.look = nn.Conv2d(4, channels, AROUND, padding=AROUND // 2)
        self.judge = nn.Conv2d(channels, 1, AROUND, padding=AROUND // 2)
        nn.init.zeros_(self.judge.weight)  # at first nothing is corrected
        nn.init.constant_(self.judge.bias, 0.0)  # type: ignore[arg-type]

    def forward(self, scores: Tensor, fwd: Tensor, bwd: Tensor, cells: Tensor) -> Tensor:
        """Return what to add to the scores; all are (B, T, S).

        `cells` is 1 where a word can be linked to a word, else 0.
        """
        both = (fwd * bwd + 1e-9).sqrt()  # the gradient of a root is infinite at 0
        # Scores are divided by 4 to be of about the size of the weights beside them.
        seen = torch.stack([scores / 4, fwd, bwd, both], dim=-1) * cells[..., None]
        seen = seen.permute(0, 3, 1, 2)  # channels last in memory: convolutions are twice as fast
        return self.judge(F.relu(self.look(seen)) * cells[:, None])[:, 0]


class Student(nn.Module):
    """Both directions at once, with the outputs of `MaskAlign`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.src_embedding = self.tgt_embedding = nn.Embedding(config.src_vocab, width)
        # Which pieces begin a word; not learned, but kept with the weights.
        self.src_starts = nn.Parameter(torch.ones(config.src_vocab), requires_grad=False)
        self.tgt_starts = self.src_starts
        if not config.joint_vocab:
            self.tgt_embedding = nn.Embedding(config.tgt_vocab, width)
            self.tgt_starts = nn.Parameter(torch.ones(config.tgt_vocab), requires_grad=False)
        self.side = nn.Parameter(torch.randn(2, width) * width**-0.5)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.encoder_layers))
        self.norm = nn.LayerNorm(width)
        self.key = nn.Linear(width, width)  # of source words
        self.query = nn.Linear(width, width)  # of target words
        self.src_null = nn.Linear(width, 1)
        self.tgt_null = nn.Linear(width, 1)
        if config.diagonal:
            self.diagonal = nn.Parameter(torch.zeros(2))
        if config.refine:
            self.correction = Correction(config.refine)
        for table in self.modules():
            if isinstance(table, nn.Embedding):
                nn.init.normal_(table.weight, std=width**-0.5)

    def table(self, side: int) -> Tensor:
        """Return the embedding (V, D) of side 0 (source) or 1 (target)."""
        return (self.tgt_embedding if side else self.src_embedding).weight

    def starting_pieces(self, side: int) -> Tensor:
        """Return (V,): 1 for pieces that begin a word."""
        return self.tgt_starts if side else self.src_starts

    def word_starts(self, ids: Tensor, lengths: Tensor, side: int) -> Tensor:
        """Return (B, L): true where a word begins."""
        return valid_places(lengths, ids.shape[1]) & (self.starting_pieces(side)[ids] > 0)

    def encode(self, ids: Tensor, lengths: Tensor, side: int) -> Tensor:
        """Return vectors (B, L, D) of the pieces in their surroundings."""
        x = F.embedding(ids, self.table(side)) * self.config.width**0.5 + self.side[side]
        rows = valid_places(lengths, ids.shape[1])[..., None].to(x.dtype)
        for layer in self.layers:
            x = layer(x, rows)
        return self.norm(x)

    def forward(
        self, src: Tensor, src_lengths: Tensor, tgt: Tensor, tgt_lengths: Tensor
    ) -> tuple[Attention, Attention]:
        """Return both directions: `fwd` has weights (B, T, S), `bwd` (B, S, T)."""
        x, y = self.encode(src, src_lengths, 0), self.encode(tgt, tgt_lengths, 1)
        src_words = self.word_starts(src, src_lengths, 0)
        tgt_words = self.word_starts(tgt, tgt_lengths, 1)
        cells = tgt_words[:, :, None] & src_words[:, None, :]  # (B, T, S)
        scores = (self.query(y) * self.config.width**-0.5) @ self.key(x).transpose(1, 2)
        scores = scores.float()
        if self.config.diagonal:
            away = diagonal_distance(src_lengths, src.shape[1], tgt_lengths, tgt.shape[1])
            scores = scores - self.diagonal[0] * away - self.diagonal[1] * away.square()
        nulls = self.tgt_null(y).float(), self.src_null(x).float()  # (B, T, 1), (B, S, 1)
        if self.config.refine:
            fwd, bwd = softmax_both_ways(scores, nulls, cells)
            scores = scores + self.correction(
                scores, fwd[..., 1:], bwd[..., 1:].transpose(1, 2), cells.float()
            )
        fwd, bwd = softmax_both_ways(scores, nulls, cells)
        tgt_rows = valid_places(tgt_lengths, tgt.shape[1]) & (src_lengths > 0)[:, None]
        src_rows = valid_places(src_lengths, src.shape[1]) & (tgt_lengths > 0)[:, None]
        # Inside a word NULL is certain, so that the first piece decides.
        fwd_null = torch.where(tgt_words, fwd[..., 0], 1.0) * tgt_rows
        bwd_null = torch.where(src_words, bwd[..., 0], 1.0) * src_rows
        fwd, bwd = fwd[..., 1:] * cells, bwd[..., 1:] * cells.transpose(1, 2)
        return Attention(fwd, fwd_null, y, fwd), Attention(bwd, bwd_null, x, bwd)


def softmax_both_ways(
    scores: Tensor, nulls: tuple[Tensor, Tensor], cells: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the softmax over sources (B, T, 1 + S) and over targets (B, S, 1 + T), NULL first."""
    scores = scores.masked_fill(~cells, -LARGE)
    return (
        torch.cat([nulls[0], scores], -1).softmax(-1),
        torch.cat([nulls[1], scores.transpose(1, 2)], -1).softmax(-1),
    )


def diagonal_distance(
    src_lengths: Tensor, src_size: int, tgt_lengths: Tensor, tgt_size: int
) -> Tensor:
    """Return (B, T, S): log(1 + pieces between a cell and the diagonal of its pair)."""
    # Cells count from their middle. Of 4 source and 2 target pieces, target piece 0 lies at source
    # 2 · 0.5 = 1.0, so the cells of its row are |0.5 1.5 2.5 3.5 - 1.0| = 0.5 0.5 1.5 2.5 away.
    i = torch.arange(src_size, device=src_lengths.device) + 0.5
    j = torch.arange(tgt_size, device=src_lengths.device) + 0.5
    slope = src_lengths.float() / tgt_lengths.clamp(min=1).float()
    return (i - (slope[:, None] * j)[..., None]).abs().add(1.0).log()
