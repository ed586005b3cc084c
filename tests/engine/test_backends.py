"""Which backend is chosen and why; ONNX Runtime's I/O binding; plugins against functions."""

from types import SimpleNamespace

import numpy as np
import pytest
from bundles import write_toy
from fakes import SYMMETRIZE, FakeDriver, archive

from mx.engine.aligner import Aligner
from mx.engine.backends import choose, cuda_driver, ort, plugins
from mx.engine.backends.cuda_driver import Driver, OutOfMemory
from mx.engine.backends.gpu import Device, Gpus, LinkFinder
from mx.engine.backends.ort_cuda import OrtLane, open_cuda
from mx.engine.backends.tensorrt_api import Api
from mx.engine.decode import Rule
from mx.engine.errors import BackendError
from mx.engine.kernels.launch import Archive, Kernel


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_toy(tmp_path_factory.mktemp("backends") / "toy.mx")


def has_gpu() -> bool:
    try:
        return Driver().count() > 0
    except BackendError:
        return False


# ---- the choice ----


@pytest.mark.skipif(has_gpu(), reason="there is a GPU here")
def test_auto_steps_down_and_says_why(bundle):
    backend, reason = choose(bundle)
    assert backend.name == "cpu"
    assert "TensorRT: tensorrt is not installed" in reason
    assert "no CUDA provider" in reason or "NVIDIA" in reason


@pytest.mark.skipif(has_gpu(), reason="there is a GPU here")
@pytest.mark.parametrize("name", ["trt", "trt-rtx", "cuda"])
def test_what_was_asked_for_fails_instead(bundle, name):
    with pytest.raises(BackendError, match=r"not installed|NVIDIA|no CUDA provider"):
        choose(bundle, name)


