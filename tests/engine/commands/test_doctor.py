"""mx-doctor here, where nothing but the CPU runs, and its kernel checks on a fake GPU."""

import numpy as np
import pytest
from click.testing import CliRunner

from ....engine.bundle.bundle import write_bundle
from ....engine.commands import doctor
from ....engine.errors import BackendError
from ....engine.runtime import onnx_cpu as ort
from ....engine.runtime.gpu import cuda_driver
from ....engine.runtime.gpu import devices as gpu
from ....engine.runtime.gpu.cuda_driver import Driver
from ....engine.runtime.gpu.devices import Device, view
from ....engine.runtime.gpu.kernels.launch import Archive
from ...support.bundles import write_toy
from ...support.fakes import SYMMETRIZE, FakeDriver, archive


def gpu_reason() -> str:
    """Why tests that need a GPU are skipped; "" if there is one."""
    try:
        return "" if Driver().count() else "there is no NVIDIA GPU here"
    except BackendError as error:
        return str(error)


@pytest.mark.skipif(not gpu_reason(), reason="there is a GPU here")
def test_without_a_gpu():
    result = CliRunner().invoke(doctor.main, [])
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line for line in result.stdout.split("\n") if line.strip()}
    assert " yes " in rows["cpu"]
    assert " no " in rows["trt"] and " no " in rows["trt-rtx"] and " no " in rows["cuda"]
    assert 'pip install "mx-align[trt]"' in result.stdout
    assert 'pip uninstall -y onnxruntime && pip install "mx-align[gpu]"' in result.stdout
    if "tensorrt_rtx" in rows["trt-rtx"] and "no NVIDIA driver" in rows["trt-rtx"]:
        assert "install NVIDIA's driver" in result.stdout


@pytest.mark.skipif(not gpu_reason(), reason="there is a GPU here")
def test_with_a_bundle(tmp_path):
    write_toy(tmp_path / "toy.mx")
    result = CliRunner().invoke(doctor.main, ["-m", str(tmp_path / "toy.mx")])
    assert result.exit_code == 0, result.output
    assert "kernels: not run" in result.stdout
    assert "cpu: " in result.stdout and "pairs/s" in result.stdout


def test_a_wrong_bundle(tmp_path):
    result = CliRunner().invoke(doctor.main, ["-m", str(tmp_path / "none.mx")])
    assert result.exit_code == 2 and "there is no model bundle" in result.stderr


def test_kernel_checks_find_a_right_and_a_wrong_kernel():
    class Wrong(FakeDriver):
        def _symmetrize(self, batch, *values):
            super()._symmetrize(batch, *values[:13], values[13] * 2, *values[14:])

    for driver, good in ((FakeDriver(), True), (Wrong(), False)):
        made = Archive(archive(SYMMETRIZE), "")
        device = Device(driver, 0)
        found = list(doctor.run_checks(device, made, ((3, 19), (2, 40)), repeats=1))
        assert [one.good for one in found] == [good] * 2
        device.close()
        assert not driver.held()


def test_sentence_scores_are_checked_too():
    class Wrong(FakeDriver):
        def _symmetrize(self, batch, *values):
            super()._symmetrize(batch, *values)
            view(values[-1], (batch,), "f4")[0] += 0.01

    made = Archive(archive(SYMMETRIZE), "")
    (found,) = doctor.run_checks(Device(Wrong(), 0), made, ((3, 19),), repeats=1)
    assert not found.good and found.difference > 0.009


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_checks_of_attention_in_every_type(dtype):
    pytest.importorskip("triton", reason="triton is not installed")
    from ...support.plugin_cases import entries

    driver = FakeDriver()
    made = Archive(archive(*entries(32, dtypes=[dtype])), "")
    found = list(doctor.run_checks(Device(driver, 0), made, ((1, 1), (3, 19)), repeats=1))
    assert [one.error for one in found] == [""] * 4
    assert all(one.good for one in found), found
    names = [f"{kernel}_attention.{dtype}.32" for kernel in ("static", "leaky")]
    assert [one.kernel for one in found] == [name for name in names for _ in range(2)]


