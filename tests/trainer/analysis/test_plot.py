"""mx-train --plot: charts of a run from its log."""

import json
import re
import xml.etree.ElementTree as ET

import pytest

from ....engine.errors import MxError
from ....trainer.analysis.plot import plot_runs, smooth_line, thin_points


def write_log(run, records, end=""):
    run.mkdir(exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (run / "log.jsonl").write_text(lines + end)
    return run


RECORDS = [
    {"step": s, "loss": 9 - s / 100, "nll_fwd": 5.0, "nll_bwd": 5.0, "agreement": 0.1,
     "entropy": 0.3, "seeds": 0.0, "lr": 1e-3, "pieces_per_second": 5000.0, "seconds": 6.0 * s}
    for s in range(10, 200, 10)
] + [
    {"step": 100, "accuracy": 0.5, "nll": 2.0, "aer": 0.3, "best_aer": 0.28, "seconds": 600.0},
    {"step": 190, "accuracy": 0.6, "nll": 1.5, "aer": 0.2, "best_aer": 0.19, "seconds": 1140.0},
]  # fmt: skip


def test_every_series_is_drawn(tmp_path):
    path = plot_runs([write_log(tmp_path / "r<un", RECORDS, end='{"step": 200, "lo')])
    text = path.read_text("utf-8")
    assert path.name == "plot.html" and "r&lt;un: 190 steps" in text
    drawn = re.findall(r"<path [^>]*><title>(\w+)</title>", text)
    wanted = {"loss", "nll_fwd", "accuracy", "aer", "best_aer", "pieces_per_second", "entropy"}
    assert wanted <= set(drawn) and "guidance" not in drawn  # all of its values are 0
    assert "<td>20.00 %</td><td>at step 190</td>" in text
    for svg in re.findall("<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(svg)
    assert "://" not in text and text.count("<script") == 2


def test_values_that_are_no_numbers_are_left_out(tmp_path):
    records = [*RECORDS, {"step": 200, "loss": float("nan"), "lr": float("inf")}]
    text = plot_runs([write_log(tmp_path / "run", records)]).read_text("utf-8")
    assert not re.search(r"\b(nan|inf)\b", text, re.IGNORECASE)


def test_a_log_of_one_step(tmp_path):
    text = plot_runs([write_log(tmp_path / "run", RECORDS[:1])]).read_text("utf-8")
    assert "<circle" in text


def test_no_log(tmp_path):
    with pytest.raises(MxError, match="give the folder of a run"):
        plot_runs([tmp_path])
    (tmp_path / "log.jsonl").write_text("\n")
    with pytest.raises(MxError, match="no steps yet"):
        plot_runs([tmp_path])


def test_the_command(tmp_path, run_command):
    done = run_command("--plot", write_log(tmp_path / "run", RECORDS))
    assert done.returncode == 0 and done.stdout.strip().endswith("plot.html")
    missing = run_command("--plot", tmp_path / "none")
    assert missing.returncode == 2 and missing.stderr.startswith("mx-train: cannot read")


def test_long_lines_are_thinned_but_keep_their_end():
    line = thin_points([(float(k), 0.0) for k in range(9999)])
    assert len(line) <= 1501 and line[-1][0] == 9998


def test_every_term_of_a_student_is_drawn(tmp_path):
    """Also those that nobody has thought of here."""
    records = [
        {"step": s, "loss": 1.0, "links": 0.5, "nulls": 0.1, "new<term": 2.0} for s in (1, 2)
    ]
    text = plot_runs([write_log(tmp_path / "run", records)]).read_text("utf-8")
    drawn = re.findall(r"<path [^>]*><title>([^<]+)</title>", text)
    assert {"links", "nulls", "new&lt;term"} <= set(drawn) and "<h2>new&lt;term</h2>" in text


def test_runs_stand_side_by_side(tmp_path):
    runs = [write_log(tmp_path / name, RECORDS) for name in ("one", "two")]
    path = plot_runs(runs)
    text = path.read_text("utf-8")
    assert path == runs[0] / "plot.html" and "one · two: 190, 190 steps" in text
    assert "loss of one" in text and "loss of two" in text and "Best values of two" in text


def test_long_lines_are_smoothed():
    line = [(float(k), float(k % 2)) for k in range(100)]
    smooth = smooth_line(line)
    assert [x for x, _ in smooth] == [x for x, _ in line] and smooth[0] == line[0]
    assert all(0.4 < y < 0.6 for _, y in smooth[40:])
    assert smooth_line(line[:20]) == []


def test_values_are_told_under_the_pointer(browser, tmp_path):
    records = [{"step": s, "loss": 10.0 - s / 10} for s in range(0, 100, 10)]
    browser.screen(1280, 900)
    browser.open(plot_runs([write_log(tmp_path / "run", records)]))
    told = browser.run("""const image = document.querySelector('section svg'), box = image.getBoundingClientRect();
        const line = image.querySelector('path.line').getBoundingClientRect();
        image.dispatchEvent(new PointerEvent('pointermove', { clientX: line.left + line.width * 4 / 9, clientY: box.top + 50 }));
        return image.parentNode.querySelector('.values').textContent""")  # noqa: E501
    assert told == "at 40: loss 6" and browser.log() == []
