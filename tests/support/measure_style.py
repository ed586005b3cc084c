"""Measures how the code reads: names, docstrings, sizes, comments, fan-in. Run: make style

A name counts as one word if it has no underscore inside; dunder methods do not count.
"""

from __future__ import annotations

import ast
import statistics
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("engine", "trainer", "export", "benchmarks")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Measures:
    """Counts over the files of one part of the code."""

    files: int = 0
    lines: int = 0
    comment_lines: int = 0
    sizes: list[int] = field(default_factory=list)  # lines of each function
    one_word: list[str] = field(default_factory=list)
    participles: list[str] = field(default_factory=list)
    without_docstring: int = 0

    @property
    def one_word_share(self) -> float:
        return len(self.one_word) / max(1, len(self.sizes))


def source_files(part: str) -> list[Path]:
    """List the Python files of a part."""
    return sorted((ROOT / part).rglob("*.py"))


def list_functions(tree: ast.AST) -> Iterator[FunctionNode]:
    """Yield functions and methods, nested ones too, but for dunder methods."""
    for node in ast.walk(tree):
        if isinstance(node, FunctionNode) and not node.name.startswith("__"):
            yield node


def measure_files(files: list[Path]) -> Measures:
    """Count names, docstrings, comments and lines."""
    found = Measures()
    for path in files:
        text = path.read_text("utf-8")
        found.files += 1
        found.lines += len(text.splitlines())
        with open(path, "rb") as file:
            tokens = list(tokenize.tokenize(file.readline))
        found.comment_lines += len({t.start[0] for t in tokens if t.type == tokenize.COMMENT})
        for node in list_functions(ast.parse(text)):
            found.sizes.append((node.end_lineno or node.lineno) - node.lineno + 1)
            found.without_docstring += ast.get_docstring(node) is None
            name = node.name.strip("_")
            if "_" not in name:
                found.one_word.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
                if name.endswith("ed") and name not in ("embed", "need", "feed"):
                    found.participles.append(found.one_word[-1])
    return found


def count_importers() -> Counter[str]:
    """Count for each module how many others import it."""
    importers: Counter[str] = Counter()
    for part in PARTS:
        for path in source_files(part):
            importers.update(set(imported_modules(path)))
    return importers


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the files of ours that a file imports, as paths without suffix from the root."""
    folder = path.parent.relative_to(ROOT).parts
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = folder[: len(folder) - node.level + 1] + tuple((node.module or "").split("."))
        base = tuple(part for part in base if part)
        for alias in node.names:
            module = (*base, alias.name)
            is_module = (ROOT / Path(*module)).with_suffix(".py").exists()
            if is_module or (ROOT / Path(*module)).is_dir():
                yield "/".join(module)
            elif base:
                yield "/".join(base)


def print_report() -> None:
    """Print the measures of all parts, and the modules that most others import."""
    print(f"{'':12}{'files':>6}{'lines':>8}{'median':>8}{'p90':>6}{'comments':>10}{'one word':>10}"
          f"{'no docstring':>14}")  # fmt: skip
    every = {part: source_files(part) for part in PARTS}
    every["all"] = [file for files in every.values() for file in files]
    for name, files in every.items():
        found = measure_files(files)
        p90 = statistics.quantiles(found.sizes, n=10)[-1]
        print(
            f"{name:12}{found.files:6}{found.lines:8}{statistics.median(found.sizes):8.0f}{p90:6.0f}"
            f"{found.comment_lines / found.lines:10.1%}{found.one_word_share:10.1%}"
            f"{found.without_docstring / len(found.sizes):14.1%}"
        )
    print("\nmost imported:")
    for name, count in count_importers().most_common(8):
        print(f"  {count:4} {name}")


if __name__ == "__main__":
    print_report()
