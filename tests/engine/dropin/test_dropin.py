"""Drop-in programs and modules: the same output as atools, priors in and out, costs that rank."""

from __future__ import annotations

import io

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from ....engine.commands.dropin import atools as atools_command
from ....engine.commands.dropin import eflomal as eflomal_command
from ....engine.commands.dropin import extractlex, fastalign
from ....engine.dropin import eflomal
from ....engine.dropin.atools import COMMANDS, join_links
from ....engine.dropin.priors import read_priors
from ....engine.dropin.simalign import SentenceAligner
from ....engine.errors import InputError
from ....engine.links.heuristics import join_directions

SRC = ["the red house", "the house", "a red car", "the car", ""] * 5
TGT = ["la maison rouge", "la maison", "une voiture rouge", "la voiture", "x"] * 5
LINKS = st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14)


def join_on_a_grid(command: str, fwd: set, bwd: set) -> list:
    """Follow the words of the definition, on a grid, scan by scan."""
    links = fwd & bwd

    def free_sides(i: int, j: int) -> list[bool]:
        return [all(i != k for k, _ in links), all(j != k for _, k in links)]

    grown = True
    while grown:
        grown = False
        for i in range(7):
            for j in range(7):
                near = any(max(abs(i - k), abs(j - m)) == 1 for k, m in links)
                if (i, j) in (fwd | bwd) - links and near and any(free_sides(i, j)):
                    links.add((i, j))
                    grown = True
    rule = {"or": any, "and": all}.get(COMMANDS[command])
    for direction in (fwd, bwd) if rule else ():
        for i, j in sorted(direction - links):
            if rule(free_sides(i, j)):
                links.add((i, j))
    return sorted(links)


@given(LINKS, LINKS, st.sampled_from(["grow-diag", "grow-diag-final", "grow-diag-final-and"]))
@settings(max_examples=300, deadline=None)
def test_joins_are_those_of_atools(fwd, bwd, command):
    assert join_links(command, fwd, bwd) == join_on_a_grid(command, set(fwd), set(bwd))


def test_atools_and_moses_differ_where_two_candidates_want_one_word(tmp_path):
    """From 1-1, atools sees 0-2 before 2-0, Moses the neighbours of 1-1 in its own order."""
    fwd, bwd = {(1, 1), (0, 2), (2, 2)}, {(1, 1)}
    found = [join_links("grow-diag", fwd, bwd), join_directions("grow-diag", fwd, bwd)]
    assert found[0] == [(0, 2), (1, 1), (2, 2)] and (1, 1) in found[1]
    differing = 0
    for n in range(200):
        fwd = {((n * k) % 5, (n + k * 3) % 4) for k in range(5)}
        bwd = {((n + k) % 5, (n * 2 + k) % 4) for k in range(4)}
        differing += join_links("grow-diag", fwd, bwd) != join_directions("grow-diag", fwd, bwd)
    assert differing  # why there are two


@pytest.fixture
def write(tmp_path):
    def write(name: str, lines) -> str:
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
        return str(tmp_path / name)

    return write


