"""Language pairs as people and bundles write them, and which model serves which pair."""

import pytest

from ....engine.bundle.languages import (
    is_language_side,
    list_pairs,
    match_order,
    parse_languages,
)
from ....engine.errors import MxError


def test_an_underscore_stands_for_the_hyphen_inside_a_code():
    assert parse_languages("de-en") == ("de", "en")
    assert parse_languages("de+zh_Hans-en") == ("de+zh-Hans", "en")


@pytest.mark.parametrize("langs", ["de", "de-", "d-en", "de-en-fr", "de en", ""])
def test_what_is_no_pair_is_an_error(langs):
    with pytest.raises(MxError, match="must be two codes such as de-en"):
        parse_languages(langs)


def test_a_side_of_several_languages_makes_several_pairs():
    assert list_pairs(("de+fr", "en")) == ["de-en", "fr-en"]
    assert (
        is_language_side("de+zh-Hans") and not is_language_side("de+") and not is_language_side(1)
    )


@pytest.mark.parametrize(("langs", "order"), [("FR-en", 1), ("en-de", -1), ("de-fr", 0), ("x", 0)])
def test_a_pair_is_served_in_either_order(langs, order):
    assert match_order(("de+fr", "en"), langs) == order
