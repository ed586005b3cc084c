"""The engine stands alone: no torch, no trainer, no export; imports point one way."""

import ast
import re
from pathlib import Path

import pytest

from .support.guarded import run_guarded

ROOT = Path(__file__).parent.parent
# What training code may take from the engine: data formats and rules, nothing that aligns.
FOR_TRAINER = {"text", "files", "links", "score", "bundle", "errors", "helptext", "view", "kernels"}
# mx-analyze looks at bundles too, which only the engine can run.
FOR_ANALYSIS = FOR_TRAINER | {"aligner"}


def modules(folder: str) -> list[str]:
    """The modules of a package as `mx_align.engine.text.words` and so on."""
    files = sorted((ROOT / folder).rglob("*.py"))
    names = [".".join(["mx", *file.relative_to(ROOT).with_suffix("").parts]) for file in files]
    return [name.removesuffix(".__init__") for name in names if "__main__" not in name]


def imports(file: Path) -> set[str]:
    """Names of all modules that a file imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.add(f"relative import in {file.name}")
    return found


def test_the_guard_guards():
    assert "must not be imported" in run_guarded({"torch"}, "import torch").stderr


def test_the_engine_works_without_torch(tmp_path):
    code = f"""
import io, pathlib, sentencepiece
folder = pathlib.Path({str(tmp_path)!r})
from mx_align.engine.text.files import atomic_write, open_output, read_pairs
for name in ("a.gz", "b.zst"):
    with open_output(folder / name) as file:
        file.write("das haus\\nja\\n".encode())
assert list(read_pairs(folder / "a.gz", folder / "b.zst"))[1] == ("ja", "ja")
from mx_align.engine.text.words import Tokenizer, split
model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(["das haus ist gross"] * 9), model_writer=model, vocab_size=280,
    byte_fallback=True, hard_vocab_limit=False, minloglevel=2)
pieces, words = Tokenizer.load(model.getvalue()).encode(split("das große haus"))
assert len(pieces) == len(words) and words[-1] == 2
from mx_align.engine.links.link_files import format_pharaoh, parse_talp
gold = parse_talp("0-0 1p1")
assert format_pharaoh([(0, 0)]) == "0-0"
from mx_align.engine.links.scoring import score
assert score([[(0, 0)]], [gold]).aer == 0
print("aligned")
"""
    done = run_guarded({"torch", "triton", "mx_align.trainer", "mx_align.export"}, code)
    assert done.stdout == "aligned\n", done.stderr


def test_every_engine_module_imports_without_torch():
    gpu_only = ("kernels.static_attention", "kernels.leaky_attention", "kernels.symmetrize")
    names = [name for name in modules("engine") if not name.endswith(gpu_only)]
    code = "import importlib\n" + "\n".join(f"importlib.import_module({n!r})" for n in names)
    done = run_guarded({"torch", "triton", "mx_align.trainer", "mx_align.export"}, code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("folder", ["engine", "trainer"])
def test_no_import_points_upward(folder):
    upward = {"engine": ("mx_align.trainer", "mx_align.export"), "trainer": ("mx_align.export",)}[
        folder
    ]
    for file in sorted((ROOT / folder).rglob("*.py")):
        for name in imports(file):
            assert not name.startswith((*upward, "relative")), f"{file.name} imports {name}"
            if folder == "engine":
                assert name.split(".")[0] != "torch", f"{file.name} imports {name}"


def test_the_trainer_takes_little_from_the_engine():
    for file in sorted((ROOT / "trainer").rglob("*.py")):
        for name in imports(file):
            if name.startswith("mx_align.engine") and name != "mx_align.engine.__version__":
                part = name.split(".")[2]
                uses_models = file.name in ("analysis_cli.py", "teacher.py")
                allowed = FOR_ANALYSIS if uses_models else FOR_TRAINER
                assert part in allowed, f"trainer/{file.name} imports {name}"


def scripts() -> dict[str, str]:
    """The commands of pyproject.toml, as {name: "module:function"}."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    found = re.findall(r'^(mx-\w+) = "([\w.]+:\w+)"$', text, re.MULTILINE)
    return {name: target for name, target in found if exists(target)}


def exists(target: str) -> bool:
    """Whether the module of a script is there yet."""
    module = target.partition(":")[0].removeprefix("mx.")
    return (ROOT / (module.replace(".", "/") + ".py")).exists()


@pytest.mark.parametrize("name", scripts())
def test_help_is_quick_and_light(name):
    """No heavy module is imported before the flags are read: that is what makes it quick."""
    module, _, function = scripts()[name].partition(":")
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
