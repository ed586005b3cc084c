"""Which backend is chosen and why; ONNX Runtime's I/O binding; plugins against functions."""

import platform
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from ....engine.align.decoding import Rule
from ....engine.aligner import Aligner
from ....engine.bundle.bundle import write_bundle
from ....engine.errors import BackendError
from ....engine.runtime import onnx_cpu as ort
from ....engine.runtime.backends import choose
from ....engine.runtime.gpu import cuda_driver
from ....engine.runtime.gpu import kernel_ops as plugins
from ....engine.runtime.gpu import onnx_cuda as ort_cuda
from ....engine.runtime.gpu.cuda_driver import Driver, OutOfMemory
from ....engine.runtime.gpu.devices import Device, GpuOptions, Gpus, LinkFinder
from ....engine.runtime.gpu.kernels.launch import Archive, Kernel
from ....engine.runtime.gpu.onnx_cuda import OrtLane, open_cuda
from ....engine.runtime.gpu.tensorrt_api import Api
from ...support.bundles import write_toy
from ...support.fakes import SYMMETRIZE, FakeDriver, archive
from ...support.stubs import run_python


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


def test_nothing_of_onnx_runtime_gets_among_the_links(bundle, monkeypatch, capsys):
    """Its `preload_dlls` prints libraries that do not load to where the links go."""
    monkeypatch.setattr(
        ort.ort, "preload_dlls", lambda: print("Failed to load libcudnn.so.9"), raising=False
    )
    with pytest.raises(BackendError, match="did not start"):
        ort.cuda_session(bundle.graph("fp32"), 0, 1 << 30, "toy")
    assert capsys.readouterr().out == ""


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
    assert driver.held() == ["1 x kernels", "1 x contexts"]  # which are not the lane's own


FULL = """
import json, sys
import numpy as np, onnxruntime as ort

arena = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
where = ort.OrtMemoryInfo("Cpu", arena, 0, ort.OrtMemType.DEFAULT)
ort.create_and_register_allocator(where, ort.OrtArenaCfg(1 << 21, 1, 1 << 16, -1))
from fakes import FakeDriver
from mx_align.engine.runtime.gpu.cuda_driver import OutOfMemory
from mx_align.engine.runtime.gpu.devices import Device
from mx_align.engine.runtime.gpu.onnx_cuda import OrtLane
from mx_align.engine.align.batching import Batch

options = ort.SessionOptions()
options.add_session_config_entry("session.use_env_allocators", "1")
options.log_severity_level = 4
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
lane = OrtLane(session, Device(FakeDriver(), 0), None, where="cpu")
for rows in (2, 4096):
    ids, lengths = np.zeros((rows, 16), np.int32), np.full(rows, 16)
    try:
        lane.run(Batch(lengths, ids, lengths, ids, lengths), ("scores",))
        print("fits")
    except OutOfMemory as error:
        print(str(error))
"""


def test_onnx_runtime_says_that_its_limit_is_reached(bundle, tmp_path):
    """With its real arena, bounded as that of a GPU is by --gpu-memory."""
    (tmp_path / "toy.onnx").write_bytes(bundle.graph("fp32"))
    first, second = run_python(FULL, tmp_path / "toy.onnx").strip().split("\n")
    assert first == "fits" and "smaller than requested bytes" in second


@pytest.mark.parametrize(
    ("text", "full"),
    [("bfc_arena.cc:331 Failed to allocate memory for requested buffer of size 8388608", True),
     ("bfc_arena.cc:376 Available memory of 0 is smaller than requested bytes of 2048", True),
     ("CUDA failure 2: out of memory ; GPU=0", True),
     ("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0", True),
     ("CUDA failure 700: an illegal memory access was encountered", False)],
)  # fmt: skip
def test_what_onnx_runtime_says_when_memory_is_full(text, full):
    assert ort.is_full(text) == full


def test_other_errors_of_onnx_runtime_stay_what_they_are(bundle):
    session = ort._start(bundle.graph("fp32"), ["CPUExecutionProvider"], "toy")
    lane = OrtLane(session, Device(FakeDriver(), 0), None, where="cpu")
    rows = np.zeros((1, 4), np.int32)
    batch = SimpleNamespace(src=rows, tgt=rows, src_lengths=rows[:, 0], tgt_lengths=rows[:, 0])
    huge = SimpleNamespace(**{**vars(batch), "src": np.full((1, 4), 10**6, np.int32)})
    with pytest.raises(Exception, match=r"out of data bounds|indices element") as caught:
        lane.run(huge, ("scores",))
    assert not isinstance(caught.value, OutOfMemory)


# ---- opening CUDA, with ONNX Runtime's sessions on the CPU in place of the GPU's ----


@pytest.fixture
def with_kernels(bundle, tmp_path):
    files = {name: bundle.read(name) for name in bundle.manifest.files}
    files["kernels.sm_80.zip"] = archive(SYMMETRIZE)
    return write_bundle(tmp_path / "kernels.mx", bundle.manifest, files)


