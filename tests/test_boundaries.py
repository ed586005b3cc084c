"""The engine stands alone: no torch, no trainer, no export; and every command answers quickly."""

import re

import pytest

from .support.guarded import run_guarded
from .support.measure_style import ROOT, imported_modules, source_files

BANNED = {"torch", "triton", "mx_align.trainer", "mx_align.export"}


def list_modules(part: str) -> list[str]:
    """Name the modules of a part as `mx_align.engine.text.words` and so on."""
    names = [
        ".".join(["mx_align", *file.relative_to(ROOT).with_suffix("").parts])
        for file in source_files(part)
    ]
    return [name.removesuffix(".__init__") for name in names if "__main__" not in name]


def test_the_guard_guards():
    assert "must not be imported" in run_guarded({"torch"}, "import torch").stderr


def test_the_engine_works_without_torch(tmp_path):
    code = f"""
import io, pathlib, sentencepiece
folder = pathlib.Path({str(tmp_path)!r})
from mx_align.engine.storage import atomic_write
from mx_align.engine.text.files import open_output, read_pairs
for name in ("a.gz", "b.zst"):
    with open_output(folder / name) as file:
        file.write("das haus\\nja\\n".encode())
assert list(read_pairs(folder / "a.gz", folder / "b.zst"))[1] == ("ja", "ja")
from mx_align.engine.text.pieces import PieceTokenizer
from mx_align.engine.text.words import split_words
model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(["das haus ist gross"] * 9), model_writer=model, vocab_size=280,
    byte_fallback=True, hard_vocab_limit=False, minloglevel=2)
pieces, words = PieceTokenizer(model.getvalue()).encode(split_words("das große haus"))
assert len(pieces) == len(words) and words[-1] == 2
from mx_align.engine.links.link_files import parse_links
gold = parse_links("0-0 1p1").gold
from mx_align.engine.links.scoring import score_links
assert score_links([[(0, 0)]], [gold]).aer == 0
print("aligned")
"""
    done = run_guarded(BANNED, code)
    assert done.stdout == "aligned\n", done.stderr


@pytest.mark.slow
def test_every_engine_module_imports_without_torch():
    gpu_only = "mx_align.engine.runtime.gpu.kernels."
    names = [name for name in list_modules("engine") if not name.startswith(gpu_only)]
    code = "import importlib\n" + "\n".join(f"importlib.import_module({n!r})" for n in names)
    done = run_guarded(BANNED, code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "part, above", [("engine", ("trainer", "export")), ("trainer", ("export",))]
)
def test_no_import_points_upward(part, above):
    for file in source_files(part):
        for module in imported_modules(file):
            assert not module.startswith(above), f"{file} imports {module}"
        if part == "engine":
            assert not re.search(
                r"^\s*(import|from) torch\b", file.read_text("utf-8"), re.MULTILINE
            )


def test_imports_are_relative():
    """Editors find the code behind relative imports without being told where the package is."""
    for part in ("engine", "trainer", "export", "tests", "benchmarks"):
        for file in source_files(part):
            text = re.sub(r'("""|\'\'\').*?\1', "", file.read_text("utf-8"), flags=re.DOTALL)
            assert not re.search(r"^\s*(import|from) mx_align\b", text, re.MULTILINE), file


def list_scripts() -> dict[str, str]:
    """The commands of pyproject.toml, as {name: "module:function"}."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    found = re.findall(r'^(mx-\w+) = "([\w.]+:\w+)"$', text, re.MULTILINE)
    return dict(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", list_scripts())
def test_help_is_quick_and_light(name):
    """No heavy module is imported before the flags are read: that is what makes it quick."""
    module, _, function = list_scripts()[name].partition(":")
    code = f"""
import time
began = time.process_time()
from {module} import {function}
try:
    {function}(["--help"], prog_name={name!r})
except SystemExit as stop:
    assert not stop.code
print(f"took {{time.process_time() - began:.3f}}")
"""
    banned = {"torch", "numpy", "onnxruntime", "sentencepiece", "triton", "onnx", "safetensors"}
    done = run_guarded(banned, code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: {name}")
    assert float(done.stdout.rpartition("took ")[2]) < 0.3