def run(command, *arguments: str) -> str:
    done = CliRunner().invoke(command, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_atools_command(write):
    a, b = write("a", ["1-0 0-0", "", "2-1"]), write("b", ["0-0 1-1", "0-0", "2-1"])
    main = atools_command.main
    assert run(main, "-i", a, "-c", "invert") == "0-0 0-1\n\n1-2\n"
    assert run(main, "-i", a, "-j", b, "-c", "union") == "0-0 1-0 1-1\n0-0\n2-1\n"
    assert run(main, "-i", a, "-j", b, "-c", "fmeasure") == "P: 0.666667\nR: 0.5\nF: 0.571429\n"
    short = write("short", ["0-0"])
    wrong = CliRunner().invoke(main, ["-i", a, "-j", short, "-c", "union"])
    assert wrong.exit_code == 2 and "short has fewer lines" in wrong.stderr
    wrong = CliRunner().invoke(main, ["-i", a, "-c", "union"])
    assert wrong.exit_code == 2 and "union takes two files" in wrong.stderr


def test_extractlex_command(write, tmp_path):
    files = write("t", ["x y"]), write("s", ["a b"]), write("l", ["0-0"])
    run(extractlex.main, *files, str(tmp_path / "st"), str(tmp_path / "ts"))
    assert (tmp_path / "st").read_text() == "y NULL 1.0000000\nx a 1.0000000\nNULL b 1.0000000\n"
    assert (tmp_path / "ts").read_text() == "b NULL 1.0000000\na x 1.0000000\nNULL y 1.0000000\n"


def test_fast_align_flags(write, tmp_path):
    text = write("text", [f"{s} ||| {t}" for s, t in zip(SRC, TGT, strict=True)])
    model = str(tmp_path / "m.npz")
    typed = ["-i", text, "-d", "-o", "-v", "-I", "5", "-p", model]
    fwd = run(fastalign.main, *typed).split("\n")
    assert fwd[0] == "0-0 1-2 2-1" and fwd[4] == "" and len(fwd) == len(SRC) + 1
    assert run(fastalign.main, "-i", text, "-d", "-o", "-v", "-r").split("\n")[0] == "0-0 1-2 2-1"
    assert run(fastalign.main, "-i", text, "-f", model).split("\n") == fwd
    assert " ||| " in run(fastalign.main, "-i", text, "-s").split("\n")[4]


def test_eflomal_flags(write, tmp_path):
    src, tgt = write("s", SRC), write("t", TGT)
    out = [str(tmp_path / name) for name in ("f", "r", "F", "R", "p")]
    typed = ["-s", src, "-t", tgt, "-m", "3", "-f", out[0], "-r", out[1], "-F", out[2],
             "-R", out[3], "--write-priors", out[4]]  # fmt: skip
    run(eflomal_command.main, *typed)
    lines = [open(name, encoding="utf-8").read().splitlines() for name in out]  # noqa: SIM115
    assert lines[0][0] == "0-0 1-2 2-1" and [len(part) for part in lines[:4]] == [len(SRC)] * 4
    assert "LEX\thouse\tmaison\t10" in lines[4]
    again = CliRunner().invoke(eflomal_command.main, typed)
    assert again.exit_code == 2 and "exists; give --overwrite to replace it" in again.stderr
    joined = write("j", [f"{s} ||| {t}" for s, t in zip(SRC, TGT, strict=True)])
    run(eflomal_command.main, "-i", joined, "-f", out[1], "--overwrite")
    assert open(out[1], encoding="utf-8").read().splitlines() == lines[0]  # noqa: SIM115


def test_priors_tell_words_apart_that_a_text_cannot(tmp_path):
    """In one pair alone the order decides which word is which; priors know better."""
    out = tmp_path / "links"
    for priors, wanted in (
        (None, "1-1 2-2"),
        ("LEX\ttall\tgrand\t9\nLEX\tcat\tchat\t9\n", "1-2 2-1"),
    ):
        known = priors and io.StringIO(priors + "LEX\tdog\tchien\t9\n")
        text = [*SRC, "the tall cat"], [*TGT, "le chat grand"]
        eflomal.Aligner(3).align(*text, str(out), priors_input=known)
        assert out.read_text("utf-8").splitlines()[-1] == wanted


def test_priors_survive_a_file():
    found = eflomal.calculate_priors(["a b"], ["x y z"], ["0-0 1-2\n"], ["0-0 1-1 1-2\n"])
    file = io.StringIO()
    eflomal.write_priors(file, *found)
    assert read_priors(file.getvalue().splitlines()) == found
    assert found.priors == [("a", "x", 1.0), ("b", "z", 1.0)] and found.hmmf == {1: 2.0}
    with pytest.raises(InputError, match="line 2: 'LEX' is not a prior of eflomal"):
        read_priors(["LEX\ta\tb\t1", "LEX"])


def test_costs_rank_wrong_pairs_last(tmp_path):
    names = [str(tmp_path / name) for name in ("F", "R")]
    eflomal.Aligner().align(
        [*SRC, "the house"], [*TGT, "voiture rouge"],
        scores_filename_fwd=names[0], scores_filename_rev=names[1],
    )  # fmt: skip
    for name in names:
        costs = [float(line) for line in open(name, encoding="utf-8")]  # noqa: SIM115
        assert costs[-1] > max(costs[:4]) and min(costs) >= 0


def test_simalign_shape():
    aligner = SentenceAligner("en-fr", matching_methods="maifr")
    found = aligner.get_word_aligns("the house is small", ["la", "maison", "est", "petite"])
    assert list(found) == ["mwmf", "inter", "itermax", "fwd", "rev"]
    assert found["itermax"] == [(k, k) for k in range(4)] == found["fwd"]
    assert set(found["inter"]) <= set(found["itermax"]) <= set(found["mwmf"])
