"""Every benchmark can be started, and documents name only those that exist."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
# Runs in another interpreter, as a script; `trt_build` needs a package of NVIDIA's to do anything.
SCRIPT = "systran"


@pytest.mark.parametrize("name", [name for name in MODULES if name != SCRIPT])
def test_it_can_be_imported_and_says_what_it_does(name):
    module = importlib.import_module(f"mx_align.benchmarks.{name}")
    assert module.__doc__ and module.__doc__.split("\n")[0].endswith(".")


def test_the_script_for_another_interpreter_needs_nothing_of_ours():
    code = f"import runpy; runpy.run_path({str(ROOT / 'benchmarks' / 'systran.py')!r})"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, cwd="/"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_documents_and_docstrings_name_benchmarks_that_exist():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").iterdir()]
    for page in pages:
        if page.suffix in (".md", ".py", ".sh"):
            text = page.read_text("utf-8")
            assert "python benchmarks/" not in text, f"{page}: start it with python -m"
            named = set(re.findall(r"mx_align\.benchmarks\.([a-z_]+)", text))
            named |= set(re.findall(r"benchmarks/([a-z_]+)\.py", text))
            assert named <= set(MODULES), page
