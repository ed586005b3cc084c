"""The documentation site: a page for each command, no dead links, a tutorial that runs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ...docs.build_site import (
    build_site,
    describe_command,
    drop_outside_links,
    escape_text,
    load_commands,
    prepare_pages,
)
from ...engine.version import __version__
from ..support.measure_style import ROOT


def test_every_command_has_a_page_with_all_its_flags():
    commands = dict(load_commands())
    assert "mx-align" in commands and "mx-train" in commands
    for name, command in commands.items():
        page = describe_command(name, command)
        assert page.startswith(f"# {name}\n")
        for param in command.params:
            if param.param_type_name == "option":
                assert param.opts[-1] in page, (name, param)


def test_plain_text_is_not_read_as_markdown():
    assert escape_text("a * b `c_d` [default: _]") == r"a \* b `c_d` \[default: \_\]"


def test_links_out_of_the_docs_are_left_as_words(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.md").touch()
    text = "[a](../a.md#x) [code](../../engine/types.py) [web](https://x.org) [here](#there)"
    made = drop_outside_links(text, tmp_path / "sub", tmp_path)
    assert made == "[a](../a.md#x) code [web](https://x.org) [here](#there)"


def test_every_page_is_in_the_table_of_contents(tmp_path):
    prepare_pages(tmp_path / "source")
    pages = {p.relative_to(tmp_path / "source") for p in (tmp_path / "source").rglob("*.md")}
    listed = (tmp_path / "source" / "index.md").read_text("utf-8")
    for page in pages - {Path("index.md")}:
        folder = page.parent.as_posix()
        name = page.with_suffix("").as_posix()
        inside = folder in ("how-to", "lab", "reference/commands", "explanation")
        assert inside or re.search(rf"^{re.escape(name)}$", listed, re.MULTILINE), page


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("sphinx")
    pytest.importorskip("furo")
    assert build_site(tmp_path) == 0
    assert (tmp_path / "html" / "reference" / "commands" / "mx-align.html").exists()


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path):
    """Run its commands one after the other, and compare the output that it shows."""
    shutil.copytree(ROOT / "tests" / "data", tmp_path / "tests" / "data")
    text = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    shown = ""
    for kind, block in re.findall(
        r"^```(sh|text|python)\n(.*?)^```", text, re.MULTILINE | re.DOTALL
    ):
        if kind == "text":
            assert shown == block
            continue
        if block == "pip install .\n":
            continue
        line = ["bash", "-ec", block] if kind == "sh" else [sys.executable, "-c", block]
        done = subprocess.run(
            line, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=120
        )
        assert done.returncode == 0, block + done.stderr
        shown = done.stdout


def test_the_citation_has_the_version_of_the_code():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
