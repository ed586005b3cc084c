"""The student's kernels as they ship, executed: against ONNX Runtime on the model's own graph, and
against their twins."""

import random

import numpy as np
import pytest

from ......engine.align.decoding import LinkRule
from ......engine.aligner import Aligner
from ......engine.bundle.installed import find_bundle
from ......engine.errors import BackendError
from ......engine.links.scoring import link_f1
from ......engine.runtime import student_reference as reference
from ......engine.runtime.backends import GpuOptions, OtherModel
from ......engine.runtime.examination import LEAST_GPU_F1, make_up_pairs
from ......engine.runtime.gpu.kernels.student_backend import open_student, pack_rows
from ......engine.runtime.model_graph import OUTPUTS
from ......engine.runtime.onnx_cpu import OnnxCpu
from ......engine.runtime.student_weights import read_student
from ......engine.types import Batch
from .....support.bundles import write_toy
from .....support.ptx.driver import PtxDriver

CAPABILITIES = [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]
# Of a weight, where products of float16 are added up in another order.
TOLERANCE = 3e-3


@pytest.fixture(scope="module")
def bundle():
    return find_bundle(None, "de-en")


def make_batch(bundle, lengths: list[tuple[int, int]]) -> Batch:
    rng = np.random.default_rng(len(lengths))
    vocab = bundle.manifest.model["src_vocab"]
    sides = []
    for side in zip(*lengths, strict=True):
        ids = rng.integers(4, vocab, (len(lengths), max(side))).astype(np.int32)
        ids[np.arange(max(side)) >= np.array(side)[:, None]] = 0
        sides += [ids, np.array(side)]
    return Batch(*sides)


def run_twins(bundle, batch: Batch):
    """Yield the four outputs of each pair, by the kernels' twins."""
    weights = read_student(bundle.read_graph("fp16"), bundle.manifest.model)
    packed = pack_rows(batch)
    parts = packed.ids[: packed.n_src], packed.ids[packed.n_src :]
    embedded = [
        reference.student_embed(ids, side) for ids, side in zip(parts, weights.sides, strict=True)
    ]
    x = np.concatenate([rows for rows, _ in embedded])
    for layer in weights.layers:
        x = reference.student_layer(x, packed.ids, layer)
    (key, src_null), (query, tgt_null) = (
        reference.student_project(rows, ids, weights, side)
        for rows, ids, side in zip(
            (x[: packed.n_src], x[packed.n_src :]), parts, weights.sides, strict=True
        )
    )
    for first_src, n_src, first_tgt, n_tgt in packed.places:
        src, tgt = slice(first_src, first_src + n_src), slice(first_tgt, first_tgt + n_tgt)
        words = embedded[0][1][src], embedded[1][1][tgt]
        nulls = src_null[src], tgt_null[tgt]
        yield reference.student_scores(query[tgt], key[src], nulls, words, weights)


def differ_most(found, wanted) -> float:
    return max(float(np.abs(found[name] - wanted[name]).max(initial=0)) for name in OUTPUTS)


SENTENCES = {
    "a word": [(1, 1)],
    "empty sides": [(3, 2), (0, 3), (2, 0), (0, 0)],
    "on and off tiles": [(17, 33), (33, 16), (9, 1), (1, 9)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SENTENCES)
def test_the_twins_compute_what_the_graph_does(bundle, name):
    batch = make_batch(bundle, SENTENCES[name])
    wanted = OnnxCpu(bundle, "fp16", 1).run(batch, OUTPUTS)
    for row, found in enumerate(run_twins(bundle, batch)):
        fwd, bwd, fwd_null, bwd_null = found
        n_src, n_tgt = fwd.shape
        for twin, name in ((fwd, "fwd"), (bwd, "bwd")):
            assert np.abs(twin - wanted[name][row, :n_src, :n_tgt]).max(initial=0) < TOLERANCE
        assert np.abs(fwd_null - wanted["fwd_null"][row, :n_tgt]).max(initial=0) < TOLERANCE
        assert np.abs(bwd_null - wanted["bwd_null"][row, :n_src]).max(initial=0) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_the_kernels_compute_what_the_graph_does(bundle, capability):
    driver = PtxDriver(capability)
    backend = open_student(bundle, None, GpuOptions(), driver=driver)
    lengths = [*SENTENCES["empty sides"], (17, 33) if capability == (8, 0) else (9, 7)]
    batch = make_batch(bundle, lengths)
    found = backend.run(batch, OUTPUTS)
    assert differ_most(found, OnnxCpu(bundle, "fp16", 1).run(batch, OUTPUTS)) < TOLERANCE
    for name in OUTPUTS:  # nothing outside the sentences
        for row, (n_src, n_tgt) in enumerate(lengths):
            inside = {"fwd_null": (n_tgt,), "bwd_null": (n_src,)}.get(name, (n_src, n_tgt))
            kept = found[name][row].copy()
            kept[tuple(slice(n) for n in inside)] = 0
            assert not kept.any()
    launches = [call[1] for call in driver.calls("launch")]
    assert len(launches) == 2 + bundle.manifest.model["encoder_layers"] + 2 + 1
    backend.close()
    assert not driver.list_leaks()


@pytest.mark.slow
def test_links_are_those_of_the_cpu(bundle):
    rng = random.Random(3)
    src, tgt = ([" ".join(line.split(" ")[: rng.randint(0, 12)]) for line in side[:12]]
                for side in make_up_pairs(bundle))  # fmt: skip
    driver = PtxDriver((8, 6))
    backend = open_student(bundle, None, GpuOptions(), driver=driver)
    rule = LinkRule(threshold=0.4)
    found = [set(a.links) for a in Aligner(bundle, backend, "", rule).align(src, tgt)]
    cpu = OnnxCpu(bundle, "fp16", 1)
    wanted = [set(a.links) for a in Aligner(bundle, cpu, "", rule).align(src, tgt)]
    assert sum(map(len, wanted)) > 10
    assert link_f1(found, wanted) > LEAST_GPU_F1
    assert any("symmetrize" in call[1] for call in driver.calls("launch"))


def test_other_models_and_gpus_are_refused(bundle, tmp_path):
    toy = write_toy(tmp_path / "toy.mx")
    with pytest.raises(BackendError, match=r"compute in fp16|are for students"):
        open_student(toy, None, GpuOptions(), driver=PtxDriver((8, 6)))
    old = PtxDriver((7, 5))
    with pytest.raises(BackendError, match="are not for sm_75"):
        open_student(bundle, None, GpuOptions(), driver=old)
    assert not old.list_leaks()
    with pytest.raises(OtherModel, match="another network"):
        read_student(b"", {"kind": "mask-align"})
    with pytest.raises(OtherModel, match="do not know the weights"):
        read_student(b"", {**bundle.manifest.model})


def test_sentences_are_packed():
    ids = np.array([[5, 6], [7, 0]], np.int32)
    batch = Batch(ids, np.array([2, 1]), ids[:, :1], np.array([1, 0]))
    packed = pack_rows(batch)
    assert packed.ids[:6].tolist() == [5, 6, -1, 7, -1, -1] and packed.n_src == 64
    assert packed.ids[64:68].tolist() == [5, -1, -1, -1]
    assert packed.places.tolist() == [[0, 2, 0, 1], [3, 1, 2, 0]]
