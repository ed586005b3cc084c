"""Which backend is chosen and why."""

import pytest

from ....engine.errors import BackendError
from ....engine.runtime.backends import choose_backend
from ....engine.runtime.gpu.cuda_driver import Driver
from ....engine.runtime.gpu.tensorrt_api import TensorrtApi
from ...support.bundles import write_toy
from ...support.stub_libraries import gpu_reason, run_python


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_toy(tmp_path_factory.mktemp("backends") / "toy.mx")


without_gpu = pytest.mark.skipif(not gpu_reason(), reason="there is a GPU here")


@without_gpu
def test_auto_steps_down_and_says_why(bundle):
    backend, reason = choose_backend(bundle)
    assert backend.name == "cpu"
    assert "TensorRT: tensorrt is not installed" in reason
    assert "no CUDA provider" in reason or "NVIDIA" in reason


@without_gpu
@pytest.mark.parametrize("name", ["trt", "trt-rtx", "cuda"])
def test_what_was_asked_for_fails_instead(bundle, name):
    with pytest.raises(BackendError, match=r"not installed|NVIDIA|no CUDA provider"):
        choose_backend(bundle, name)


def test_the_room_of_gpus_is_not_entered_where_nothing_is_installed_for_it(bundle):
    code = """
import importlib.util, sys
import onnxruntime
importlib.util.find_spec = lambda name: None
onnxruntime.get_available_providers = lambda: ["CPUExecutionProvider"]
from mx_align.engine.aligner import Aligner
Aligner.load(sys.argv[1]).align_pair("the cat", "die Katze")
print([name for name in sys.modules if "runtime.gpu" in name])
"""
    assert run_python(code, bundle.path) == "[]\n"


def test_an_unknown_backend_is_refused_with_those_there_are(bundle):
    with pytest.raises(BackendError, match=r"no backend 'gpu'; there are auto, trt, .*cuda"):
        choose_backend(bundle, "gpu")


@without_gpu
def test_a_missing_driver_is_told():
    with pytest.raises(BackendError, match=r"no NVIDIA driver is installed|cuda-bindings is not"):
        Driver()


def test_a_missing_tensorrt_is_told_with_its_remedy():
    with pytest.raises(BackendError, match=r'pip install "mx-align\[trt\]"'):
        TensorrtApi("tensorrt")
