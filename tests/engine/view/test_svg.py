"""Parts of SVG drawings: valid, safe, with axes that hold all values."""

import xml.etree.ElementTree as ET

import pytest

from ....engine.view.svg import (
    axis_ticks,
    format_number,
    insert_colours,
    linear_scale,
    make_element,
    make_text,
    path_data,
)


def test_the_bytes_of_an_element():
    assert make_element("path", class_="a", stroke_width=0.5, x=None) == (
        '<path class="a" stroke-width="0.5"/>'
    )
    assert path_data([(0, 4), (32.04, 4.0)]) == "M0 4L32.0 4.0"
    assert path_data([(0, 0), (1, 1)], closed=True) == "M0 0L1 1Z"


def test_text_and_attributes_cannot_break_out():
    words = '</text><script>"\x00\ud800&'
    found = ET.fromstring(make_text(words, id='"><b'))
    assert found.text == '</text><script>"\ufffd\ufffd&' and found.get("id") == '"><b'


@pytest.mark.parametrize("ends", [(0, 1), (3, 3), (-2, 7e6), (0.00012, 0.00013), (0, 0)])
def test_ticks_enclose_the_values(ends):
    found = axis_ticks(*ends)
    assert found[0] <= ends[0] + 1e-9 and found[-1] >= ends[1] - 1e-9 and 2 <= len(found) <= 9


def test_numbers_and_colours():
    assert [format_number(n) for n in (12345.6, 0.12345, 3.0)] == ["12,346", "0.1235", "3"]
    assert linear_scale(2, 4, 100, 0)(2.5) == 75
    assert insert_colours("$paper $dark_c0") == "#fff #6cb2f5"
    with pytest.raises(KeyError):
        insert_colours("$pink")
