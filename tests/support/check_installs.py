"""Install the package with its extras in clean environments, and look what comes out.

    python -m mx_align.tests.support.check_installs

Needs the package index, so `.ci/run` runs it and pytest does not. NVIDIA's libraries, 2 GB of them,
are resolved but not installed; `tensorrt` is left out, as its wheels come from NVIDIA's own index.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from ...engine.runtime.backends import INSTALL_CUDA
from .measure_style import ROOT

# Those of other engines of ONNX Runtime own the same files: one of them at most may come.
RUNTIME = re.compile(r"onnxruntime(-gpu|-directml|-openvino)?")
EXTRAS = ("", "gpu", "trt-rtx")
PROVIDERS = "import onnxruntime; print(*onnxruntime.get_available_providers())"


def run_command(*command: object, **options: object) -> str:
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=900,
        **options,  # type: ignore[call-overload]
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build_wheel(folder: Path) -> Path:
    # From a copy: what an earlier build left behind in the checkout would get into the wheel.
    ignored = shutil.ignore_patterns(".*", "build", "runs", "__pycache__", "*.egg-info")
    copy = shutil.copytree(ROOT, folder / "source", ignore=ignored)
    run_command(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, copy)
    (wheel,) = folder.glob("mx_align*.whl")
    return wheel


def new_environment(folder: Path) -> Path:
    """Make an environment with pip alone; return its folder of programs."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if os.name == "nt" else "bin")


def resolve_names(programs: Path, *wanted: str) -> dict[str, str]:
    """Return what pip would install, by name, with versions."""
    report = run_command(
        programs / "pip",
        "install",
        "-q",
        "--dry-run",
        "--ignore-installed",
        "--report",
        "-",
        *wanted,
    )
    rows = [row["metadata"] for row in json.loads(report)["install"]]
    return {row["name"].lower().replace("_", "-"): row["version"] for row in rows}


def check_extras(programs: Path, wheel: Path) -> None:
    for extra in EXTRAS:
        names = resolve_names(programs, f"{wheel}[{extra}]" if extra else str(wheel))
        runtimes = [name for name in names if RUNTIME.fullmatch(name)]
        assert runtimes == ["onnxruntime"], f"[{extra}] brings {runtimes}"
        assert not extra.startswith(("gpu", "trt")) or "cuda-bindings" in names, extra
        print(f"[{extra}]: {', '.join(f'{n} {v}' for n, v in sorted(names.items()))}")


def check_remedy(programs: Path, wheel: Path) -> None:
    """Install the GPU extra, ask mx-doctor, type what it says, ask again."""
    run_command(programs / "pip", "install", "-q", f"{wheel}[gpu]")
    assert "CUDAExecutionProvider" not in run_command(programs / "python", "-c", PROVIDERS)
    said = run_command(programs / "mx-doctor")
    assert "is the one without CUDA" in said and INSTALL_CUDA in said, said
    names = resolve_names(programs, *re.findall(r'"([^"]+)"', INSTALL_CUDA))
    assert {"onnxruntime-gpu", "cuda-bindings"} <= names.keys() and any("cudnn" in n for n in names)
    assert not {"onnxruntime", "mx-align"} & names.keys()
    line = INSTALL_CUDA.replace("[cuda,cudnn]", "")
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    run_command("sh", "-c", line, env={**os.environ, "PATH": path})
    providers = run_command(programs / "python", "-c", PROVIDERS)
    assert "CUDAExecutionProvider" in providers, providers
    said = run_command(programs / "mx-doctor")
    (row,) = (line for line in said.splitlines() if line.startswith("cuda "))
    assert "is installed" in row and ("no NVIDIA driver" in row or " yes " in row), said
    sample = [ROOT / "tests" / "data" / f"sample.{side}" for side in ("en", "fr")]
    links = run_command(programs / "mx-align", *sample, "--langs", "en-fr", "-q")
    assert "0-0" in links
    print(f"gpu: {providers.strip()}\n{said.strip()}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(Path(folder))
        programs = new_environment(Path(folder, "clean"))
        check_extras(programs, wheel)
        check_remedy(programs, wheel)


if __name__ == "__main__":
    main()