def test_cuda_without_its_provider(bundle, monkeypatch):
    monkeypatch.setattr(ort.ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(BackendError, match=r"no CUDA provider; pip uninstall -y onnxruntime && "):
        open_cuda(bundle, None, 1, driver=FakeDriver())


def test_a_provider_that_does_not_start_is_never_the_cpu(bundle):
    """This ONNX Runtime takes the CUDA provider's name and runs on the CPU in silence."""
    with pytest.raises(BackendError, match=r"CUDA: its provider did not start: "):
        ort.cuda_session(bundle.graph("fp32"), 0, 1 << 30, "toy")


def test_the_driver_is_missing(monkeypatch):
    if has_gpu():
        pytest.skip("there is a GPU here")
    with pytest.raises(BackendError, match=r"no NVIDIA driver is installed|cuda-bindings is not"):
        Driver()


def test_errors_of_the_driver(monkeypatch):
    """Results of calls become values or errors; the calls themselves need a GPU."""
    driver = object.__new__(cuda_driver.Driver)

    class Status(int):
        name = "CUDA_ERROR_OUT_OF_MEMORY"

    assert driver._call(lambda x: (0, x), 7) == 7
    assert driver._call(lambda: (0, 1, 2)) == (1, 2)
    with pytest.raises(OutOfMemory):
        driver._call(lambda: (Status(2),))
    with pytest.raises(BackendError, match="failed with 700"):
        driver._call(lambda: (700,))


def test_tensorrt_is_missing():
    with pytest.raises(BackendError, match=r'pip install "mx-align\[trt\]"'):
        Api("tensorrt")


# ---- ONNX Runtime's I/O binding, with the CPU in place of the GPU ----


def test_bound_outputs_become_links(bundle):
    session = ort._start(bundle.graph("fp32"), ["CPUExecutionProvider"], "toy")
    driver = FakeDriver()
    driver.inside = lambda pointer, size: None  # ONNX Runtime has memory of its own
    device = Device(driver, 0)
    finder = LinkFinder(device, Kernel(driver, Archive(archive(SYMMETRIZE), ""), SYMMETRIZE))
    gpus = Gpus("cuda", "fp32", [OrtLane(session, device, finder, where="cpu")], 1024, "test")
    pairs = ["the cat", "hello , the mat sat on the cat", ""], ["die Katze", "auf der Matte", "a"]
    cpu = Aligner.load(bundle.path, backend="cpu").backend
    cpu.grain = Gpus.grain
    for rule in (Rule(threshold=0.15), Rule(threshold=0.15, nulls=True)):
        found, wanted = (
            Aligner(bundle, backend, "", rule).align_batch(*pairs) for backend in (gpus, cpu)
        )
        assert [(a.links, a.scores) for a in found] == [(a.links, a.scores) for a in wanted]
    assert len(driver.calls("launch")) == 1  # both pairs at once; with `nulls`, all is fetched
    gpus.close()
    assert not driver.memory_of and not driver.host_of and not driver.streams


def test_out_of_memory_inside_onnx_runtime(bundle):
    session = ort._start(bundle.graph("fp32"), ["CPUExecutionProvider"], "toy")
    lane = OrtLane(session, Device(FakeDriver(), 0), None, where="cpu")
    rows = np.zeros((1, 4), np.int32)
    batch = SimpleNamespace(src=rows, tgt=rows, src_lengths=rows[:, 0], tgt_lengths=rows[:, 0])
    huge = SimpleNamespace(**{**vars(batch), "src": np.full((1, 4), 10**6, np.int32)})
    with pytest.raises(Exception, match=r"out of data bounds|indices element") as caught:
        lane.run(huge, ("scores",))
    assert not isinstance(caught.value, OutOfMemory)  # other errors stay what they are


# ---- plugins ----


@pytest.fixture(scope="module")
def fused():
    torch = pytest.importorskip("torch")
    from mx.export.fuse import fuse
    from mx.export.graph import plain_graph, weights_of
    from mx.trainer.config import ModelConfig
    from mx.trainer.model import MaskAlign

    torch.manual_seed(1)
    config = ModelConfig(
        width=64, ff=32, heads=2, encoder_layers=1, decoder_layers=2, norm="pre", tied=True,
        src_vocab=50, tgt_vocab=50,
    )  # fmt: skip
    return fuse(plain_graph(config, weights_of(MaskAlign(config).eval())), config)[0]


def test_marking_changes_nothing_but_the_attribute(fused):
    import onnx

    data = fused.SerializeToString()
    ops = ("StaticAttention", "LeakyAttention")
    marked = onnx.ModelProto.FromString(plugins.mark(data, ops))
    found = 0
    for node in marked.graph.node:
        extra = [a for a in node.attribute if a.name == "plugin_namespace"]
        assert bool(extra) == (node.op_type in ops and node.domain == "mx")
        for attribute in extra:
            assert onnx.helper.get_attribute_value(attribute) == b"mx"
            node.attribute.remove(attribute)
            found += 1
    assert found == sum(plugins.count(data, op) for op in ops) == 6
    assert marked.SerializeToString(deterministic=True) == fused.SerializeToString(
        deterministic=True
    )
    assert plugins.mark(data, ()) == data


def test_both_graphs_agree(fused):
    """The graph with our ops computed by the kernels' twins, against the one without plugins."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    from mx.engine.kernels.reference import leaky_attention, static_attention

    class StaticAttention(OpRun):
        op_domain = "mx"

        def _run(self, q, k, v, lengths, mask, heads=None):
            return (static_attention(q, k, v, lengths, heads or self.heads),)

    class LeakyAttention(OpRun):
        op_domain = "mx"

        def _run(self, q, k, null_key, mask, heads=None):
            return leaky_attention(q, k, null_key, mask[:, 0, 0], heads or self.heads)

    lengths = np.array([5, 1, 7, 0], np.int32), np.array([6, 1, 2, 3], np.int32)
    rng = np.random.default_rng(1)
    ids = [rng.integers(0, 50, (4, size)).astype(np.int32) for size in (7, 6)]
    feeds = {"src": ids[0], "src_lengths": lengths[0], "tgt": ids[1], "tgt_lengths": lengths[1]}
    names = ["scores", "fwd", "bwd", "fwd_null", "bwd_null"]
    session = ort._start(fused.SerializeToString(), ["CPUExecutionProvider"], "plain")
    wanted = session.run(names, feeds)
    model = type(fused)()
    model.CopyFrom(fused)
    kept = [f for f in model.functions if f.name not in plugins.KERNEL_OF]
    del model.functions[:]
    model.functions.extend(kept)
    evaluator = ReferenceEvaluator(model, new_ops=[StaticAttention, LeakyAttention])
    for name, found, value in zip(names, evaluator.run(names, feeds), wanted, strict=True):
        np.testing.assert_allclose(found, value, atol=2e-5, err_msg=name)
