"""The example for Firefox Translations keeps the contract of its align.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ...engine.text.files import open_output, read_lines
from ..support.measure_style import ROOT

SRC = ["The red house.", "the house", "", "A red car ||| here", "the car", "one two"] * 4
TRG = ["La maison rouge.", "la maison", "vide", "Une voiture rouge ||| ici", "la voiture", ""] * 4


@pytest.mark.slow
def test_the_contract(tmp_path):
    names = {name: tmp_path / f"{name}.zst" for name in ("s", "t", "out", "ts", "tt")}
    for name, lines in (("s", SRC), ("t", TRG)):
        with open_output(names[name]) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
    script = [sys.executable, str(ROOT / "examples" / "firefox_align.py")]
    typed = ["--corpus_src", names["s"], "--corpus_trg", names["t"], "--output_path", names["out"]]
    typed += ["--tokenized_src", names["ts"], "--tokenized_trg", names["tt"]]
    typed += ["--priors_output_path", tmp_path / "priors"]
    subprocess.run([*script, *map(str, typed)], check=True, timeout=120)
    links, src, trg = (list(read_lines(names[name])) for name in ("out", "ts", "tt"))
    assert len(links) == len(src) == len(trg) == len(SRC)
    assert src[0] == "The ▁ red ▁ house ." and links[0].split()[0] == "0-0"
    for line, source, target in zip(links, src, trg, strict=True):
        source_tokens, target_tokens = source.split(), target.split()
        for link in line.split():
            i, j = map(int, link.split("-"))
            assert source_tokens[i] != "▁" != target_tokens[j]  # inside, and never a blank
    assert links[2] == links[5] == "" and src[3].split().count("|") + src[3].count("|||") > 0
    words = dict(link.split("-") for link in links[0].split())
    assert trg[0].split()[int(words["4"])] == "maison"
    priors = (tmp_path / "priors").read_text("utf-8")
    assert "LEX\thouse\tmaison\t" in priors
    again = ["--priors_input_path", tmp_path / "priors"]
    subprocess.run([*script, *map(str, [*typed[:6], *again])], check=True, timeout=120)
    assert len(list(read_lines(names["out"]))) == len(SRC)
