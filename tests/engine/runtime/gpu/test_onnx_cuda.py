"""ONNX Runtime on GPUs, with the CPU in place of the GPU: I/O binding, memory, opening, errors."""

from contextlib import ExitStack, closing
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

from .....engine.align.decoding import LinkRule
from .....engine.aligner import Aligner
from .....engine.errors import BackendError
from .....engine.runtime.backends import GpuOptions, choose_backend
from .....engine.runtime.gpu import onnx_cuda
from .....engine.runtime.gpu.cuda_driver import Driver, OutOfMemory
from .....engine.runtime.gpu.devices import Device
from .....engine.runtime.gpu.kernels.launch import Kernel, KernelArchive
from .....engine.runtime.gpu.lanes import GRAIN, GpuBackend
from .....engine.runtime.gpu.link_finder import LinkFinder
from .....engine.runtime.gpu.onnx_cuda import (
    OnnxLane,
    open_cuda,
    says_memory_is_full,
    start_cuda_session,
)
from .....engine.runtime.onnx_cpu import CPU, start_session
from ....support.bundles import write_toy
from ....support.fake_gpu import SYMMETRIZE, FakeDriver, pack_fake_archive
from ....support.stub_libraries import run_python


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_toy(tmp_path_factory.mktemp("cuda") / "toy.mx")


# ---- the provider ----


def test_cuda_without_its_provider(bundle, monkeypatch):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CPU])
    with pytest.raises(BackendError, match=r"no CUDA provider; pip uninstall -y onnxruntime "):
        choose_backend(bundle, "cuda")


def test_a_provider_that_does_not_start_is_never_the_cpu(bundle):
    """This ONNX Runtime takes the CUDA provider's name and runs on the CPU in silence."""
    with pytest.raises(BackendError, match=r"CUDA: its provider did not start: "):
        start_cuda_session(bundle.read_graph("fp32"), 0, 1 << 30, "toy")


def test_nothing_of_onnx_runtime_gets_among_the_links(bundle, monkeypatch, capsys):
    """Its `preload_dlls` prints libraries that do not load to where the links go."""
    monkeypatch.setattr(
        onnxruntime, "preload_dlls", lambda: print("Failed to load libcudnn.so.9"), raising=False
    )
    with pytest.raises(BackendError, match="did not start"):
        start_cuda_session(bundle.read_graph("fp32"), 0, 1 << 30, "toy")
    assert capsys.readouterr().out == ""


def test_a_graph_that_cuda_cannot_start_lets_auto_go_on():
    """An error of the backend, not of the bundle: the next one may do better."""
    with pytest.raises(BackendError, match="CUDA: toy: ONNX Runtime cannot load the graph"):
        start_cuda_session(b"nothing", 0, 1 << 20, "toy")


def test_the_graph_that_tries_a_provider_is_one():
    session = start_session(onnx_cuda._IDENTITY_GRAPH, [CPU], "nothing")
    assert session.run(None, {"x": np.ones(1, np.float32)})[0].tolist() == [1.0]


def test_results_of_the_driver_become_values_or_errors():
    """The calls themselves need a GPU."""
    driver = object.__new__(Driver)

    class Status(int):
        name = "CUDA_ERROR_OUT_OF_MEMORY"

    assert driver._call(lambda x: (0, x), 7) == 7
    assert driver._call(lambda: (0, 1, 2)) == (1, 2)
    with pytest.raises(OutOfMemory):
        driver._call(lambda: (Status(2),))
    with pytest.raises(BackendError, match="failed with 700"):
        driver._call(lambda: (700,))


# ---- I/O binding ----


def test_bound_outputs_become_links(bundle):
    session = start_session(bundle.read_graph("fp32"), [CPU], "toy")
    driver = FakeDriver()
    driver.check_inside = lambda pointer, size: None  # ONNX Runtime has memory of its own
    device = Device(driver, 0)
    archive = KernelArchive(pack_fake_archive(SYMMETRIZE), "")
    finder = LinkFinder(device, Kernel(driver, archive, SYMMETRIZE))
    lane = OnnxLane(session, device, finder, where="cpu")
    opened = ExitStack()
    opened.enter_context(closing(lane))
    gpus = GpuBackend("cuda", "fp32", [lane], 1024, "test", opened)
    pairs = ["the cat", "hello , the mat sat on the cat", ""], ["die Katze", "auf der Matte", "a"]
    cpu = Aligner.load(bundle.path, backend="cpu").backend
    cpu.grain = GRAIN
    for rule in (LinkRule(threshold=0.15), LinkRule(threshold=0.15, nulls=True)):
        found, wanted = (
            Aligner(bundle, backend, "", rule).align_batch(*pairs) for backend in (gpus, cpu)
        )
        assert [(a.links, a.scores) for a in found] == [(a.links, a.scores) for a in wanted]
    assert len(driver.calls("launch")) == 1  # both pairs at once; with `nulls`, all is fetched
    gpus.close()
    assert driver.list_leaks() == ["1 x kernels", "1 x contexts"]  # which are not the lane's own


