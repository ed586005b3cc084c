"""The symmetric student as a plain ONNX graph: two encoder passes, one matrix of scores, softmax
both ways, with the inputs and outputs of Mask-Align's graph.

Builds what `trainer.networks.student` computes. Everything from the scores on stays in fp32
whatever the graph's dtype is: its constants are called `tail.`.
"""

import numpy as np
import onnx
from onnx import TensorProto

from ...trainer.networks.student import LARGE, WINDOW
from .builder import NetworkBuilder, SideValues

TAIL = "tail."


class StudentGraph(NetworkBuilder):
    """The layers of the student, as ONNX ops."""

    def build(self) -> onnx.ModelProto:
        """Build the whole aligner: piece ids of both sides to scores, and their parts."""
        sides = [self.build_side("src", 0), self.build_side("tgt", 1)]
        x, y = (self.build_encoder(side, index) for index, side in enumerate(sides))
        words = [self.find_word_starts(name, sides[i], i) for i, name in enumerate(("src", "tgt"))]
        self.scope = "score/"
        cells = self.op(
            "And",
            self.op("Unsqueeze", words[1], self.ints(2)),
            self.op("Unsqueeze", words[0], self.ints(1)),
        )  # (B, T, S)
        scores = self.build_similarity(x, y, sides)
        if self.config.diagonal:
            scores = self.op("Sub", scores, self.diagonal_loss(sides))
        nulls = self.null_score(y, "tgt_null", sides[1]), self.null_score(x, "src_null", sides[0])
        if self.config.refine:
            fwd, bwd = map(self.drop_null, self.softmax_both_ways(scores, nulls, cells))
            scores = self.op("Add", scores, self.build_correction(scores, fwd, bwd, cells))
        fwd, bwd = self.softmax_both_ways(scores, nulls, cells)
        self.build_scores(self.drop_null(fwd), self.drop_null(bwd), sides)
        # Inside a word nothing but NULL is left, so its weight is 1 there.
        self.build_null(self.keep_null(fwd), sides[1], sides[0], "fwd_null")
        self.build_null(self.keep_null(bwd), sides[0], sides[1], "bwd_null")
        return self.build_model()

    # ---- one side ----

    def build_start(self, count: str, index: int) -> str:
        """Add the side's vector (D,); positions the encoder does not need."""
        return self.weight(f"side.{index}", self.trained["side"][index])

    def find_word_starts(self, name: str, side: SideValues, index: int) -> str:
        """Add (B, L) bool: where a word begins."""
        table = "src_starts" if index == 0 or self.config.joint_vocab else "tgt_starts"
        starts = self.weight(table, self.trained[table] > 0)
        return self.op("And", side.valid, self.op("Gather", starts, name, axis=0))

    def build_encoder(self, side: SideValues, index: int) -> str:
        """Add (B·L, D): every layer adds what a piece and its neighbours say."""
        self.scope = f"{('src', 'tgt')[index]}/encoder/"
        rows = self.op("Unsqueeze", side.valid, self.ints(2))  # (B, L, 1)
        x = side.embedded
        for layer in range(self.config.encoder_layers):
            name = f"layers.{layer}"
            normed = self.op("Reshape", self.norm(x, f"{name}.norm"), side.shape3)
            normed = self.op("Mul", normed, self.op("CastLike", rows, normed))
            up = self.op("Relu", self.linear(self.join_neighbours(normed), f"{name}.up"))
            x = self.op("Add", x, self.linear(up, f"{name}.down"))
        return self.norm(x, "norm")

    def join_neighbours(self, x: str) -> str:
        """Add (B·L, 3D): beside each piece those before and after it, zero at the ends.

        Of a b c, with 0 for no piece:  0ab  abc  bc0
        """
        reach = WINDOW // 2
        padded = self.op("Pad", x, self.ints(0, reach, 0, 0, reach, 0))
        parts = []
        for k in range(WINDOW):
            last = k - 2 * reach  # what is left over at the end
            end = self.ints(last if last else np.iinfo(np.int64).max)
            parts.append(self.op("Slice", padded, self.ints(k), end, self.ints(1)))
        joined = self.op("Concat", *parts, axis=2)
        return self.op("Reshape", joined, self.ints(-1, WINDOW * self.config.width))

    # ---- scores ----

    def tail(self, name: str, value: "np.ndarray | float") -> str:
        """Add a constant that stays fp32."""
        return self.weight(f"{TAIL}{name}", np.asarray(value, np.float32))

    def to_float32(self, x: str) -> str:
        return self.op("Cast", x, to=TensorProto.FLOAT)

    def build_similarity(self, x: str, y: str, sides: list[SideValues]) -> str:
        """Add (B, T, S): products of the target's queries with the source's keys."""
        scale = self.config.width**-0.5
        query = self.project(y, "query", sides[1], scale=scale)
        key = self.project(x, "key", sides[0])
        products = self.op("MatMul", query, self.op("Transpose", key, perm=(0, 2, 1)))
        return self.to_float32(products)

    def diagonal_loss(self, sides: list[SideValues]) -> str:
        """Add (B, T, S): how much a cell loses by its distance from the diagonal.

        away · (slow + fast · away) with away = log(1 + |i + ½ - (S / T) (j + ½)|).
        """
        half = self.tail("half", 0.5)
        i, j = (
            self.op("Add", self.to_float32(self.count_along(side.shape)), half) for side in sides
        )
        n_src, n_tgt = (self.to_float32(side.lengths) for side in sides)
        slope = self.op("Div", n_src, self.op("Max", n_tgt, self.tail("one", 1.0)))
        middle = self.op("Mul", self.op("Unsqueeze", slope, self.ints(1)), j)  # (B, T)
        away = self.op("Abs", self.op("Sub", i, self.op("Unsqueeze", middle, self.ints(2))))
        away = self.op("Log", self.op("Add", away, self.tail("one", 1.0)))
        slow, fast = (self.tail(f"diagonal.{k}", self.trained["diagonal"][k]) for k in (0, 1))
        return self.op("Mul", away, self.op("Add", slow, self.op("Mul", fast, away)))

    def null_score(self, x: str, name: str, side: SideValues) -> str:
        """Add (B, L, 1): how much a word would rather have no partner."""
        shape = self.op("Concat", side.shape, self.ints(1), axis=0)
        return self.op("Reshape", self.to_float32(self.linear(x, name)), shape)

    def softmax_both_ways(self, scores: str, nulls: tuple[str, str], cells: str) -> tuple[str, str]:
        """Add weights (B, T, 1 + S) and (B, S, 1 + T), NULL first."""
        scores = self.op("Where", cells, scores, self.tail("never", -LARGE))
        transposed = self.op("Transpose", scores, perm=(0, 2, 1))
        fwd = self.op("Softmax", self.op("Concat", nulls[0], scores, axis=2), axis=-1)
        bwd = self.op("Softmax", self.op("Concat", nulls[1], transposed, axis=2), axis=-1)
        return fwd, bwd

    def drop_null(self, weights: str) -> str:
        end = self.ints(np.iinfo(np.int64).max)
        return self.op("Slice", weights, self.ints(1), end, self.ints(2))

    def keep_null(self, weights: str) -> str:
        """Add NULL's weights (B, L)."""
        null = self.op("Slice", weights, self.ints(0), self.ints(1), self.ints(2))
        return self.op("Squeeze", null, self.ints(2))

    def build_correction(self, scores: str, fwd: str, bwd: str, cells: str) -> str:
        """Add (B, T, S): what the cells around each say about its score."""
        bwd = self.op("Transpose", bwd, perm=(0, 2, 1))
        product = self.op("Add", self.op("Mul", fwd, bwd), self.tail("tiny", 1e-9))
        small = self.op("Mul", scores, self.tail("quarter", 0.25))
        planes = [
            self.op("Unsqueeze", plane, self.ints(1))
            for plane in (small, fwd, bwd, self.op("Sqrt", product))
        ]
        inside = self.to_float32(self.op("Unsqueeze", cells, self.ints(1)))
        seen = self.op("Mul", self.op("Concat", *planes, axis=1), inside)
        looked = self.op("Mul", self.op("Relu", self.convolution(seen, "look")), inside)
        return self.op("Squeeze", self.convolution(looked, "judge"), self.ints(1))

    def convolution(self, x: str, name: str) -> str:
        weight, bias = (
            self.tail(f"{name}.{kind}", self.trained[f"correction.{name}.{kind}"])
            for kind in ("weight", "bias")
        )
        reach = self.trained[f"correction.{name}.weight"].shape[-1] // 2
        return self.op("Conv", x, weight, bias, pads=[reach] * 4)
