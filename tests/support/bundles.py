"""A toy bundle for tests: a small ONNX graph with the inputs and outputs of a real one.
Its weights are random, so links are arbitrary, but they depend on the words of both sides."""

import io

import numpy as np
import sentencepiece
from onnx import TensorProto, helper, numpy_helper

from ...engine.bundle.bundle import Bundle
from ...engine.bundle.manifest import Calibration, Manifest, Thresholds, VocabularyFiles
from ...engine.bundle.writing import write_bundle

WIDTH = 16
LINES = ["the cat sat on the mat", "die Katze saß auf der Matte", "The Cat said hello , ."] * 5


def vocabulary() -> bytes:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=written, model_type="bpe", vocab_size=320,
        normalization_rule_name="identity", remove_extra_whitespaces=False, byte_fallback=True,
        pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return written.getvalue()


def _mask(side: str, axis: int) -> list:
    """(B, L, 1) or (B, 1, L): 1 inside the sentence."""
    other = 3 - axis
    return [
        helper.make_node("Shape", [side], [f"{side}_shape"], start=1, end=2),
        helper.make_node("Squeeze", [f"{side}_shape"], [f"{side}_size"]),
        helper.make_node("Range", ["zero", f"{side}_size", "one"], [f"{side}_range"]),
        helper.make_node("Unsqueeze", [f"{side}_lengths", "axis1"], [f"{side}_column"]),
        helper.make_node("Less", [f"{side}_range", f"{side}_column"], [f"{side}_inside"]),
        helper.make_node("Cast", [f"{side}_inside"], [f"{side}_real"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", [f"{side}_real", f"axis{other}"], [f"{side}_mask"]),
    ]


def graph(vocab: int, seed: int = 1, product: bool = False) -> bytes:
    """exp(dot products), as shares of each row or column and a NULL of weight e.

    `product`: as of another kind of model, which combines the directions by their product and has
    no NULL to tell of.
    """
    rng = np.random.default_rng(seed)
    constants = {
        "table": rng.normal(size=(vocab, WIDTH)).astype(np.float32),
        "scale": np.float32(2.0 / WIDTH**0.5),
        "null": np.float32(np.e),
        "zero": np.int64(0), "one": np.int64(1),
        "axis1": np.array([1], np.int64), "axis2": np.array([2], np.int64),
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        *_mask("src", 1), *_mask("tgt", 2),
        node("Gather", ["table", "src"], ["src_rows"]),
        node("Gather", ["table", "tgt"], ["tgt_rows"]),
        node("Transpose", ["tgt_rows"], ["tgt_columns"], perm=[0, 2, 1]),
        node("MatMul", ["src_rows", "tgt_columns"], ["dots"]),
        node("Mul", ["dots", "scale"], ["logits"]),
        node("Exp", ["logits"], ["raw"]),
        node("Mul", ["raw", "src_mask"], ["raw_src"]),
        node("Mul", ["raw_src", "tgt_mask"], ["weights"]),
    ]  # fmt: skip
    for name, axis, other in (("fwd", "axis1", "tgt"), ("bwd", "axis2", "src")):
        nodes += [
            node("ReduceSum", ["weights", axis], [f"{name}_sum"], keepdims=1),
            node("Add", [f"{name}_sum", "null"], [f"{name}_total"]),
            node("Div", ["weights", f"{name}_total"], [name]),
            node("Div", ["null", f"{name}_total"], [f"{name}_share"]),
            node("Mul", [f"{name}_share", f"{other}_mask"], [f"{name}_real"]),
            node("Squeeze", [f"{name}_real", axis], [f"{name}_null"]),
        ]
    mean = [
        node("Mul", ["fwd", "bwd"], ["product"]),
        node("Constant", [], ["two"], value_float=2.0),
        node("Mul", ["product", "two"], ["product2"]),
        node("Add", ["fwd", "bwd"], ["both"]),
        node("Constant", [], ["tiny"], value_float=1e-30),
        node("Max", ["both", "tiny"], ["divisor"]),
        node("Div", ["product2", "divisor"], ["scores"]),
    ]
    opsets = [helper.make_opsetid("", 21)]
    # The op that real graphs have too: it says that scores are the harmonic mean.
    symmetrize = helper.make_function("mx", "Symmetrize", ["fwd", "bwd"], ["scores"], mean, opsets)
    if product:
        nodes.append(node("Mul", ["fwd", "bwd"], ["scores"]))
    else:
        nodes.append(node("Symmetrize", ["fwd", "bwd"], ["scores"], domain="mx"))
    ints = {"src": ["B", "S"], "src_lengths": ["B"], "tgt": ["B", "T"], "tgt_lengths": ["B"]}
    cells = {name: ["B", "S", "T"] for name in ("scores", "fwd", "bwd")}
    nulls = {} if product else {"fwd_null": ["B", "T"], "bwd_null": ["B", "S"]}
    info = helper.make_tensor_value_info
    model = helper.make_model(
        helper.make_graph(
            nodes, "toy",
            [info(name, TensorProto.INT64, shape) for name, shape in ints.items()],
            [
                info(name, TensorProto.FLOAT, shape)
                for name, shape in {**cells, **nulls}.items()
            ],
            [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
        ),
        opset_imports=[*opsets, helper.make_opsetid("mx", 1)], ir_version=10,
        functions=[] if product else [symmetrize],
    )  # fmt: skip
    data: bytes = model.SerializeToString()
    return data


def write_toy(
    path, *, max_length: int = 64, seed: int = 1, threshold: float = 0.15, product: bool = False
) -> Bundle:
    spm = vocabulary()
    model = sentencepiece.SentencePieceProcessor()
    model.LoadFromSerializedProto(spm)
    manifest = Manifest(
        name="toy", languages=("de", "en"), max_length=max_length, graphs={"fp32": "fp32.onnx"},
        default_dtype="fp32", tokenizer=VocabularyFiles("joint.spm", "joint.spm", False),
        thresholds=Thresholds(threshold, 2 * threshold, threshold / 2, "made up"),
        calibration=Calibration((0.0, 1.0), (0.0, 1.0), "made up"),
        model={}, training={}, measured={}, made_by="tests", files={},
    )  # fmt: skip
    files = {"fp32.onnx": graph(model.vocab_size(), seed, product), "joint.spm": spm}
    return write_bundle(path, manifest, files)


def write_network(path, *, max_length: int = 48, kind: str = "mask-align") -> Bundle:
    """A bundle with the graph of a real network, small and untrained."""
    import torch

    from ...export.graph.plain import build_plain_graph, collect_weights
    from ...trainer.config import ModelConfig
    from ...trainer.networks.weights import make_network

    toy = write_toy(path.with_name("vocabulary.mx"), max_length=max_length)
    size = toy.tokenizers[0].vocab_size
    torch.manual_seed(1)
    config = ModelConfig(
        kind=kind, width=40, ff=56, heads=2, encoder_layers=2, decoder_layers=2, dropout=0.0,
        src_vocab=size, tgt_vocab=size,
    )  # fmt: skip
    network = make_network(config).eval()
    with torch.no_grad():  # sharper attention than untrained weights give
        for name, weight in network.named_parameters():
            if "query" in name or "qkv" in name:
                weight *= 4
            if "judge" in name:  # which an untrained student has zero
                weight += torch.randn_like(weight)
    model = build_plain_graph(config, collect_weights(network)).SerializeToString()
    files = {"fp32.onnx": model, "joint.spm": toy.read_file("joint.spm")}
    return write_bundle(path, toy.manifest, files)


def write_for_gpus(path) -> Bundle:
    """A bundle as `mx-export` makes them: a small network that calls our ops, in two dtypes."""
    from dataclasses import replace

    import torch

    from ...export.graph.dtypes import convert_to_fp16
    from ...export.graph.fusion import fuse_attention
    from ...export.graph.plain import build_plain_graph, collect_weights
    from ...trainer.config import ModelConfig
    from ...trainer.networks.mask_align import MaskAlign

    toy = write_toy(path.with_name("vocabulary.mx"))
    size = toy.tokenizers[0].vocab_size
    torch.manual_seed(1)
    config = ModelConfig(
        width=256, ff=64, heads=4, encoder_layers=1, decoder_layers=2, norm="pre", tied=True,
        dropout=0.0, src_vocab=size, tgt_vocab=size,
    )  # fmt: skip
    network = MaskAlign(config).eval()
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if "query" in name or "qkv" in name:
                weight *= 4
    fused = fuse_attention(build_plain_graph(config, collect_weights(network)), config)[0]
    graphs = {"fp32": fused, "fp16": convert_to_fp16(fused)}
    manifest = replace(
        toy.manifest, graphs={name: f"{name}.onnx" for name in graphs}, default_dtype="fp32"
    )
    files = {f"{name}.onnx": graph.SerializeToString() for name, graph in graphs.items()}
    return write_bundle(path, manifest, {**files, "joint.spm": toy.read_file("joint.spm")})
