"""Draws the rooms and their imports for docs/architecture.md, and lists them: make rooms

Both come from the source: arrows are imports, lines about rooms their docstrings.
"""

from __future__ import annotations

import re

from ..engine.view.svg import XMLNS, make_element, make_text
from ..tests.support.measure_style import ROOT
from ..tests.support.rooms import ORDER, describe_room, direct_arrows

PICTURE = ROOT / "docs" / "images" / "rooms.svg"
PAGE = ROOT / "docs" / "architecture.md"
# Left and right edge of each part's column, and its colour.
COLUMNS = {
    "export": (10, 330, "#b5651d"),
    "trainer": (340, 620, "#7a4fb5"),
    "engine": (630, 1000, "#1f6fb5"),
}
BOX, HIGH, ROW, TOP = 102, 30, 58, 60
# Modules without a room that most others import: their arrows would hide the rest.
SHARED = {"engine/storage", "engine/options", "engine/types", "engine/errors", "engine/version"}
ROOMS = [room for room in ORDER if room not in SHARED and not room.endswith("__main__")]


def place_rooms(arrows: dict[str, list[str]]) -> dict[str, tuple[float, float]]:
    """Give each room the middle of its box: parts side by side, importers above the imported."""
    places: dict[str, tuple[float, float]] = {}
    for part, (left, right, _) in COLUMNS.items():
        levels: dict[str, int] = {}
        for room in (room for room in ROOMS if room.startswith(part)):
            # ORDER goes from top to bottom, so importers have their level already.
            above = [levels[other] for other in levels if room in arrows[other]]
            levels[room] = max(above, default=-1) + 1
        for level in set(levels.values()):
            row = [room for room in levels if levels[room] == level]
            for number, room in enumerate(row, 1):
                x = left + (right - left) * (2 * number - 1) / (2 * len(row))
                places[room] = (x, TOP + level * ROW)
    return places


def draw_picture() -> str:
    """Return the picture as SVG: one box for each room, a curve for each import."""
    arrows = direct_arrows(ROOMS)
    places = place_rooms(arrows)
    height = max(y for _, y in places.values()) + HIGH
    shapes = []
    for room, others in arrows.items():
        for other in others:
            (x1, y1), (x2, y2) = places[room], places[other]
            if room.split("/")[0] == other.split("/")[0]:
                y1, y2 = y1 + HIGH / 2, y2 - HIGH / 2
                curve = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + 24:.0f} {x2:.0f} {y2 - 24:.0f} "
            else:  # from the right side of one box to the left side of the other
                x1, x2 = x1 + BOX / 2, x2 - BOX / 2
                curve = f"M{x1:.0f} {y1:.0f}C{x1 + 60:.0f} {y1:.0f} {x2 - 60:.0f} {y2:.0f} "
            color = COLUMNS[room.split("/")[0]][2]
            curve += f"{x2:.0f} {y2:.0f}"
            shapes.append(
                make_element("path", d=curve, fill="none", stroke=color, stroke_opacity="0.5")
            )
    for room, (x, y) in places.items():
        part, name = room.split("/")
        shapes.append(
            make_element(
                "rect", x=x - BOX / 2, y=y - HIGH / 2, width=BOX, height=HIGH, rx=6, fill="#fff",
                stroke=COLUMNS[part][2], stroke_width="1.5",
            )
        )  # fmt: skip
        shapes.append(make_text(name, x=x, y=y + 4.5, text_anchor="middle"))
    for part, (left, right, color) in COLUMNS.items():
        middle = (left + right) / 2
        shapes.append(
            make_text(
                f"{part}/", x=middle, y=26, text_anchor="middle", font_weight="bold", fill=color
            )
        )
    paper = make_element("rect", width=1010, height=height, fill="#fff")
    return make_element(
        "svg", "\n".join(["", paper, *shapes, ""]), xmlns=XMLNS, viewBox=f"0 0 1010 {height:.0f}",
        font_family="system-ui, sans-serif", font_size=13,
    ) + "\n"  # fmt: skip


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