@pytest.fixture
def sessions(monkeypatch):
    """Asks for (device, memory); the third session is refused."""
    asked = []

    def start(graph, device, memory, where):
        asked.append((device, memory))
        if len(asked) == 3:
            raise BackendError("CUDA: its provider did not start: broken")
        return ort._start(graph, ["CPUExecutionProvider"], where)

    monkeypatch.setattr(ort_cuda, "need_cuda", lambda: None)
    monkeypatch.setattr(ort_cuda, "cuda_session", start)
    return asked


def test_onnx_runtime_and_links_share_the_limit(with_kernels, sessions):
    driver = FakeDriver(devices=2)
    backend = open_cuda(with_kernels, None, 1, GpuOptions(memory=8 << 20), driver=driver)
    assert sessions == [(0, 7 << 20), (1, 7 << 20)]
    device = backend._lanes[0].device
    device.use()
    device.free(device.allocate(1 << 20))
    with pytest.raises(OutOfMemory, match="would pass the limit of 8 MB"):
        device.allocate((1 << 20) + 1)
    assert backend.workers == 4 and "links on the GPU" in backend.describe()
    backend.close()
    assert not driver.held()


def test_without_links_onnx_runtime_has_all(bundle, sessions):
    backend = open_cuda(bundle, None, 1, GpuOptions(memory=8 << 20), driver=FakeDriver())
    assert sessions == [(0, 8 << 20)] and not backend.finds_links


def test_a_session_that_fails_leaves_nothing_behind(with_kernels, sessions):
    driver = FakeDriver(devices=3)
    with pytest.raises(BackendError, match="broken"):
        open_cuda(with_kernels, None, 1, driver=driver)
    assert len(driver.calls("open")) == 3 and not driver.held()


def test_int8_is_not_for_cuda(bundle, sessions):
    with pytest.raises(BackendError, match="int8 graphs are for CPUs"):
        open_cuda(bundle, "int8", 1, driver=FakeDriver())
    assert not sessions


def test_a_graph_that_cuda_cannot_start_lets_auto_go_on():
    """An error of the backend, not of the bundle: the next one may do better."""
    with pytest.raises(BackendError, match="CUDA: toy: ONNX Runtime cannot load the graph"):
        ort.cuda_session(b"nothing", 0, 1 << 20, "toy")


# ---- plugins ----


@pytest.fixture(scope="module")
def fused():
    torch = pytest.importorskip("torch")
    from ....export.graph.fuse import fuse
    from ....export.graph.mask_align import plain_graph, weights_of
    from ....trainer.config import ModelConfig
    from ....trainer.networks.mask_align import MaskAlign

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
    marked = onnx.ModelProto.FromString(plugins.mark(data, ops, "mx_1"))
    found = 0
    for node in marked.graph.node:
        extra = [a for a in node.attribute if a.name == "plugin_namespace"]
        assert bool(extra) == (node.op_type in ops and node.domain == "mx")
        for attribute in extra:
            assert onnx.helper.get_attribute_value(attribute) == b"mx_1"
            node.attribute.remove(attribute)
            found += 1
    assert found == sum(plugins.count(data, op) for op in ops) == 6
    assert marked.SerializeToString(deterministic=True) == fused.SerializeToString(
        deterministic=True
    )
    assert plugins.mark(data, (), "mx_1") == data


def test_both_graphs_agree(fused):
    """The graph with our ops computed by the kernels' twins, against the one without plugins."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    from ....engine.runtime.reference import leaky_attention, static_attention

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
    assert plugins.link_weights(fused.SerializeToString()) == ("fwd", "bwd")
    model = type(fused)()
    model.CopyFrom(fused)
    kept = [f for f in model.functions if f.name not in plugins.KERNEL_OF]
    del model.functions[:]
    model.functions.extend(kept)
    evaluator = ReferenceEvaluator(model, new_ops=[StaticAttention, LeakyAttention])
    for name, found, value in zip(names, evaluator.run(names, feeds), wanted, strict=True):
        np.testing.assert_allclose(found, value, atol=2e-5, err_msg=name)


# ---- numbers too small to count ----


def small_count() -> bool:
    """Whether numbers below 1e-38 are more than zero in this thread."""
    return bool((np.full(1, 1e-39, np.float32) * np.float32(0.5)).any())


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="for x86-64 Linux"
)
@pytest.mark.parametrize("fails", [False, True])
def test_faded_numbers_are_zero_while_the_graph_runs_and_no_longer(bundle, fails):
    seen = []

    class Session:
        def run(self, names, feeds):
            seen.append(small_count())
            if fails:
                raise RuntimeError
            return [np.zeros((2, 1, 1), np.float32)]

    backend = ort.open_cpu(bundle, None, 1)
    backend._session = Session()
    one = np.ones((2, 1), np.int64)
    batch = SimpleNamespace(src=one, src_lengths=one[:, 0], tgt=one, tgt_lengths=one[:, 0])
    with pytest.raises(RuntimeError) if fails else nullcontext():
        backend.run(batch, ["scores"])
    assert seen == [False] and small_count()
