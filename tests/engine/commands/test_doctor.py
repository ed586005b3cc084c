"""mx-doctor here, where nothing but the CPU runs."""

import pytest
from click.testing import CliRunner

from ....engine.bundle.installed import find_bundle
from ....engine.commands.doctor import main
from ....engine.runtime import backends, examination
from ....engine.runtime.gpu import cuda_driver, devices, tensorrt, tensorrt_api
from ...support.bundles import write_toy
from ...support.fake_gpu import FakeDriver
from ...support.fake_tensorrt import FakeTensorrt
from ...support.stub_libraries import gpu_reason

without_gpu = pytest.mark.skipif(not gpu_reason(), reason="there is a GPU here")


@without_gpu
def test_every_backend_is_told_with_its_remedy():
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line for line in result.stdout.split("\n") if line.strip()}
    assert " yes " in rows["cpu"]
    assert " no " in rows["trt"] and " no " in rows["trt-rtx"] and " no " in rows["cuda"]
    assert 'pip install "mx-align[trt]"' in result.stdout
    assert "pip uninstall -y onnxruntime onnxruntime-gpu && pip install" in result.stdout
    if "tensorrt_rtx" in rows["trt-rtx"] and "no NVIDIA driver" in rows["trt-rtx"]:
        assert "install NVIDIA's driver" in result.stdout


@without_gpu
def test_a_bundle_is_aligned_with(tmp_path):
    write_toy(tmp_path / "toy.mx")
    result = CliRunner().invoke(main, ["-m", str(tmp_path / "toy.mx")])
    assert result.exit_code == 0, result.output
    assert "kernels: not run" in result.stdout
    assert "cpu: " in result.stdout and "pairs/s" in result.stdout


@pytest.fixture
def fake_gpu(monkeypatch, tmp_path):
    """A GPU whose kernels and whose TensorRT answer with the right numbers."""
    driver = FakeDriver()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for module in (cuda_driver, devices):
        monkeypatch.setattr(module, "Driver", lambda: driver)
    for module in (tensorrt_api, tensorrt):
        monkeypatch.setattr(module, "TensorrtApi", lambda package: FakeTensorrt(driver))
    monkeypatch.setattr(backends, "check_tensorrt", lambda package: None)
    # The fake knows what symmetrize computes, not what the student's kernels do (`test_student`).
    none = examination.Finding("kernels", False, "not here")
    monkeypatch.setattr(examination, "examine_kernels", lambda: none)
    few = [side[:60] for side in examination.make_up_pairs(find_bundle(None, "de-en"))]
    monkeypatch.setattr(examination, "make_up_pairs", lambda bundle: few)
    return driver


@pytest.mark.slow
def test_a_right_gpu_is_called_right_with_the_model_that_ships(fake_gpu):
    """Its GPU computes in fp16, its CPU in int8: other links, and neither is wrong."""
    model = str(find_bundle(None, "de-en").path)
    result = CliRunner().invoke(main, ["-m", model])
    assert result.exit_code == 0, result.output
    assert "trt: F1 of its links against the CPU's in fp16 1.0000" in result.stdout
    assert "WRONG" not in result.stdout and "FAILED" not in result.stdout


@pytest.mark.slow
def test_a_wrong_gpu_is_called_wrong(fake_gpu, monkeypatch):
    original = FakeDriver._run_symmetrize
    monkeypatch.setattr(
        FakeDriver,
        "_run_symmetrize",
        lambda self, grid, *values: original(self, grid, *values[:13], 0.9, *values[14:]),
    )
    result = CliRunner().invoke(main, ["-m", str(find_bundle(None, "de-en").path)])
    assert result.exit_code == 1
    assert result.stdout.count("WRONG") >= 2


def test_a_wrong_bundle_is_one_line(tmp_path):
    result = CliRunner().invoke(main, ["-m", str(tmp_path / "none.mx")])
    assert result.exit_code == 2 and "there is no model bundle" in result.stderr
