"""The wheel and the editable install both give the package `mx_align`, whole and typed."""

import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from .support.measure_style import ROOT

PARTS = ("engine", "trainer", "export")


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy, without the network: with the setuptools that is installed."""
    if int(version("setuptools").partition(".")[0]) < 77:
        pytest.skip("building needs setuptools 77 or newer")
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*PARTS, "tests", "benchmarks"):
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=ignored)
    for path in (
        *ROOT.glob("*.py"),
        *(ROOT / n for n in ("pyproject.toml", "README.md", "LICENSE", "py.typed")),
    ):
        shutil.copy(path, folder / "source")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder))
    run(sys.executable, "-m", "pip", "wheel", "./source", *options, cwd=folder)
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


@pytest.mark.slow
def test_the_wheel_has_every_module_and_nothing_else(wheel):
    made = {name for name in wheel.namelist() if not name.split("/")[0].endswith(".dist-info")}
    code = {f"mx_align/{name}" for name in ("__init__.py", "__main__.py")}
    code |= {
        f"mx_align/{file.relative_to(ROOT)}"
        for part in PARTS
        for file in (ROOT / part).rglob("*.py")
    }
    assert {name for name in made if name.endswith(".py")} == code, "see packages in pyproject.toml"
    assert "mx_align/py.typed" in made
    assert {name.split("/")[1] for name in made} == {
        *PARTS,
        "__init__.py",
        "__main__.py",
        "py.typed",
    }


@pytest.mark.slow
def test_the_wheel_imports(wheel, tmp_path):
    wheel.extractall(tmp_path)
    code = "import sys; sys.path.insert(0, '.')\n"
    code += "from mx_align import Aligner, StatisticalAligner, Alignment, MxError\n"
    code += "import mx_align.trainer.config as config\n"
    code += "print(sys.modules['mx_align'].__file__, config.__file__)"
    found = run(sys.executable, "-c", code, cwd=tmp_path).split()
    assert all(str(tmp_path) in path for path in found)


@pytest.mark.slow
def test_the_base_install_is_the_engine_alone(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    lines = wheel.read(name).decode().split("\n")
    base = [x for x in lines if x.startswith("Requires-Dist") and "extra ==" not in x]
    needed = {x.split(" ")[1].split(">")[0].split(";")[0] for x in base}
    assert "numpy" in needed and not needed & {"torch", "onnx", "safetensors", "triton"}
    extras = {x.split(" ")[1] for x in lines if x.startswith("Provides-Extra")}
    assert extras >= {"train", "export", "gpu", "trt", "ray", "dev"}


def test_the_installed_package_imports_from_anywhere(tmp_path):
    code = "import mx_align; from mx_align import Aligner, StatisticalAligner, Alignment, MxError\n"
    code += "print(mx_align.__version__)"
    assert run(sys.executable, "-c", code, cwd=tmp_path).strip() == version("mx-align")


def test_python_m_lists_every_command(tmp_path):
    listed = run(sys.executable, "-m", "mx_align", cwd=tmp_path)
    text = (
        (ROOT / "pyproject.toml").read_text("utf-8").split("[project.scripts]")[1].split("\n[")[0]
    )
    commands = [line.split(" ")[0] for line in text.split("\n") if line.startswith("mx-")]
    assert len(commands) >= 9 and all(f"  {name} " in listed for name in commands)
