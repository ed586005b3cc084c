"""Draws the rooms and their imports for docs/architecture.md, and lists them: make rooms

Both come from the source: arrows are imports, lines about rooms their docstrings.
"""

from __future__ import annotations

import re
from html import escape

from ..tests.support.measure_style import ROOT
from ..tests.support.rooms import ORDER, describe_room, direct_arrows

PICTURE = ROOT / "docs" / "images" / "rooms.svg"
PAGE = ROOT / "docs" / "architecture.md"
COLORS = {"export": "#b5651d", "trainer": "#7a4fb5", "engine": "#1f6fb5"}
WIDTH, BOX, HIGH, ROW = 1000, 132, 34, 68


def place_rooms(arrows: dict[str, list[str]]) -> dict[str, tuple[float, float]]:
    """Give each room the middle of its box: parts above each other, importers above the imported."""
    places: dict[str, tuple[float, float]] = {}
    top = 40.0
    for part in COLORS:
        rooms = [room for room in ORDER if room.startswith(part)]
        levels: dict[str, int] = {}
        for room in rooms:  # ORDER goes from top to bottom, so importers come first
            above = [levels[other] for other in levels if room in arrows[other]]
            levels[room] = max(above, default=-1) + 1
        for level in range(max(levels.values()) + 1):
            row = [room for room in rooms if levels[room] == level]
            for number, room in enumerate(row):
                places[room] = (WIDTH * (number + 1) / (len(row) + 1), top + HIGH / 2)
            top += ROW
        top += 16
    return places


def draw_picture() -> str:
    """Return the picture as SVG: one box for each room, a curve for each import."""
    arrows = direct_arrows()
    places = place_rooms(arrows)
    height = max(y for _, y in places.values()) + 40
    shapes = []
    for room, others in arrows.items():
        for other in others:
            (x1, y1), (x2, y2) = places[room], places[other]
            y1, y2 = y1 + HIGH / 2, y2 - HIGH / 2
            bend = max(24.0, (y2 - y1) / 2)
            shapes.append(
                f'<path d="M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} '
                f'{x2:.0f} {y2:.0f}" fill="none" stroke="{COLORS[room.split("/")[0]]}" '
                'stroke-opacity=".45"/>'
            )
    for room, (x, y) in places.items():
        part, name = room.split("/")
        shapes.append(
            f'<rect x="{x - BOX / 2:.0f}" y="{y - HIGH / 2:.0f}" width="{BOX}" height="{HIGH}" rx="6" '
            f'fill="#fff" stroke="{COLORS[part]}" stroke-width="1.5"/>'
            f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle">{escape(name)}</text>'
        )
    for part, color in COLORS.items():
        y = min(y for room, (_, y) in places.items() if room.startswith(part))
        shapes.append(
            f'<text x="12" y="{y - 24:.0f}" font-weight="bold" fill="{color}">{part}/</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        'font-family="system-ui, sans-serif" font-size="15">\n'
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="#fff"/>\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


def list_rooms_as_table() -> str:
    """Return a Markdown table of the rooms and what they are for."""
    rows = [f"| `{room}` | {describe_room(room)} |" for room in ORDER]
    return "\n".join(["| room | what it is for |", "|---|---|", *rows])


def renew_page(text: str) -> str:
    """Return the page with a new table between its marks."""
    table = f"<!-- rooms -->\n{list_rooms_as_table()}\n<!-- end -->"
    return re.sub(r"<!-- rooms -->.*?<!-- end -->", lambda _: table, text, flags=re.DOTALL)


if __name__ == "__main__":
    PICTURE.write_text(draw_picture(), "utf-8")
    PAGE.write_text(renew_page(PAGE.read_text("utf-8")), "utf-8")
