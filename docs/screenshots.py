"""Takes the screenshots of the README again: python -m mx_align.docs.screenshots (Chromium).

The page is made by mx-view, the browser driven as in the tests.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from ..tests.support import webdriver

ROOT = Path(__file__).resolve().parent.parent

# Sentences of our own, with links made by hand: source, target, gold as in talp files. Without
# accents and capitals, as the text that the small bundled model was trained on.
PAIRS = (
    (
        "the committee will meet again tomorrow morning to discuss the new budget .",
        "le comite se reunira de nouveau demain matin pour discuter du nouveau budget .",
        "0-0 1-1 2p2 2-3 3-3 3p2 4-4 4-5 5-6 6-7 7-8 8-9 9p10 10-11 11-12 12-13",
    ),
    (
        "we have not received any answer from the minister .",
        "nous ne avons recu aucune reponse de la part du ministre .",
        "0-0 1-2 2-1 2p4 3-3 4-4 5-5 6p6 6p7 6p8 6p9 7p9 8-10 9-11",
    ),
    (
        "this question is very important for the people of this country .",
        "cette question est tres importante pour les habitants de ce pays .",
        "0-0 1-1 2-2 3-3 4-4 5-5 6-6 7-7 8-8 9-9 10-10 11-11",
    ),
)

SCALE = 1.5  # pixels of the file for one of the screen
LINKS, HEAT, BOTH = ("links",), ("heat",), ("links", "heat")
# Name of the file: pair, what is shown, width of the screen, dark.
SHOTS = {
    "view-links": (0, LINKS, 1180, False),
    "view-heatmap": (0, HEAT, 1180, False),
    "view-dark": (1, BOTH, 1180, True),
    "view-phone": (0, LINKS, 390, False),
}

# One pair alone, with links, heat map or both.
ALONE = """const [index, views] = arguments;
for (const id of ['report', 'how']) document.getElementById(id).hidden = true;
for (const node of document.querySelectorAll('.pair')) {
  if (Number(node.dataset.index) !== index) node.remove();
}
for (const name of ['links', 'heat']) {
  const button = document.getElementById(`view-${name}`);
  if (button.ariaPressed !== String(views.includes(name))) button.click();
}"""
PAINTED = "return new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50, true)))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", help="bundle that aligns the pairs [the installed one]")
    parser.add_argument("-o", "--output", default=ROOT / "docs" / "images", type=Path)
    options = parser.parse_args()
    if webdriver.installed() is None:
        sys.exit("no browser: install chromium and chromedriver (Debian: chromium-driver)")
    with tempfile.TemporaryDirectory() as folder, webdriver.started() as browser:
        page = make_page(Path(folder), options.model)
        for name, (index, views, width, dark) in SHOTS.items():
            take_screenshot(
                browser, page, index, views, width, dark, options.output / f"{name}.png"
            )
            print(options.output / f"{name}.png")


def make_page(folder: Path, model: str | None) -> Path:
    """Write the pairs and make a page of all of them."""
    from ..engine.commands.view import ViewFlags, run_view

    names = [folder / name for name in ("example.en", "example.fr", "example.talp")]
    for name, lines in zip(names, zip(*PAIRS, strict=True), strict=True):
        name.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    src, tgt, gold = map(str, names)
    page = folder / "page.html"
    langs = None if model else "en-fr"
    run_view(ViewFlags(src=src, tgt=tgt, model=model, langs=langs, gold=gold, output=str(page)))
    return page


def take_screenshot(
    browser: webdriver.Browser,
    page: Path,
    index: int,
    views: tuple[str, ...],
    width: int,
    dark: bool,
    file: Path,
) -> None:
    """Save the page from its top to the end of one pair, the only one in the list."""
    browser.screen(width, 900, dark=dark, scale=SCALE)
    browser.open(page)
    browser.wait("return performance.getEntriesByName('mx-first-draw').length")
    browser.run(ALONE, index, list(views))
    end = "return Math.ceil(document.querySelector('.pair').getBoundingClientRect().bottom)"
    browser.wait(f"{end} > 200")
    browser.screen(width, browser.run(end) + 12, dark=dark, scale=SCALE)
    browser.wait(PAINTED)
    browser.screenshot(file)


if __name__ == "__main__":
    main()
