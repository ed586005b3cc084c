"""The Mask-Align network (Chen, Sun and Liu, ACL 2021): both directions, from pieces to weights.

In the paper's notation, for the direction that predicts the target y from the source x:

    (1) masked modelling      P(y | x) = Π_i P(y_i | y_≠i, x)
    (2) static-KV attention   h_i^l = Attention(h_i^(l-1) W_Q^l, K_≠i^l, V_≠i^l),  h_i^0 = p_i
                              K^l = (w + p) W_K^l,  V^l = (w + p) W_V^l
    (3) leaky attention       W = mean over heads of softmax(q [k_NULL; k]ᵀ / √K), without NULL
    (4) prediction            P(y_i | y_≠i, x) = softmax(h_i E_tgtᵀ); see `losses.py`
    (5) alignment             S_ij = 2 W_fwd[i,j] W_bwd[j,i] / (W_fwd[i,j] + W_bwd[j,i])

(5) may read other weights than W: the posterior, (6) in `posterior.py`, or those of other layers or
rows; `Decoder.read_out` has them all.

w are embeddings times √D, p sinusoidal positions. A piece y_i enters only through K and V, and row
i never attends to key i, so h_i depends on all of y but y_i.

Shapes: B pairs, S source pieces, T target pieces, L either, D width, H heads, K = D / H head width.
Inside one direction, "source" is the side that is read and "target" the side that is predicted.
Where a sentence leaves an attention row without any key (one piece, or none), the result is zero.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...engine.errors import MxError
from ..config import ModelConfig
from .posterior import apply_bayes, closed_likelihood, exact_likelihood, value_updates


@dataclass(frozen=True)
class Attention:
    """What one direction says: `weights[b, i, j]` is how much target piece i looks at source j."""

    weights: Tensor  # (B, T, S), as they are read: W of (3) or another; zero outside the sentences
    null: Tensor  # (B, T), the weight on NULL: 1 - Σ_j weights; zero without leaky attention
    hidden: Tensor  # (B, T, D), h of (4), which predicts the target pieces
    prior: Tensor  # (B, T, S), W of (3)


@dataclass(frozen=True)
class Predicted:
    """The pieces that a direction predicts: the posterior is about them."""

    ids: Tensor  # (B, T)
    table: Tensor  # (V, D), E


def choose_layer(read: str, layers: int) -> int:
    """Return the number of the cross-attention that is read: the last, or that of `layer=-2`."""
    number = int(read.partition("=")[2] or -1)
    if not -layers <= number < layers:
        raise MxError(f"--read {read}: there are {layers} layers with cross-attention")
    return number


def sinusoidal_positions(length: int, width: int, device: torch.device) -> Tensor:
    """Return p (length, width): the first half are sines, the second half cosines."""
    half = width // 2
    # Wavelengths from 2π to 2π · 10000, as in the Transformer, but not interleaved.
    rates = torch.exp(torch.arange(half, device=device) * (-math.log(10000.0) / max(half - 1, 1)))
    angles = torch.arange(length, device=device)[:, None] * rates[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def valid_places(lengths: Tensor, size: int) -> Tensor:
    """Return (B, size): true where a sentence has a piece."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Turn (B, L, D) into (B, H, L, K)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Turn (B, H, L, K) into (B, L, D)."""
    return x.transpose(1, 2).flatten(2)


def widen(x: Tensor) -> Tensor:
    """Return x in float32, or as it is if it is wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def additive_mask(allowed: Tensor) -> Tensor:
    """Return 0 where allowed, -inf elsewhere."""
    return torch.zeros_like(allowed, dtype=torch.float).masked_fill(~allowed, -torch.inf)


def dot_product_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Return softmax(q kᵀ / √K + mask) v; `mask` (B, 1, L, L) must leave each row a key."""
    if q.device.type == "cpu":  # where the gradient takes much longer in bf16
        with torch.autocast("cpu", enabled=False):
            q, k, v = widen(q), widen(k), widen(v)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype))


