"""A stop string ends the text at the same place however the stream is cut."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.stops import StopStrings


def through(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopStrings(stops)
    text = ""
    for piece in pieces:
        text += matcher.feed(piece)
        if matcher.stopped:
            break
    return text + matcher.finish(), matcher.stopped


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


def test_a_stop_across_three_tokens_is_found() -> None:
    assert through(["END."], ["say E", "ND", ". more"]) == ("say ", "END.")


def test_what_only_looked_like_a_stop_is_given_back() -> None:
    assert through(["END."], ["say E", "NDLESS"]) == ("say ENDLESS", None)
    assert through(["END."], ["say EN"]) == ("say EN", None)


def test_text_before_a_possible_stop_is_not_held() -> None:
    assert StopStrings(["END"]).feed("hello E") == "hello "


def test_an_earlier_longer_stop_wins_over_one_inside_it() -> None:
    assert through(["abcd", "bc"], ["xab", "cd"]) == ("x", "abcd")
    assert through(["abcd", "bc"], ["xab", "cx"]) == ("xa", "bc")
    assert through(["abcd", "bc"], ["xabc"]) == ("xa", "bc")


@settings(deadline=None)
@given(
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4),
    st.text("abcd", max_size=24),
    st.lists(st.integers(0, 24), max_size=8),
)
def test_any_cut_stops_where_the_whole_does(stops: list[str], text: str, places: list[int]) -> None:
    first = re.search("|".join(map(re.escape, sorted(stops, key=len))), text)
    expected = (text[: first.start()], first.group()) if first else (text, None)
    assert through(stops, cut(text, places)) == expected
