"""The example clients of docs/how-to/clients do what they say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

pytest.importorskip("uvicorn")

from ...engine.serve.limits import Limits
from ..support.measure_style import ROOT
from ..support.served import served

CLIENTS = ROOT / "docs" / "how-to" / "clients"


def run(program: str, port: int, *arguments: str) -> str:
    if shutil.which(program) is None:
        pytest.skip(f"no {program}")
    env = {**os.environ, "MX_SERVE": f"http://127.0.0.1:{port}", "MX_SERVE_TOKEN": "correct-horse"}
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=120, env=env, cwd=CLIENTS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_client_in_javascript():
    with served(Limits(), token="correct-horse") as port:
        found = run("node", port, "align.mjs", "de-en", "😀 das Haus", "😀 the house")
    words = [line.split()[:2] for line in found.splitlines()]
    assert ["das", "the"] in words and ["Haus", "house"] in words


@pytest.mark.slow
def test_the_client_in_java(tmp_path):
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"id": 5, "src": "😀 Haus", "tgt": "😀 house"}\n{}\n', "utf-8")
    with served(Limits(), token="correct-horse") as port:
        rows = list(
            map(json.loads, run("java", port, "Align.java", "de-en", str(file)).splitlines())
        )
    assert rows[0]["id"] == 5 and rows[0]["src_spans"][1] == [3, 7] and "error" in rows[1]