FULL = """
import sys
import numpy as np, onnxruntime as ort

arena = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
where = ort.OrtMemoryInfo("Cpu", arena, 0, ort.OrtMemType.DEFAULT)
ort.create_and_register_allocator(where, ort.OrtArenaCfg(1 << 21, 1, 1 << 16, -1))
from mx_align.engine.runtime.gpu.cuda_driver import OutOfMemory
from mx_align.engine.runtime.gpu.devices import Device
from mx_align.engine.runtime.gpu.onnx_cuda import OnnxLane
from mx_align.engine.types import Batch
from mx_align.tests.support.fake_gpu import FakeDriver

options = ort.SessionOptions()
options.add_session_config_entry("session.use_env_allocators", "1")
options.log_severity_level = 4
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
lane = OnnxLane(session, Device(FakeDriver(), 0), None, where="cpu")
for rows in (2, 4096):
    ids, lengths = np.zeros((rows, 16), np.int32), np.full(rows, 16)
    try:
        lane.run(Batch(ids, lengths, ids, lengths), ("scores",))
        print("fits")
    except OutOfMemory as error:
        print(str(error))
"""


@pytest.mark.slow
def test_onnx_runtime_says_that_its_limit_is_reached(bundle, tmp_path):
    """With its real arena, bounded as that of a GPU is by --gpu-memory."""
    (tmp_path / "toy.onnx").write_bytes(bundle.read_graph("fp32"))
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
    assert says_memory_is_full(text) == full


def test_other_errors_of_onnx_runtime_stay_what_they_are(bundle):
    session = start_session(bundle.read_graph("fp32"), [CPU], "toy")
    lane = OnnxLane(session, Device(FakeDriver(), 0), None, where="cpu")
    rows = np.zeros((1, 4), np.int32)
    huge = np.full((1, 4), 10**6, np.int32)
    batch = SimpleNamespace(src=huge, tgt=rows, src_lengths=rows[:, 0], tgt_lengths=rows[:, 0])
    with pytest.raises(Exception, match=r"out of data bounds|indices element") as caught:
        lane.run(batch, ("scores",))
    assert not isinstance(caught.value, OutOfMemory)


# ---- opening, with ONNX Runtime's sessions on the CPU in place of the GPU's ----


@pytest.fixture
def sessions(monkeypatch):
    """What is asked for, (device, memory); the third session is refused."""
    asked = []

    def start(graph, device, memory, where):
        asked.append((device, memory))
        if len(asked) == 3:
            raise BackendError("CUDA: its provider did not start: broken")
        return start_session(graph, [CPU], where)

    monkeypatch.setattr(onnx_cuda, "start_cuda_session", start)
    return asked


def test_onnx_runtime_and_links_share_the_limit(bundle, sessions):
    driver = FakeDriver(devices=2)
    backend = open_cuda(bundle, None, GpuOptions(memory=8 << 20), driver=driver)
    assert sessions == [(0, 7 << 20), (1, 7 << 20)]
    device = backend.lanes[0].device
    device.make_current()
    device.free(device.allocate(1 << 20))
    with pytest.raises(OutOfMemory, match="would pass the limit of 8 MB"):
        device.allocate((1 << 20) + 1)
    assert backend.workers == 4 and "links on the GPU" in backend.describe()
    backend.close()
    assert not driver.list_leaks()


def test_without_links_onnx_runtime_has_all(bundle, sessions):
    old = FakeDriver()
    old.compute = 7, 0
    backend = open_cuda(bundle, None, GpuOptions(memory=8 << 20), driver=old)
    assert sessions == [(0, 8 << 20)] and not backend.finds_links


def test_a_session_that_fails_leaves_nothing_behind(bundle, sessions):
    driver = FakeDriver(devices=3)
    with pytest.raises(BackendError, match="broken"):
        open_cuda(bundle, None, GpuOptions(), driver=driver)
    assert len(driver.calls("open")) == 3 and not driver.list_leaks()


def test_int8_is_not_for_cuda(bundle, sessions):
    with pytest.raises(BackendError, match="int8 graphs are for CPUs"):
        open_cuda(bundle, "int8", GpuOptions(), driver=FakeDriver())
    assert not sessions
