"""mx-doctor here, where nothing but the CPU runs, and its kernel checks on a fake GPU."""

import pytest
from bundles import write_toy
from click.testing import CliRunner
from fakes import SYMMETRIZE, FakeDriver, archive

from mx.engine import doctor
from mx.engine.backends.cuda_driver import Driver
from mx.engine.backends.gpu import Device
from mx.engine.bundle import write_bundle
from mx.engine.errors import BackendError
from mx.engine.kernels.launch import Archive


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
        found = list(doctor.run_checks(Device(driver, 0), made, ((3, 19), (2, 40)), repeats=1))
        assert [one.good for one in found] == [good] * 2
        assert not driver.memory_of and not driver.host_of and not driver.streams


@pytest.mark.gpu
@pytest.mark.skipif(bool(gpu_reason()), reason=gpu_reason())
def test_the_kernels_on_this_gpu(tmp_path):
    """What `mx-doctor` runs, on kernels compiled now."""
    kernels = pytest.importorskip("mx.export.kernels")
    toy = write_toy(tmp_path / "toy.mx")
    files = {name: toy.read(name) for name in toy.manifest.files}
    files |= kernels.kernel_files(4, 64, kernels.ARCHITECTURES, print)
    bundle = write_bundle(tmp_path / "gpu.mx", toy.manifest, files)
    said: list[str] = []
    assert doctor.check_kernels(bundle, said.append), "\n".join(said)
    assert doctor.check_backends(bundle, said.append), "\n".join(said)
