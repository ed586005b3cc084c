"""Help in sections: every option once, under its title or at the end."""

import click
import pytest
from click.testing import CliRunner

from ....engine.commands.help import SectionedCommand


def command(**sections: list[str]) -> click.Command:
    options = [click.Option([f"--{name}"], help=f"Sets {name}.") for name in ("a", "b", "c")]
    hidden = click.Option(["--secret"], hidden=True)
    return SectionedCommand("x", params=[*options, hidden], sections=sections)


def test_options_stand_under_their_titles_in_the_order_of_the_sections():
    text = CliRunner().invoke(command(Second=["c", "b"], Third=["a"]), ["--help"]).stdout
    places = ["Second:", "--c", "--b", "Third:", "--a", "General:", "--help"]
    assert [text.count(place) for place in places] == [1] * len(places)
    assert sorted(places, key=text.index) == places
    assert "secret" not in text


def test_a_section_with_an_option_that_is_none_is_a_bug():
    with pytest.raises(KeyError):
        CliRunner().invoke(command(First=["d"]), ["--help"], catch_exceptions=False)