class ResidualBlock(nn.Module):
    """Residual connection, dropout and layer norm around one part of a layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.pre = config.norm == "pre"
        self.dropout = config.dropout

    def normalize_input(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.pre else x

    def add_residual(self, x: Tensor, update: Tensor) -> Tensor:
        x = x + F.dropout(update, self.dropout, self.training)
        return x if self.pre else self.norm(x)


class FeedForward(ResidualBlock):
    """Two linear maps with a ReLU between them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.up = nn.Linear(config.width, config.ff)
        self.down = nn.Linear(config.ff, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.add_residual(x, self.down(F.relu(self.up(self.normalize_input(x)))))


class SelfAttention(ResidualBlock):
    """Ordinary multi-head self-attention, for the encoder."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        qkv = self.qkv(self.normalize_input(x)).chunk(3, -1)
        q, k, v = (split_heads(part, self.heads) for part in qkv)
        return self.add_residual(x, self.out(join_heads(dot_product_attention(q, k, v, mask))))


class StaticAttention(ResidualBlock):
    """Equation (2): keys and values are given, only the query changes from layer to layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.heads = config.heads
        self.query = nn.Linear(config.width, config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, h: Tensor, k: Tensor, v: Tensor, mask: Tensor, alone: Tensor) -> Tensor:
        """Return the updated h (B, T, D); k and v are (B, H, T, K), `alone` is (B,)."""
        q = split_heads(self.query(self.normalize_input(h)), self.heads)
        update = join_heads(dot_product_attention(q, k, v, mask))
        update = update.masked_fill(alone[:, None, None], 0.0)  # no other piece: nothing to add
        return self.add_residual(h, self.out(update))


class LeakyAttention(ResidualBlock):
    """Equation (3): cross-attention with a learned NULL, to which a row may leak its weight."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.heads = config.heads
        self.query = nn.Linear(config.width, config.width)
        self.key = nn.Linear(config.width, config.width)
        self.value = nn.Linear(config.width, config.width)
        self.out = nn.Linear(config.width, config.width)
        self.leaky = config.leaky
        if config.leaky:
            std = config.width**-0.5  # small: the norm of v_NULL stays far below those of pieces
            self.null_key = nn.Parameter(torch.randn(config.width) * std)
            self.null_value = nn.Parameter(torch.randn(config.width) * std)

    def forward(
        self, h: Tensor, source: Tensor, source_valid: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the updated h, W (B, T, S) and the weights of NULL (B, T), means over heads."""
        scale = (h.shape[-1] // self.heads) ** -0.5  # 1 / √K
        q = split_heads(self.query(self.normalize_input(h)), self.heads) * scale
        k = split_heads(self.key(source), self.heads)
        scores = q @ k.transpose(-1, -2)  # (B, H, T, S)
        # The softmax that becomes the alignment is in float32 whatever the dtype of the products.
        scores = widen(scores).masked_fill(~source_valid[:, None, None, :], -1e9)
        if self.leaky:
            null_score = q @ self.null_key.view(self.heads, -1, 1).to(q.dtype)  # (B, H, T, 1)
            weights = torch.cat([null_score, scores], dim=-1).softmax(-1)  # (B, H, T, 1 + S)
        else:
            weights = scores.softmax(-1) * source_valid[:, None, None, :]  # empty source: no key
        mean = weights.mean(1)
        # In the last layer values only serve the prediction (4): exported models leave them out.
        v = split_heads(self.value(source), self.heads)
        if self.leaky:
            null_value = self.null_value.view(self.heads, 1, -1).to(v.dtype)
            update = weights[..., 1:].to(v.dtype) @ v + weights[..., :1].to(v.dtype) * null_value
            mean, null = mean[..., 1:], mean[..., 0]
        else:
            update, null = weights.to(v.dtype) @ v, mean.new_zeros(mean.shape[:2])
        return self.add_residual(h, self.out(join_heads(update))), mean, null


class Encoder(nn.Module):
    """The standard Transformer encoder; reads the source."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        layers = range(config.encoder_layers)
        self.attention = nn.ModuleList(SelfAttention(config) for _ in layers)
        self.feed_forward = nn.ModuleList(FeedForward(config) for _ in layers)
        self.norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        # An empty sentence keeps one key, so that its rows stay finite; nobody looks at them.
        mask = additive_mask(valid_places(lengths.clamp(min=1), x.shape[1])[:, None, None, :])
        mask = mask.expand(-1, 1, x.shape[1], -1)
        for attention, feed_forward in zip(self.attention, self.feed_forward, strict=True):
            x = feed_forward(attention(x, mask))
        return self.norm(x)


class Decoder(nn.Module):
    """The static-KV decoder: row i knows every target piece but its own, equations (2) and (3).

    With `masked` off it is an ordinary autoregressive decoder: row i knows the pieces before it.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        layers, width = config.decoder_layers, config.width
        self.config = config
        self.static_norm = nn.LayerNorm(width) if config.norm == "pre" else nn.Identity()
        # Keys and values of every layer are projections of the same vectors: one matrix makes all.
        self.key_value = nn.Linear(width, layers * 2 * width)
        self.attention = nn.ModuleList(StaticAttention(config) for _ in range(layers))
        first_cross = 0 if config.cross == "all" else layers - 1
        self.cross = nn.ModuleDict(
            {str(layer): LeakyAttention(config) for layer in range(first_cross, layers)}
        )
        self.feed_forward = nn.ModuleList(FeedForward(config) for _ in range(layers))
        self.norm = nn.LayerNorm(width) if config.norm == "pre" else nn.Identity()
        self.last_layer = str(layers - 1)
        if not config.masked:
            self.begin = nn.Parameter(torch.randn(width) * width**-0.5)

    def forward(
        self,
        embedded: Tensor,
        start: Tensor,
        lengths: Tensor,
        source: Tensor,
        source_lengths: Tensor,
        read: str,
        predicted: Predicted,
    ) -> Attention:
        """Return weights, NULL and h of each target piece.

        `embedded` (B, T, D) is w of the target, `start` (T, D) is p (and the side vector if tied),
        `source` (B, S, D) what the encoder made of the source; `read` is as in the settings.
        """
        size = embedded.shape[1]
        mask, alone = self.attention_mask(lengths, size)
        source_valid = valid_places(source_lengths, source.shape[1])
        if self.config.masked:
            static = self.static_norm(embedded + start)  # w + p, whatever the layer
            key_values = self.key_value(static).chunk(self.config.decoder_layers, -1)
            h = start.expand_as(embedded)  # h^0 = p: the query knows its place, not its piece
        else:
            # Row i starts with the piece before it, the first row with a learned beginning.
            begin = self.begin.expand(len(embedded), 1, -1).to(embedded.dtype)
            h = torch.cat([begin, embedded[:, :-1]], dim=1) + start
        seen: list[tuple[Tensor, Tensor]] = []  # weights and NULL of the cross-attentions, in order
        for layer, attention in enumerate(self.attention):
            pair = key_values[layer] if self.config.masked else self.own_key_value(layer, h)
            k, v = (split_heads(part, self.config.heads) for part in pair.chunk(2, -1))
            before = h = attention(h, k, v, mask, alone)
            if str(layer) in self.cross:
                h, *found = self.cross[str(layer)](h, source, source_valid)
                seen.append((found[0], found[1]))
            h = self.feed_forward[layer](h)
        prior = seen[-1][0]
        if read in ("posterior", "exact"):
            exact = read == "exact"
            weights, null = self.read_posterior(
                before, *seen[-1], source, source_valid, predicted, exact
            )
        else:
            weights, null = seen[choose_layer(read, len(seen))]
        # Padding gets zeros: sums over a batch need no mask then.
        rows = valid_places(lengths, size) & (source_lengths > 0)[:, None]
        cells = rows[:, :, None] & source_valid[:, None, :]
        return Attention(weights * cells, null * rows, self.norm(h), prior * cells)

    def read_posterior(
        self,
        before: Tensor,
        weights: Tensor,
        null: Tensor,
        source: Tensor,
        source_valid: Tensor,
        predicted: Predicted,
        exact: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return Q (B, T, S) of equation (6) and NULL's share (B, T), from W and what it weighs."""
        updates = value_updates(self.cross[self.last_layer], source)
        prior, valid = weights, source_valid
        if self.config.leaky:
            prior = torch.cat([null[..., None], weights], dim=-1)
            valid = F.pad(source_valid, (1, 0), value=True)
        ids, table = predicted.ids, predicted.table
        if exact:
            likelihood = exact_likelihood(self, before, updates, table, ids)
        else:
            wanted = F.embedding(ids, table) - table.mean(0)
            likelihood = closed_likelihood(self, before, prior, updates, wanted)
        posterior = apply_bayes(prior, likelihood, valid)
        if self.config.leaky:
            return posterior[..., 1:], posterior[..., 0]
        return posterior, null

    def own_key_value(self, layer: int, h: Tensor) -> Tensor:
        """Project keys and values from the layer's own input, for the autoregressive decoder."""
        part = slice(2 * self.config.width * layer, 2 * self.config.width * (layer + 1))
        return F.linear(self.static_norm(h), self.key_value.weight[part], self.key_value.bias[part])

    def attention_mask(self, lengths: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Return the additive mask (B, 1, T, T), and which sentences (B,) have rows without a key.

        With three pieces, row i of the mask allows the keys marked x:  0 . x x
                                                                        1 x . x
                                                                        2 x x .
        A sentence of one piece has no key left: its row looks at itself, to stay finite, and
        `StaticAttention` then replaces what it sees by zero.
        """
        keys = valid_places(lengths.clamp(min=1), size)[:, None, :]
        if not self.config.masked:
            causal = torch.ones(size, size, dtype=torch.bool, device=lengths.device).tril()
            # The first row sees the learned beginning, so none is without a key.
            return additive_mask((keys & causal)[:, None]), lengths < 0
        alone = lengths < 2
        others = ~torch.eye(size, dtype=torch.bool, device=lengths.device)
        return additive_mask((keys & (others | alone[:, None, None]))[:, None]), alone


class DirectionNetwork(nn.Module):
    """Encoder and decoder that predict one side from the other side and from itself."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)


class MaskAlign(nn.Module):
    """Both directions over shared embeddings: `fwd` predicts the target, `bwd` the source."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.src_embedding = self.tgt_embedding = nn.Embedding(config.src_vocab, config.width)
        if not config.joint_vocab:
            self.tgt_embedding = nn.Embedding(config.tgt_vocab, config.width)
        self.fwd = self.bwd = DirectionNetwork(config)
        if config.tied:  # all weights are shared but the side vectors, which say what is source
            self.side = nn.Parameter(torch.randn(2, config.width) * config.width**-0.5)
        else:
            self.bwd = DirectionNetwork(config)
        self.reset_weights()

    def reset_weights(self) -> None:
        """Draw embeddings from N(0, 1/D), matrices by Xavier: the parts of a fused one apart."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                fused = name.endswith(("qkv", "key_value"))
                rows = self.config.width if fused else module.out_features
                for part in module.weight.data.split(rows):
                    nn.init.xavier_uniform_(part)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.width**-0.5)

    def table(self, side: int) -> Tensor:
        """Return E (V, D) of side 0 (source) or 1 (target): input of a piece, output in (4)."""
        return (self.tgt_embedding if side else self.src_embedding).weight

    def embed(self, ids: Tensor, side: int) -> tuple[Tensor, Tensor]:
        """Return w (B, L, D), which is E times √D, and p (L, D), with the side vector if tied."""
        start = sinusoidal_positions(ids.shape[1], self.config.width, ids.device)
        if self.config.tied:
            start = start + self.side[side]
        return F.embedding(ids, self.table(side)) * self.config.width**0.5, start

    def encode(self, ids: Tensor, lengths: Tensor, side: int) -> Tensor:
        """Return vectors (B, L, D) of the pieces of the side that is read."""
        words, start = self.embed(ids, side)
        words = F.dropout(words + start, self.config.dropout, self.training)
        return (self.bwd if side else self.fwd).encoder(words, lengths)

    def decode(
        self,
        ids: Tensor,
        lengths: Tensor,
        side: int,
        source: Tensor,
        source_lengths: Tensor,
        read: str,
    ) -> Attention:
        """Predict the pieces of a side from the encoded other one."""
        shifted = read.startswith("shift")
        if shifted:  # one row more: the one that has the last piece as its input
            ids, lengths = F.pad(ids, (0, 1)), lengths + 1
        words, start = self.embed(ids, side)
        words = F.dropout(words, self.config.dropout, self.training)
        decoder = (self.fwd if side else self.bwd).decoder
        predicted = Predicted(ids, self.table(side))
        found = decoder(words, start, lengths, source, source_lengths, read, predicted)
        if shifted:
            rows = found.weights[:, 1:], found.null[:, 1:]
            return Attention(*rows, found.hidden[:, :-1], found.prior[:, :-1])
        return found

    def forward(
        self,
        src: Tensor,
        src_lengths: Tensor,
        tgt: Tensor,
        tgt_lengths: Tensor,
        read: str | None = None,
    ) -> tuple[Attention, Attention]:
        """Return both directions: `fwd` has weights (B, T, S), `bwd` (B, S, T).

        They are read as the settings say, or as `read` does.
        """
        read = read or self.config.read
        source = self.encode(src, src_lengths, 0)
        fwd = self.decode(tgt, tgt_lengths, 1, source, src_lengths, read)
        source = self.encode(tgt, tgt_lengths, 1)
        return fwd, self.decode(src, src_lengths, 0, source, tgt_lengths, read)


def harmonic_mean(fwd: Tensor, bwd: Tensor) -> Tensor:
    """Return S (B, T, S) of equation (5), from W_fwd (B, T, S) and W_bwd (B, S, T).

    0 where both are 0.
    """
    bwd = bwd.transpose(1, 2)
    total = fwd + bwd
    return torch.where(total > 0, 2 * fwd * bwd / total.clamp(min=1e-30), torch.zeros_like(total))
