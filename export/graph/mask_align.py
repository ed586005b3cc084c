"""Mask-Align as a plain ONNX graph, built from the trained weights op by op.

Builds what alignment needs of `trainer.networks.mask_align` and nothing else. What is read is the
posterior, without the vocabulary; the engine takes it out again for `--read prior`, which needs
neither the last feed-forward nor the values of the last cross-attention.
"""

import numpy as np
import onnx
from onnx import TensorProto

from ...trainer.config import ModelConfig
from ...trainer.networks.posterior import LEAST_PRIOR, RAMP, STRENGTH
from .builder import NetworkBuilder, SideValues, Weights

# (B, L, H, K) to heads: rows of queries and values (B, H, L, K), columns of keys (B, H, K, L).
_ROWS, _COLUMNS = (0, 2, 1, 3), (0, 2, 3, 1)


class MaskAlignGraph(NetworkBuilder):
    """The layers of Mask-Align, as ONNX ops."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        super().__init__(config, weights)
        self.pre = config.norm == "pre"
        self.query_scale = np.float32((config.width // config.heads) ** -0.5)

    def build(self) -> onnx.ModelProto:
        """Build the whole aligner: piece ids of both sides to scores, and their parts."""
        sides = [self.build_side("src", 0), self.build_side("tgt", 1)]
        fwd, fwd_null = self.build_direction(0, sides)
        bwd, bwd_null = self.build_direction(1, sides)
        self.build_scores(fwd, bwd, sides)
        self.build_null(fwd_null, sides[1], sides[0], "fwd_null")
        self.build_null(bwd_null, sides[0], sides[1], "bwd_null")
        return self.build_model()

    def build_start(self, count: str, index: int) -> str:
        """Add sines and cosines (L, D), computed here so that no length is too long."""
        place = self.op("Cast", count, to=TensorProto.FLOAT)
        rates = self.trained_weight("positions.rates")
        angles = self.op("Mul", self.op("Unsqueeze", place, self.ints(1)), rates)
        waves = self.op("Concat", self.op("Sin", angles), self.op("Cos", angles), axis=1)
        # Angles need float32; `dtypes.convert_to_fp16` turns this cast to the type of the weights.
        start = self.op("Cast", waves, to=TensorProto.FLOAT, name=f"{self.scope}positions")
        if self.config.tied:
            side = self.weight(f"side.{index}", self.trained["side"][index])
            start = self.op("Add", start, side)
        return start

    # ---- parts ----

    def norm_before(self, x: str, name: str) -> str:
        return self.norm(x, name) if self.pre else x

    def add_residual(self, x: str, update: str, name: str) -> str:
        x = self.op("Add", x, update)
        return x if self.pre else self.norm(x, f"{name}.norm")

    def feed_forward(self, x: str, name: str) -> str:
        up = self.op("Relu", self.linear(self.norm_before(x, f"{name}.norm"), f"{name}.up"))
        return self.add_residual(x, self.linear(up, f"{name}.down"), name)

    def split_heads(self, x: str, perm: tuple[int, int, int, int]) -> str:
        """Add (B, L, D) as heads: (B, H, L, K), or (B, H, K, L) for keys."""
        width, heads = self.config.width, self.config.heads
        split = self.op("Reshape", x, self.ints(0, 0, heads, width // heads))
        return self.op("Transpose", split, perm=perm)

    def masked_attention(self, q: str, k: str, v: str, mask: str) -> str:
        """Add softmax(q kᵀ + mask) v, (B, L, D); q comes scaled and may have B = 1."""
        scores = self.op("MatMul", self.split_heads(q, _ROWS), self.split_heads(k, _COLUMNS))
        weights = self.op("Softmax", self.op("Add", scores, mask), axis=-1)
        mixed = self.op("MatMul", weights, self.split_heads(v, _ROWS))
        return self.op(
            "Reshape", self.op("Transpose", mixed, perm=_ROWS), self.ints(0, 0, self.config.width)
        )

    # ---- one direction ----

    def build_direction(self, read: int, sides: list[SideValues]) -> tuple[str, str]:
        """Add head-mean weights (B, T, S) of the direction that reads the side `read`, and NULL's
        (B, T)."""
        name = "fwd" if self.config.tied or read == 0 else "bwd"
        label = "fwd" if read == 0 else "bwd"
        self.scope = f"{label}/encoder/"
        source = self.build_encoder(f"{name}.encoder", sides[read])
        self.scope = f"{label}/decoder/"
        return self.build_decoder(f"{name}.decoder", sides[1 - read], source, sides[read])

    def build_encoder(self, name: str, side: SideValues) -> str:
        x = side.embedded
        for layer in range(self.config.encoder_layers):
            part = f"{name}.attention.{layer}"
            normed = self.norm_before(x, f"{part}.norm")
            scales = (self.query_scale, 1.0, 1.0)
            q, k, v = (
                self.project(normed, f"{part}.qkv", side, i, scale)
                for i, scale in enumerate(scales)
            )
            mixed = self.flatten_rows(self.masked_attention(q, k, v, side.mask))
            x = self.add_residual(x, self.linear(mixed, f"{part}.out"), part)
            x = self.feed_forward(x, f"{name}.feed_forward.{layer}")
        return self.norm_before(x, f"{name}.norm")

    def build_decoder(
        self, name: str, side: SideValues, source: str, source_side: SideValues
    ) -> tuple[str, str]:
        """Add the part of the decoder that the last layer's cross-attention weights depend on."""
        masked, last = self.config.masked, self.config.decoder_layers - 1
        static = self.norm_before(side.embedded, f"{name}.static_norm") if masked else ""
        mask = self.decoder_mask(side)
        h = side.start if masked else self.shift_words(name, side)
        for layer in range(last + 1):
            part = f"{name}.attention.{layer}"
            keys = static if masked else self.norm_before(h, f"{name}.static_norm")
            # One product for each: splitting the result of a single large one costs a copy and
            # saves nothing on a CPU.
            k, v = (self.project(keys, f"{name}.key_value", side, 2 * layer + i) for i in range(2))
            first = masked and layer == 0  # the queries of all pairs are the positions: B = 1
            normed = self.norm_before(h, f"{part}.norm")
            q = self.linear(normed, f"{part}.query", scale=self.query_scale)
            if first:
                q = self.op("Unsqueeze", q, self.ints(0))
            else:
                q = self.op("Reshape", q, side.shape3)
            mixed = self.masked_attention(q, k, v, mask)
            if masked:
                mixed = self.zero_if_alone(mixed, side)
            update = self.linear(self.flatten_rows(mixed), f"{part}.out")
            if first:
                h = self.flatten_rows(self.op("Add", self.op("Reshape", update, side.shape3), h))
                h = h if self.pre else self.norm(h, f"{part}.norm")
            else:
                h = self.add_residual(h, update, part)
            if layer < last:
                if self.config.cross == "all":
                    h = self.cross_attention(f"{name}.cross.{layer}", h, side, source, source_side)
                h = self.feed_forward(h, f"{name}.feed_forward.{layer}")
        cross = f"{name}.cross.{last}"
        weights, null = self.cross_weights(cross, h, side, source, source_side)
        return self.build_posterior(name, h, (weights, null), side, source, source_side)

    def shift_words(self, name: str, side: SideValues) -> str:
        """Add what an autoregressive decoder starts with: the begin vector, then all words but the
        last."""
        one, width = self.ints(1), self.ints(self.config.width)
        batch = self.op("Slice", side.shape, self.ints(0), one)
        begins = self.op(
            "Expand",
            self.trained_weight(f"{name}.begin"),
            self.op("Concat", batch, one, width, axis=0),
        )
        before = self.op("Slice", side.words, self.ints(0), self.ints(-1), one)
        words = self.op("Concat", begins, before, axis=1)
        return self.flatten_rows(self.op("Add", words, side.start))

    def decoder_mask(self, side: SideValues) -> str:
        """Add the additive mask (B, 1, L, L).

        Masked: no row sees its own key, but in a sentence of one piece it does, to stay finite:
        see `zero_if_alone`. Else no row sees what comes after it.
        """
        count = self.count_along(side.shape)
        column = self.op("Unsqueeze", count, self.ints(1))  # (L, 1)
        if self.config.masked:
            alone = self.op("Unsqueeze", self.is_alone(side), self.ints(1, 2))  # (B, 1, 1)
            allowed = self.op("Or", self.op("Not", self.op("Equal", count, column)), alone)
        else:
            allowed = self.op("Unsqueeze", self.op("LessOrEqual", count, column), self.ints(0))
        return self.op("Add", self.make_additive(allowed, 1), side.mask)

    def is_alone(self, side: SideValues) -> str:
        return self.op("Less", side.lengths, self.scalar(2, np.int32))  # (B,)

    def zero_if_alone(self, x: str, side: SideValues) -> str:
        """Add x (B, L, D), and zero in sentences of one piece, which have no key to look at."""
        others = self.op("Unsqueeze", self.op("Not", self.is_alone(side)), self.ints(1, 2))
        return self.op("Mul", x, self.op("CastLike", others, x))

    # ---- cross-attention ----

    def cross_query(self, name: str, h: str, side: SideValues) -> str:
        h = self.norm_before(h, f"{name}.norm")
        return self.project(h, f"{name}.query", side, scale=self.query_scale)

    def cross_attention(
        self, name: str, h: str, side: SideValues, source: str, source_side: SideValues
    ) -> str:
        """Add a cross-attention before the last one, which needs its values. NULL is one key
        more."""
        q = self.cross_query(name, h, side)
        k, v = (self.project(source, f"{name}.{p}", source_side) for p in ("key", "value"))
        mask = source_side.mask
        if self.config.leaky:
            k, v = (
                self.put_null_first(x, f"{name}.null_{p}") for x, p in ((k, "key"), (v, "value"))
            )
            # (B, 1, 1, 1 + S): the mask's own first place always is open, as NULL's must be.
            first = self.op("Slice", mask, self.ints(0), self.ints(1), self.ints(3))
            mask = self.op("Concat", first, mask, axis=3)
        mixed = self.masked_attention(q, k, v, mask)
        return self.add_residual(h, self.linear(self.flatten_rows(mixed), f"{name}.out"), name)

    def put_null_first(self, x: str, name: str) -> str:
        """Add (B, 1 + S, D): the NULL vector before the others."""
        null = self.weight(name, self.trained[name][None, None])
        batch = self.op("Slice", self.op("Shape", x), self.ints(0), self.ints(1))
        shape = self.op("Concat", batch, self.ints(1, self.config.width), axis=0)
        return self.op("Concat", self.op("Expand", null, shape), x, axis=1)

    def cross_weights(
        self, name: str, h: str, side: SideValues, source: str, source_side: SideValues
    ) -> tuple[str, str]:
        """Add head-mean weights (B, T, S) in float32, and NULL's (B, T), "" if not leaky."""
        key = self.project(source, f"{name}.key", source_side)
        q = self.split_heads(self.cross_query(name, h, side), _ROWS)
        scores = self.op("MatMul", q, self.split_heads(key, _COLUMNS))  # (B, H, T, S)
        scores = self.op("Cast", scores, to=TensorProto.FLOAT)
        mask = self.op("Cast", source_side.mask, to=TensorProto.FLOAT)
        scores = self.op("Add", scores, mask)
        if not self.config.leaky:
            return self.mean_over_heads(self.op("Softmax", scores, axis=-1)), ""
        null_key = self.trained_weight(f"{name}.null_key")
        width, heads = self.config.width, self.config.heads
        null = self.op(
            "MatMul", q, self.op("Reshape", null_key, self.ints(heads, width // heads, 1))
        )
        scores = self.op("Concat", self.op("Cast", null, to=TensorProto.FLOAT), scores, axis=-1)
        mean = self.mean_over_heads(self.op("Softmax", scores, axis=-1))  # (B, T, 1 + S)
        first, end = self.ints(1), self.ints(np.iinfo(np.int64).max)
        weights = self.op("Slice", mean, first, end, self.ints(2))
        nulls = self.op("Slice", mean, self.ints(0), first, self.ints(2))
        return weights, self.op("Squeeze", nulls, self.ints(2))

    # ---- posterior ----

    def build_posterior(
        self,
        name: str,
        before: str,
        prior: tuple[str, str],
        side: SideValues,
        source: str,
        source_side: SideValues,
    ) -> tuple[str, str]:
        """Add Q (B, T, S) and NULL's (B, T), "" if not leaky; see `trainer.networks.posterior`."""
        weights, null = prior
        updates = self.build_updates(name, source, source_side)
        mixed = self.op("MatMul", self.op("CastLike", weights, updates), updates)
        null_update = ""
        if self.config.leaky:
            null_update = self.weight(f"{name}.null_update", self.null_update(name))
            share = self.op("Unsqueeze", self.op("CastLike", null, updates), self.ints(2))
            mixed = self.op("Add", mixed, self.op("Mul", share, null_update))
        point = self.op("Add", before, self.flatten_rows(mixed))
        gradient = self.op("Reshape", self.build_gradient(name, point, side), side.shape3)
        return self.apply_bayes(weights, null, gradient, updates, null_update, source_side)

    def merge_output(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return W_O W_V and W_O b_V + b_O: values and their output in one product."""
        cross = f"{name}.cross.{self.config.decoder_layers - 1}"
        out, value = self.trained[f"{cross}.out.weight"], self.trained[f"{cross}.value.weight"]
        bias = out @ self.trained[f"{cross}.value.bias"] + self.trained[f"{cross}.out.bias"]
        return out @ value, bias

    def null_update(self, name: str) -> np.ndarray:
        """Return W_O v_NULL + b_O."""
        cross = f"{name}.cross.{self.config.decoder_layers - 1}"
        out, bias = (self.trained[f"{cross}.out.{kind}"] for kind in ("weight", "bias"))
        return out @ self.trained[f"{cross}.null_value"] + bias

    def build_updates(self, name: str, source: str, source_side: SideValues) -> str:
        """Add o (B, S, D), what the cross-attention adds if it looks at one piece alone."""
        weight, bias = self.merge_output(name)
        given = (
            self.weight(f"{name}.update.weight", weight),
            self.weight(f"{name}.update.bias", bias),
        )
        return self.op("Reshape", self.op("Gemm", source, *given, transB=1), source_side.shape3)

    def build_gradient(self, name: str, point: str, side: SideValues) -> str:
        """Add g (B·T, D): how the score of a row's own piece changes with the update."""
        last = self.config.decoder_layers - 1
        cross, part = f"{name}.cross.{last}", f"{name}.feed_forward.{last}"
        x = point if self.pre else self.norm(point, f"{cross}.norm")
        up = self.linear(self.norm_before(x, f"{part}.norm"), f"{part}.up")
        y = self.op("Add", x, self.linear(self.op("Relu", up), f"{part}.down"))
        # The words of the graph are √D times e: the gain of the norm makes up for it.
        wanted = self.flatten_rows(self.op("Sub", side.words, self.mean_word(side)))
        root = STRENGTH * self.config.width**-0.5
        outer = f"{name}.norm" if self.pre else f"{part}.norm"
        gradient = self.norm_gradient(y, wanted, outer, root)
        through = self.op("Mul", self.multiply_back(gradient, f"{part}.down"), self.open_share(up))
        through = self.multiply_back(through, f"{part}.up")
        if self.pre:
            return self.op("Add", gradient, self.norm_gradient(x, through, f"{part}.norm"))
        return self.norm_gradient(point, self.op("Add", gradient, through), f"{cross}.norm")

    def mean_word(self, side: SideValues) -> str:
        """Add ē √D of a side's vocabulary."""
        table = self.name_table(side)
        mean = self.trained[table].mean(0) * np.float32(self.config.width**0.5)
        return self.weight(f"{table}.mean", mean.astype(np.float32))

    def name_table(self, side: SideValues) -> str:
        own = side.lengths == "tgt_lengths" and not self.config.joint_vocab
        return "tgt_embedding.weight" if own else "src_embedding.weight"

    def open_share(self, up: str) -> str:
        """Add how far each ReLU is open, from 0 to 1."""
        return self.op("HardSigmoid", up, alpha=1 / RAMP, beta=0.5)

    def multiply_back(self, x: str, name: str) -> str:
        """Add x W: the way back through a linear map."""
        weight = self.weight(f"{name}.back.weight", self.trained[f"{name}.weight"].T)
        return self.op("Gemm", x, weight, transB=1)

    def norm_gradient(self, x: str, gradient: str, name: str, scale: float = 1.0) -> str:
        """Add the gradient for x (B·L, D), given that of norm(x), which is `scale` too large."""
        gain = self.trained[f"{name}.weight"] * np.float32(scale)
        gain = self.weight(f"{name}.gain" if scale == 1.0 else f"{name}.gain.words", gain)
        real = self.op("Cast", x, to=TensorProto.FLOAT)
        centred = self.op("Sub", real, self.op("ReduceMean", real, self.ints(-1)))
        square = self.op("ReduceMean", self.op("Mul", centred, centred), self.ints(-1))
        steady = self.op("Add", square, self.scalar(1e-5, np.float32))
        deviation = self.op("Sqrt", steady)
        unit = self.op("Div", centred, deviation)
        scaled = self.op("Cast", self.op("Mul", gradient, gain), to=TensorProto.FLOAT)
        along = self.op("ReduceMean", self.op("Mul", scaled, unit), self.ints(-1))
        level = self.op("Sub", scaled, self.op("ReduceMean", scaled, self.ints(-1)))
        rest = self.op("Sub", level, self.op("Mul", unit, along))
        return self.op("CastLike", self.op("Div", rest, deviation), x)

    def apply_bayes(
        self,
        weights: str,
        null: str,
        gradient: str,
        updates: str,
        null_update: str,
        source_side: SideValues,
    ) -> tuple[str, str]:
        """Add softmax(log W + g·o) over the pieces of the source, and NULL if there is one."""
        least = self.scalar(LEAST_PRIOR, np.float32)
        turned = self.op("Transpose", updates, perm=(0, 2, 1))
        likely = self.op("Cast", self.op("MatMul", gradient, turned), to=TensorProto.FLOAT)
        logs = self.op("Add", self.op("Log", self.op("Max", weights, least)), likely)
        mask = self.op("Cast", source_side.mask, to=TensorProto.FLOAT)
        seen = self.op("Add", logs, self.op("Squeeze", mask, self.ints(1)))
        if not self.config.leaky:
            return self.op("Softmax", seen, axis=-1), ""
        column = self.op("Unsqueeze", null_update, self.ints(1))
        null_likely = self.op("Cast", self.op("MatMul", gradient, column), to=TensorProto.FLOAT)
        null_logs = self.op("Log", self.op("Max", self.op("Unsqueeze", null, self.ints(2)), least))
        both = self.op("Concat", self.op("Add", null_logs, null_likely), seen, axis=-1)
        shares = self.op("Softmax", both, axis=-1)
        first, end = self.ints(1), self.ints(np.iinfo(np.int64).max)
        posterior = self.op("Slice", shares, first, end, self.ints(2))
        nulls = self.op("Slice", shares, self.ints(0), first, self.ints(2))
        return posterior, self.op("Squeeze", nulls, self.ints(2))

    def mean_over_heads(self, x: str) -> str:
        return self.op("ReduceMean", x, self.ints(1), keepdims=0)
