"""The wheel and the editable install both give `mx_align.engine` and `mx_align.trainer` under one root."""

import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from a copy, without the network: with the setuptools that is installed."""
    if int(version("setuptools").partition(".")[0]) < 77:
        pytest.skip("building needs setuptools 77 or newer")
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("engine", "trainer", "export"):
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder / "source")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder))
    run(sys.executable, "-m", "pip", "wheel", "./source", *options, cwd=folder)
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


def test_the_wheel_has_every_module_and_nothing_else(wheel):
    made = {name for name in wheel.namelist() if not name.split("/")[0].endswith(".dist-info")}
    tops = {"/".join(name.split("/")[:2]) for name in made}
    assert {"mx/engine", "mx/trainer"} <= tops <= {"mx/engine", "mx/trainer", "mx/export"}
    for top in tops:
        folder = ROOT / top.removeprefix("mx/")
        files = {f"mx/{file.relative_to(ROOT)}" for file in folder.rglob("*.py")}
        assert files <= made, f"pyproject.toml does not list a package of {folder.name}/"


def test_the_wheel_imports(wheel, tmp_path):
    wheel.extractall(tmp_path)
    code = (
        "import sys; sys.path.insert(0, '.'); import mx_align.engine, mx_align.trainer.config as c;"
    )
    code += "print(mx_align.engine.__file__, c.__file__)"
    found = run(sys.executable, "-c", code, cwd=tmp_path).split()
    assert all(str(tmp_path) in path for path in found)


def test_the_base_install_is_the_engine_alone(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    lines = wheel.read(name).decode().split("\n")
    base = [x for x in lines if x.startswith("Requires-Dist") and "extra ==" not in x]
    needed = {x.split(" ")[1].split(">")[0].split(";")[0] for x in base}
    assert "numpy" in needed and not needed & {"torch", "onnx", "safetensors", "triton"}
    extras = {x.split(" ")[1] for x in lines if x.startswith("Provides-Extra")}
    assert extras >= {"train", "export", "gpu", "trt", "ray", "dev"}


def test_the_installed_packages_import_from_anywhere(tmp_path):
    code = "import mx_align.engine, mx_align.trainer; print(mx_align.engine.__version__)"
    assert run(sys.executable, "-c", code, cwd=tmp_path).strip() == version("mx-align")