def test_a_kernel_that_fails_is_told_and_the_others_go_on(tmp_path, monkeypatch):
    driver = FakeDriver()
    driver.fail_launch = True
    monkeypatch.setattr(gpu, "Driver", lambda: driver)
    toy = write_toy(tmp_path / "toy.mx")
    files = {name: toy.read(name) for name in toy.manifest.files}
    files["kernels.sm_86.zip"] = archive(SYMMETRIZE)
    bundle = write_bundle(tmp_path / "kernels.mx", toy.manifest, files)
    said: list[str] = []
    assert not doctor.check_kernels(bundle, said.append)
    failed = [line for line in said if "FAILED: BackendError: CUDA: cuLaunchKernel" in line]
    assert len(failed) == len(doctor.SHAPES)
    assert "1 x contexts" in driver.held() and len(driver.held()) == 1


def test_a_backend_that_fails_after_all_is_told(tmp_path, monkeypatch):
    bundle = write_toy(tmp_path / "toy.mx")
    findings = [doctor.Finding("trt", True, "tensorrt"), doctor.Finding("cpu", True, "")]
    monkeypatch.setattr(doctor, "backends", lambda: findings)
    monkeypatch.setattr(doctor, "_pairs", lambda bundle: (["the cat"], ["die Katze"]))
    said: list[str] = []
    assert not doctor.check_backends(bundle, said.append)
    assert said[0].startswith("cpu: ") and "fp32" in said[0]
    assert said[1].startswith("trt: FAILED: BackendError: TensorRT: tensorrt is not installed")


def test_onnx_runtime_without_the_libraries_of_cuda(monkeypatch):
    """As with onnxruntime-gpu on a machine with a GPU but without cuDNN."""

    def fail(device):
        raise BackendError("CUDA: its provider did not start: libcudnn.so.9: cannot open")

    monkeypatch.setattr(ort, "need_cuda", lambda: None)
    monkeypatch.setattr(doctor, "_gpus", lambda: ("Some GPU (sm_86)", [(8, 6)]))
    monkeypatch.setattr(ort, "try_cuda", fail)
    found = doctor._cuda()
    assert not found.runs and "libcudnn.so.9" in found.about
    assert found.install == 'pip install "onnxruntime-gpu[cuda,cudnn]"'
    monkeypatch.setattr(ort, "try_cuda", lambda device: None)
    assert doctor._cuda().runs


def test_the_graph_that_tries_a_provider_is_one():
    session = ort._start(ort._NOTHING, ["CPUExecutionProvider"], "nothing")
    assert session.run(None, {"x": np.ones(1, np.float32)})[0].tolist() == [1.0]


def test_gpus_that_tensorrt_for_rtx_has_no_engines_for(monkeypatch):
    pytest.importorskip("tensorrt_rtx", reason="tensorrt-rtx is not installed")
    monkeypatch.setattr(doctor, "_gpus", lambda: ("H100 (sm_90)", [(9, 0)]))
    found = doctor._tensorrt("trt-rtx", "tensorrt_rtx")
    assert not found.runs and "has no engines for sm_90" in found.about
    monkeypatch.setattr(doctor, "_gpus", lambda: ("RTX 4090 (sm_89)", [(8, 9)]))
    assert doctor._tensorrt("trt-rtx", "tensorrt_rtx").runs


def test_a_missing_binding_is_one_package_not_another_onnx_runtime(monkeypatch):
    def missing():
        raise BackendError(f"cuda-bindings is not installed; {cuda_driver.INSTALL}")

    monkeypatch.setattr(doctor, "_gpus", missing)
    found, _ = doctor._with_gpu("trt", "tensorrt 11")
    assert found.install == 'pip install "cuda-bindings>=12.6"'
