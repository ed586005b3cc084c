"""The web app in a real browser: sentences are typed, aligned, corrected, kept and saved."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

pytest.importorskip("uvicorn")

from ....engine.serve.limits import Limits
from ...support.accessibility import find_violations
from ...support.served import served

TYPE = """const [id, text] = arguments, box = document.getElementById(id);
    box.value = text; box.dispatchEvent(new Event('input'));"""
CAUGHT = """window.saved = []; HTMLAnchorElement.prototype.click = function () {};
    URL.createObjectURL = (blob) => { blob.text().then((t) => window.saved.push(t)); return '#'; };"""  # noqa: E501
LINKS = """return [...document.querySelectorAll('.pair')].map((card) =>
    [...card.querySelectorAll('line.sys')].map(n => n.dataset.link))"""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served(Limits()) as number:
        yield number


@pytest.fixture
def app(browser, port):
    browser.screen(1280, 900)
    browser.open(f"http://127.0.0.1:{port}/")
    browser.run("localStorage.clear(); sessionStorage.clear()")
    browser.open(f"http://127.0.0.1:{port}/#fresh")
    browser.run("location.reload()")
    browser.wait("return document.getElementById('langs')?.options.length")
    browser.run(CAUGHT)
    yield browser
    assert [line for line in browser.log() if "favicon" not in line] == []


def write(app, src: str, tgt: str) -> None:
    app.run("performance.clearMarks()")
    app.run(TYPE, "src-text", src)
    app.run(TYPE, "tgt-text", tgt)
    app.wait("return performance.getEntriesByName('mx-aligned').length", 60)


def choose(app, name: str, value: str) -> None:
    app.run(
        "const n = document.getElementById(arguments[0]); n.value = arguments[1];"
        "n.dispatchEvent(new Event('change'))",
        name, value,
    )  # fmt: skip


def test_what_is_typed_is_aligned_at_once(app):
    write(app, "das Haus ist klein .", "the house is small .")
    assert app.wait(LINKS) == [["0-0", "1-1", "2-2", "3-3", "4-4"]]
    assert app.run("return document.querySelectorAll('canvas').length") == 1
    assert "mx-align|v:" in app.run("return document.getElementById('how').textContent")
    write(app, "das Haus ist klein .\nja", "the house is small .\nyes")
    assert len(app.run(LINKS)) == 2
    write(app, "das Haus", "the house")
    assert app.run(LINKS) == [["0-0", "1-1"]]


def test_the_threshold_moves_over_all_scores(app):
    write(app, "er hat es sich anders überlegt", "he changed his mind and went home")
    before = len(app.run(LINKS)[0])
    app.run(
        """const s = document.getElementById('slider'); s.value = 2;
            s.dispatchEvent(new Event('input'))"""
    )
    assert len(app.run(LINKS)[0]) > before
    app.click("#slider-reset")
    assert len(app.run(LINKS)[0]) == before


def test_sides_and_languages_are_exchanged(app):
    choose(app, "langs", "de-en")
    write(app, "das Haus", "the house")
    app.run("performance.clearMarks()")
    app.click("#turn")
    app.wait("return performance.getEntriesByName('mx-aligned').length")
    assert app.run("return document.getElementById('langs').value") == "en-de"
    assert app.run("return document.querySelector('.src .word').textContent") == "the"
    assert app.run(LINKS) == [["0-0", "1-1"]]


def test_corrections_are_saved_as_gold_and_stay_with_their_words(app):
    write(app, "das Haus\nja", "the house\nyes")
    app.run("document.activeElement.blur()")
    app.press("e")
    app.run("""const word = (side, k) => document.querySelectorAll(`.${side} .word`)[k];
        word('src', 0).click(); word('tgt', 1).click();""")
    choose(app, "save", "talp")
    assert app.wait("return window.saved[0]") == "0-0 0-1 1-1\n\n"
    write(app, "das Haus\nnein", "the house\nno")
    choose(app, "save", "jsonl")
    row = json.loads(app.wait("return window.saved[1]"))
    assert row["sure"] == [[0, 0], [0, 1], [1, 1]] and row["src"] == ["das", "Haus"]
    write(app, "dies Haus\nnein", "the house\nno")
    choose(app, "save", "talp")
    assert app.wait("return window.saved[2]") == "\n\n"


def test_a_project_is_kept_saved_and_opened(app):
    write(app, "das Haus", "the house")
    app.run("document.activeElement.blur()")
    app.press("e")
    app.run(
        """document.querySelector('.src .word').click();
            document.querySelectorAll('.tgt .word')[1].click()"""
    )
    app.click("#project-save")
    project = json.loads(app.wait("return window.saved[0]"))
    assert project["gold"][0]["links"] == [[0, 0, 1], [0, 1, 1], [1, 1, 1]]
    app.run("location.reload()")
    app.wait("return document.querySelectorAll('line.missing').length")  # kept by the browser
    app.run(CAUGHT)
    app.click("#project-new")
    app.wait("return !document.querySelector('.pair')")
    opened = """const [text] = arguments, file = new File([text], 'p.json');
        const list = new DataTransfer(), box = document.getElementById('project-file');
        list.items.add(file);
        box.files = list.files; box.dispatchEvent(new Event('change'));"""
    app.run(opened, "{}")
    app.wait(
        "return document.getElementById('status').textContent.startsWith('This is no project')"
    )
    app.run(opened, json.dumps(project))
    app.wait("return document.querySelectorAll('line.missing').length")
    choose(app, "save", "talp")
    assert app.wait("return window.saved[0]") == "0-0 0-1 1-1\n"


def test_tags_are_carried_over(app):
    write(app, "das <b>Haus</b> ist rot", "the house is red")
    app.click("#markup")
    app.wait("return document.getElementById('marked').value", 60)
    found = app.run("return document.getElementById('marked').textContent")
    assert found == "the <b>house</b> is red"


def test_keys_lead_to_the_pairs_and_back(app):
    write(app, "das Haus", "the house")
    app.run("document.getElementById('src-text').focus()")
    app.run("""document.activeElement.dispatchEvent(new KeyboardEvent('keydown',
        { key: 'Enter', ctrlKey: true, bubbles: true }))""")
    assert app.run("return document.activeElement.className") == "pair"
    app.press("ArrowRight")
    assert "das: linked to the" in app.run("return document.getElementById('live').textContent")
    app.press("i")
    assert app.run("return document.activeElement.id") == "src-text"


def test_right_to_left_and_a_phone(app):
    app.screen(390, 844)
    write(app, "the house is small", "הבית קטן")
    assert (
        app.run("return getComputedStyle(document.getElementById('tgt-text')).direction") == "rtl"
    )
    lefts = """return [...document.querySelectorAll('.tgt .word')].map(
        (n) => n.getBoundingClientRect().left)"""
    left = app.run(lefts)
    assert len(left) == 2 and left[0] > left[1]
    assert app.run("return document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_no_rule_of_accessibility_is_broken(app, width, dark):
    app.screen(width, 900, dark=dark)
    write(app, "das Haus ist klein\nja", "הבית קטן\nyes")
    app.run("document.activeElement.blur()")
    app.press("e")
    app.run("document.querySelector('.src .word').click()")
    assert find_violations(app) == []


def test_hostile_text_is_shown_and_never_run(app):
    text = "<img src=x onerror=document.title='run'> </script><script>document.title='run'</script>"
    choose(app, "tokens", "words")
    write(app, text, text)
    assert app.run("return document.title") == "mx-align"
    assert app.run("return document.querySelectorAll('main img, main script').length") == 0
    assert app.wait("return document.querySelector('.src .word').textContent === '<img'")


def test_a_server_that_is_gone_is_told(browser):
    with served(Limits(), token="correct-horse") as port:
        browser.open(f"http://127.0.0.1:{port}/")
        browser.run("localStorage.clear(); sessionStorage.clear()")
        browser.wait("return document.getElementById('langs')?.options.length")
        browser.run(TYPE, "src-text", "das Haus")
        told = "return document.getElementById('status').textContent.includes(arguments[0])"
        browser.wait(told.replace("arguments[0]", "'Bearer TOKEN'"))
        browser.type("#token", "correct-horse")
        browser.press("Tab")
        browser.wait("return document.querySelectorAll('.pair').length")
    browser.run(TYPE, "tgt-text", "the house")
    browser.wait(told.replace("arguments[0]", "'cannot be reached'"))
    browser.log()
