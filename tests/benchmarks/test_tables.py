"""Tables and plots are what the results on disk say, in the repository as well."""

import re
from xml.etree import ElementTree

import pytest

from ...benchmarks import charts, records, tables
from ...benchmarks.charts import Axes, ChartPoint
from ...engine.errors import MxError


def run(system: str, aer: float, **more) -> dict:
    base = {
        "system": system, "set": "en-fr", "aer": aer, "precision": 90.0, "recall": 80.0,
        "interval": {"aer": [aer - 1, aer + 1]}, "symmetrization": "soft", "gold_pairs": 447,
        "text": {"pairs": 262_000}, "pairs_per_cpu_second": 1234.5, "date": "2026-11-16",
        "hardware": "a CPU, 2 cores", "signature": "mx-align|v:1",
    }  # fmt: skip
    return {**base, **more}


@pytest.fixture
def results(tmp_path):
    peer = run("eflomal", 7.64, symmetrization="intersect", signature="eflomal|v:2",
               both={"wall": 60.0, "cpu": 111.0, "peak_mb": 310.0})  # fmt: skip
    ours = run(
        "tiny", 6.5, train={"wall": 3000.0}, align={"wall": 70.0, "cpu": 130.0, "peak_mb": 9}
    )
    for one in (peer, ours, run("seed", 40.0, set="ja-en", both={"wall": 9.0})):
        records.add_run(tmp_path / "accuracy.json", f"{one['set']}/{one['system']}", one)
    return tmp_path


def test_what_is_committed_is_what_the_results_say():
    """If this fails: make tables."""
    assert not [path.name for path in tables.outdated_files()]


def test_a_table_between_its_marks(results):
    page = "before\n<!-- table: accuracy -->\nstale\n<!-- end -->\nafter <!-- end --> x\n"
    made = tables.fill_page(page, results)
    rows = [line for line in made.split("\n") if line.startswith("| en-fr")]
    assert [row.split("|")[2].strip() for row in rows] == ["tiny", "eflomal, intersect"]
    assert "**7.64** (6.64 to 8.64)" in rows[1] and "with training: 60 s (111 s CPU)" in rows[1]
    assert "50 min" in rows[0] and "0.31 GB" in rows[1]
    assert made.startswith("before\n") and made.endswith("after <!-- end --> x\n")
    assert "stale" not in made and tables.fill_page(made, results) == made
    assert "2026-11-16" in made and "a CPU, 2 cores" in made


def test_the_summary_has_a_row_for_each_system_that_was_measured(results):
    made = tables.format_table("summary", results).split("\n")
    assert made[2] == "| eflomal | 7.6 | – | – | 1,200 | a C compiler |"
    assert "2026-11-16" in made[-1] and len(made) == 5


def test_a_table_without_results(tmp_path):
    page = "<!-- table: accuracy -->\n<!-- end -->"
    assert tables.NOTHING in tables.fill_page(page, tmp_path)
    with pytest.raises(MxError, match="no table 'nonsense'"):
        tables.fill_page("<!-- table: nonsense -->\n<!-- end -->", tmp_path)
    with pytest.raises(MxError, match="lacks its"):
        tables.fill_page("<!-- table: accuracy -->\n", tmp_path)


def test_the_ablation_table(tmp_path):
    for row in ("none", "masked"):
        found = {"row": row, "aer": [30.0, 28.0, 32.0], "aer_without_end": [20.0, 19.0, 21.0]}
        found |= {"signature": "s", "hardware": "h", "date": "d"}
        records.add_run(tmp_path / "ablation.json", row, found)
    made = tables.format_table("ablation", tmp_path)
    assert "| ✓ |  |  | 27.2 | 30.0 (28.0 to 32.0) |" in made
    assert "|  | ✓ |  | 28.3 | – |" in made
    assert "none 28.4 → masked 27.2 | 30.0 → 30.0 | within the noise" in made


def test_long_lines_side_by_side(tmp_path):
    row = {"words": 16.5, "aer": 6.0, "low": 5.0, "high": 7.0}
    change = {"more": 0.1, "more_low": -0.2, "more_high": 0.4}
    about = {"signature": "s", "date": "d"}
    joined = {"1": {**row, **dict.fromkeys(change, 0.0)}, "10": {**row, **change}}
    records.add_run(tmp_path / "long_lines.json", "ja-en", {**about, "joined": {"1": joined["1"]}})
    records.add_run(tmp_path / "long_lines.json", "en-fr", {**about, "joined": joined})
    made = tables.format_table("long-lines", tmp_path).split("\n")
    assert made[0].startswith(
        "| joined | en-fr, words a side | AER (95 %) | change (95 %) | ja-en,"
    )
    assert made[2] == "| 1 | 16.5 | 6.00 (5.00 to 7.00) |  | 16.5 | 6.00 (5.00 to 7.00) |  |"
    assert made[3] == "| 10 | 16.5 | 6.00 (5.00 to 7.00) | +0.10 (-0.20 to +0.40) |  | |  |"


def test_plots_are_files_for_both_kinds_of_pages(results):
    found = tables.draw_plots(results)
    assert set(found) == {
        "aer-time-en-fr.svg", "aer-speed-en-fr.svg", "aer-time-ja-en.svg", "aer-speed-ja-en.svg",
    }  # fmt: skip
    for text in found.values():
        root = ElementTree.fromstring(text)
        assert root.tag.endswith("svg") and root.attrib["aria-label"]
        assert "prefers-color-scheme: dark" in text
    assert ">tiny<" in found["aer-speed-en-fr.svg"] and "others" in found["aer-speed-en-fr.svg"]


def test_charts_stay_inside_their_frame():
    points = [
        ChartPoint(f"system {k} <x>", "ours", 10.0**k, 50 - k, 49 - k, 51 - k) for k in range(-1, 5)
    ]
    text = charts.draw_chart(Axes("t", "x", "y", "high"), points)
    ElementTree.fromstring(text)
    for x, y in re.findall(r'c[xy]="([\d.-]+)" c[xy]="([\d.-]+)"', text):
        assert 0 <= float(x) <= charts.WIDTH and 0 <= float(y) <= charts.HEIGHT
    assert "&lt;x&gt;" in text


def test_the_front_has_what_nothing_beats():
    a, b, c = (ChartPoint(n, "", x, y, y, y) for n, x, y in (("a", 1, 5), ("b", 2, 6), ("c", 3, 4)))
    assert charts.find_front([a, b, c], "low") == [a, c]
    assert charts.find_front([a, b, c], "high") == [c]


@pytest.mark.parametrize(("low", "high"), [(3, 800), (0.02, 0.03), (1, 1), (7, 5e6)])
def test_logarithmic_ticks_enclose_the_values(low, high):
    marks = charts.log_ticks(low, high)
    assert marks[0] <= low * 1.001 and marks[-1] >= high * 0.999 and len(marks) >= 2
