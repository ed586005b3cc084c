"""Real programs of other people on our output: OpusTrainer, OpusFilter, sil-machine.

They live in `.clients` (`make clients`), apart from our own packages. Without that folder these
tests skip themselves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.measure_style import ROOT

CLIENTS = Path(os.environ.get("MX_CLIENTS", ROOT / ".clients"))
SRC = ["the red house", "the house", "a red car", "the car", "the red car", "a house"] * 6
TGT = ["la maison rouge", "la maison", "une voiture rouge", "la voiture", "la voiture rouge",
       "une maison"] * 6  # fmt: skip


def run_client(name: str, code: str, folder: Path) -> str:
    """Run a program with the clients on its path; return what it prints."""
    if not (CLIENTS / name).is_dir():
        pytest.skip(f"{name} is not installed: make clients")
    for file, lines in (("src", SRC), ("tgt", TGT)):
        (folder / file).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    # Behind our own packages, so that theirs never take the place of those.
    code = f"import sys; sys.path.append({str(CLIENTS)!r})\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("mode, wanted", [
    ("replace=0.0, tag=1.0", "__source__ house __target__ maison __done__"),
    ("replace=1.0, tag=0.0", "__source__ house __target__ "),
])  # fmt: skip
def test_opustrainer_tags_words_by_our_links(tmp_path, mode, wanted):
    """Every word is tagged with the translation that our links give it, in both modes."""
    code = f"""
from mx_align import StatisticalAligner
from opustrainer.modifiers.placeholders import PlaceholderTagModifier
src, tgt = open("src").read().splitlines(), open("tgt").read().splitlines()
aligner = StatisticalAligner.learn(src, tgt)
lines = [f"{{s}}\\t{{t}}\\t{{a}}" for s, t, a in zip(src, tgt, aligner.align(src, tgt))]
modifier = PlaceholderTagModifier(probability=1.0, {mode})
made = list(modifier(lines))
assert len(made) == len(lines)
print(made[1])
"""
    assert wanted in run_client("opustrainer", code, tmp_path)


@pytest.mark.slow
def test_opusfilter_scores_and_filters_through_our_eflomal(tmp_path):
    """Priors of clean text, then scores and decisions of WordAlignFilter with these priors."""
    code = """
import json
import mx_align.engine.dropin.eflomal
sys.modules["eflomal"] = mx_align.engine.dropin.eflomal
from opusfilter.word_alignment import WordAlignFilter, make_priors
make_priors("src", "tgt", "priors", score_file="scores.jsonl")
scored = [json.loads(line)["WordAlignFilter"] for line in open("scores.jsonl")]
pairs = list(zip(open("src").read().splitlines(), open("tgt").read().splitlines()))[:6]
pairs += [("the red house", "xyzzy plugh foo"), ("", "")]
judge = WordAlignFilter(src_threshold=1, tgt_threshold=1, priors="priors", workdir=".")
found = list(judge.score(pairs))
kept = list(judge.filter(pairs))
print(json.dumps([len(scored), found, kept, open("priors").read().count("LEX\\t")]))
"""
    n_scored, found, kept, n_priors = json.loads(run_client("opusfilter", code, tmp_path))
    assert n_scored == len(SRC) and n_priors >= 5
    assert found[-1] == [-100, -100]
    assert max(max(pair) for pair in found[:6]) < min(found[6])
    assert ["the red house", "la maison rouge"] in kept
    assert ["the red house", "xyzzy plugh foo"] not in kept


@pytest.mark.slow
def test_sil_machine_takes_our_aligner_for_its_own(tmp_path):
    code = """
from mx_align import StatisticalAligner
from mx_align.engine.dropin.sil_machine import MachineAligner, make_word_aligner
from machine.corpora import ParallelTextRow
from machine.translation import SymmetrizedWordAligner, WordAligner
src, tgt = open("src").read().splitlines(), open("tgt").read().splitlines()
aligner = make_word_aligner(StatisticalAligner.learn(src, tgt))
assert isinstance(aligner, WordAligner)
matrix = aligner.align("the red house".split(), "la maison rouge".split())
print(sorted((pair.source_index, pair.target_index) for pair in matrix.to_aligned_word_pairs()))
row = ParallelTextRow("t", ["1"], ["1"], ["a", "car"], ["une", "voiture"])
print(aligner.align_parallel_text_row(row))
both = SymmetrizedWordAligner(aligner, aligner)
print(both.align("the house".split(), "la maison".split()))
files = MachineAligner()
files.train("src", "tgt")
files.align("out", "grow-diag-final-and")
print(open("out").readline().strip(), max(files.get_direct_lexicon()["house"]))
"""
    assert run_client("machine", code, tmp_path).splitlines() == [
        "[(0, 0), (1, 2), (2, 1)]", "0-0 1-1", "0-0 1-1", "0-0 1-2 2-1 maison",
    ]  # fmt: skip
