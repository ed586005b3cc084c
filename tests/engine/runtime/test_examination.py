"""What is found out about backends and kernels, and what is said when one fails after all."""

import pytest

from ....engine.aligner import Aligner
from ....engine.errors import BackendError
from ....engine.runtime import backends, examination
from ....engine.runtime.examination import (
    Finding,
    check_backend_links,
    check_own_kernels,
    examine_cuda,
    examine_gpus,
    examine_tensorrt,
)
from ....engine.runtime.gpu import devices, onnx_cuda
from ....engine.runtime.gpu.kernel_checks import SHAPES
from ...support.bundles import write_toy
from ...support.fake_gpu import FakeDriver


def test_a_kernel_that_fails_is_told_and_the_others_go_on(monkeypatch):
    driver = FakeDriver()
    driver.fail_launch = True
    monkeypatch.setattr(devices, "Driver", lambda: driver)
    said: list[str] = []
    assert not check_own_kernels(said.append)
    failed = [line for line in said if "FAILED: BackendError: CUDA: cuLaunchKernel" in line]
    assert len(failed) == len(SHAPES)
    assert not driver.list_leaks()


def test_a_backend_that_fails_after_all_is_told(tmp_path, monkeypatch):
    bundle = write_toy(tmp_path / "toy.mx")
    findings = [Finding("trt", True, "tensorrt"), Finding("cpu", True, "")]
    monkeypatch.setattr(examination, "examine_backends", lambda: findings)
    monkeypatch.setattr(examination, "make_up_pairs", lambda bundle: (["the cat"], ["die Katze"]))
    said: list[str] = []
    assert not check_backend_links(bundle, Aligner.load, said.append)
    assert said[0].startswith("cpu: ") and "fp32" in said[0]
    assert said[1].startswith("trt: FAILED: BackendError: TensorRT: tensorrt is not installed")


def test_onnx_runtime_without_the_libraries_of_cuda(monkeypatch):
    """As with onnxruntime-gpu on a machine with a GPU but without cuDNN."""

    def fail(device):
        raise BackendError("CUDA: its provider did not start: libcudnn.so.9: cannot open")

    monkeypatch.setattr(examination, "check_cuda_provider", lambda: None)
    monkeypatch.setattr(examination, "list_gpus", lambda: ("Some GPU (sm_86)", [(8, 6)]))
    monkeypatch.setattr(onnx_cuda, "try_cuda", fail)
    found = examine_cuda()
    assert not found.runs and "libcudnn.so.9" in found.about
    assert found.install == 'pip install "onnxruntime-gpu[cuda,cudnn]"'
    monkeypatch.setattr(onnx_cuda, "try_cuda", lambda device: None)
    assert examine_cuda().runs


def test_gpus_that_tensorrt_for_rtx_has_no_engines_for(monkeypatch):
    pytest.importorskip("tensorrt_rtx", reason="tensorrt-rtx is not installed")
    monkeypatch.setattr(examination, "list_gpus", lambda: ("H100 (sm_90)", [(9, 0)]))
    found = examine_tensorrt("trt-rtx", "tensorrt_rtx")
    assert not found.runs and "has no engines for sm_90" in found.about
    monkeypatch.setattr(examination, "list_gpus", lambda: ("RTX 4090 (sm_89)", [(8, 9)]))
    assert examine_tensorrt("trt-rtx", "tensorrt_rtx").runs


def test_a_missing_binding_is_one_package_not_another_onnx_runtime(monkeypatch):
    def fail():
        raise BackendError(f"cuda-bindings is not installed; {backends.INSTALL_BINDINGS}")

    monkeypatch.setattr(examination, "list_gpus", fail)
    found, _ = examine_gpus("trt", "tensorrt 11")
    assert found.install == 'pip install "cuda-bindings>=12.9.1"'
