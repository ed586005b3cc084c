"""mx-doctor here, where nothing but the CPU runs."""

import pytest
from click.testing import CliRunner

from ....engine.commands.doctor import main
from ...support.bundles import write_toy
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
    assert 'pip uninstall -y onnxruntime && pip install "mx-align[gpu]"' in result.stdout
    if "tensorrt_rtx" in rows["trt-rtx"] and "no NVIDIA driver" in rows["trt-rtx"]:
        assert "install NVIDIA's driver" in result.stdout


@without_gpu
def test_a_bundle_is_aligned_with(tmp_path):
    write_toy(tmp_path / "toy.mx")
    result = CliRunner().invoke(main, ["-m", str(tmp_path / "toy.mx")])
    assert result.exit_code == 0, result.output
    assert "kernels: not run" in result.stdout
    assert "cpu: " in result.stdout and "pairs/s" in result.stdout


def test_a_wrong_bundle_is_one_line(tmp_path):
    result = CliRunner().invoke(main, ["-m", str(tmp_path / "none.mx")])
    assert result.exit_code == 2 and "there is no model bundle" in result.stderr
