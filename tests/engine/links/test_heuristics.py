import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ....engine.links.heuristics import JOIN_METHODS, join_directions

LINKS = st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=18)


def by_the_book(method: str, fwd: set, bwd: set, size: int = 7) -> list:
    """The published pseudo-code, scanning the whole grid; e is the target, f the source."""
    union, links = fwd | bwd, fwd & bwd
    around = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]

    def free_e(e):
        return all(j != e for _, j in links)

    def free_f(f):
        return all(i != f for i, _ in links)

    added = "grow" in method
    while added:
        added = False
        for e in range(size):
            for f in range(size):
                if (f, e) not in links:
                    continue
                for de, df in around:
                    new = f + df, e + de
                    if new in union and new not in links and (free_e(e + de) or free_f(f + df)):
                        links.add(new)
                        added = True
    for direction in (fwd, bwd) if "final" in method else ():
        for e in range(size):
            for f in range(size):
                both = free_e(e) and free_f(f)
                either = free_e(e) or free_f(f)
                if (f, e) in direction and (both if method.endswith("and") else either):
                    links.add((f, e))
    return sorted(union if method == "union" else links)


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(LINKS, LINKS, st.sampled_from(sorted(JOIN_METHODS)))
def test_equal_to_the_definition(fwd, bwd, method):
    assert join_directions(method, fwd, bwd) == by_the_book(method, set(fwd), set(bwd))


@pytest.mark.slow
@settings(deadline=None)
@given(LINKS, LINKS)
def test_each_method_adds_to_the_one_before(fwd, bwd):
    chain = ["intersect", "grow-diag", "grow-diag-final-and", "grow-diag-final", "union"]
    sets = [set(join_directions(method, fwd, bwd)) for method in chain]
    assert sets[0] <= sets[1] <= sets[2] <= sets[4]
    assert sets[1] <= sets[3] <= sets[4]


def test_hand_made_cases():
    fwd, bwd = {(0, 0), (1, 1), (3, 2)}, {(0, 0), (1, 0), (5, 5)}
    assert join_directions("intersect", fwd, bwd) == [(0, 0)]
    assert join_directions("union", fwd, bwd) == [(0, 0), (1, 0), (1, 1), (3, 2), (5, 5)]
    # (1, 0) is beside (0, 0) and gives source 1 a link; (1, 1) then gives one to target 1.
    assert join_directions("grow-diag", fwd, bwd) == [(0, 0), (1, 0), (1, 1)]
    assert join_directions("grow-diag-final", fwd, bwd) == [(0, 0), (1, 0), (1, 1), (3, 2), (5, 5)]
    # (7, 0) has a free source but not a free target: `and` leaves it out.
    more = bwd | {(7, 0)}
    assert (7, 0) in join_directions("grow-diag-final", fwd, more)
    assert (7, 0) not in join_directions("grow-diag-final-and", fwd, more)
    assert join_directions("grow-diag", set(), {(1, 1)}) == []
