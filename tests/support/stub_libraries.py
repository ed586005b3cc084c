"""Libraries of NVIDIA that are not here, made with a C compiler: enough that its own Python
bindings load, and that what our code passes to them can be looked at."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from ...engine.errors import BackendError
from ...engine.runtime.gpu.cuda_driver import Driver

HERE = Path(__file__).parent
# What TensorRT's bindings look for when they are loaded; none of it is called.
_TENSORRT = """
#define F(name) void *name(void) { return 0; }
F(createInferBuilder_INTERNAL) F(createInferRefitter_INTERNAL) F(createInferRuntime_INTERNAL)
F(createNvOnnxParserRefitter_INTERNAL) F(createNvOnnxParser_INTERNAL) F(getBuilderPluginRegistry)
F(getPluginRegistry) F(initLibNvInferPlugins) F(getNvOnnxParserVersion)
"""


def missing_reason(package: str, project: str) -> str:
    """Say why tests that need a package and a compiler are skipped; "" if they need not be."""
    try:
        there = importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        there = False
    if sys.platform != "linux":
        return "for Linux"
    if shutil.which("cc") is None:
        return "there is no C compiler here"
    return "" if there else f"{project} is not installed"


def gpu_reason() -> str:
    """Say why tests that need a GPU are skipped; "" if there is one."""
    try:
        return "" if Driver().count_devices() else "there is no NVIDIA GPU here"
    except BackendError as error:
        return str(error)


def compile_library(source: Path, name: str) -> Path:
    """Compile a shared library that others know by this name."""
    made = source.with_name(name)
    command = ["cc", "-shared", "-fPIC", str(source), f"-Wl,-soname,{name}", "-o", str(made)]
    subprocess.run(command, check=True)
    return made


def compile_cuda_stub(folder: Path) -> Path:
    source = folder / "cuda_stub.c"
    shutil.copy(HERE / "cuda_stub.c", source)
    return compile_library(source, "libcuda.so.1")


def compile_tensorrt_stub(folder: Path, version: str) -> list[Path]:
    source = folder / "tensorrt_stub.c"
    source.write_text(_TENSORRT, "utf-8")
    parts = ("nvinfer", "nvonnxparser", "nvinfer_plugin")
    return [compile_library(source, f"lib{part}.so.{version}") for part in parts]


def run_python(program: str, *arguments: object) -> str:
    """Return what a program prints, in a process of its own: a library cannot be unloaded."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
