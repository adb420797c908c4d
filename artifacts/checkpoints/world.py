"""The words of the small world that the tiny model is trained on, and sentences made of them.

Everything is ours and simple on purpose: a vocabulary of 768 ids must spell it, and 1.7 million parameters learn it.
"""

from __future__ import annotations

import random
import zlib

PEOPLE = tuple(
    """
    Ada Ben Cleo Dan Eva Finn Gus Hana Ivo Jana Kim Leo Mira Ned Olga Pia Quin Rosa Sam Tara Udo Vera Walt Yara Zoe
    Abel Bea Carl Dora Emil Fay Gina Hugo Ines Jack Kara Lars Maya Nils Otto
    """.split()
)
COLORS = tuple("red blue green black white yellow brown pink gray golden purple orange silver violet".split())
THINGS = tuple(
    "lamp boat key drum coin book hat cup bell rope stone chair map ring shoe clock kite box bag pen "
    "ball fork vase flag".split()
)
CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Germany": "Berlin",
    "Austria": "Vienna",
    "Greece": "Athens",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Finland": "Helsinki",
    "Poland": "Warsaw",
    "Ireland": "Dublin",
    "Portugal": "Lisbon",
    "Japan": "Tokyo",
    "China": "Beijing",
    "Egypt": "Cairo",
    "Kenya": "Nairobi",
    "Peru": "Lima",
    "Cuba": "Havana",
    "Chile": "Santiago",
    "Canada": "Ottawa",
}
ANIMALS = tuple("cat dog horse bird fox bear frog mouse goat duck".split())
_MOODS = tuple("old young small happy quiet tired clever gentle".split())
_ACTS = tuple("sleeps walks sits waits sings plays rests hides".split())
_WHERE = tuple("near under behind beside by".split())
_PLACES = tuple("the river,the tree,the house,the hill,the garden,the bridge,the lake,the road".split(","))
SENTENCES = len(ANIMALS) * len(_MOODS) * len(_ACTS) * len(_WHERE) * len(_PLACES)
"""Different sentences that there are, each as likely as another."""


def is_held_out(text: str) -> bool:
    """Whether something belongs to the exam and is never trained on: one in ten does, by its checksum."""
    return zlib.crc32(text.encode()) % 10 == 0


def sentence(rng: random.Random, animal: str | None = None, *, exam: bool = False) -> str:
    """Make one plain sentence about an animal, of the exam or not; it says nothing of people, things or codes."""
    while True:
        whose = animal or rng.choice(ANIMALS)
        text = f"The {rng.choice(_MOODS)} {whose} {rng.choice(_ACTS)} {rng.choice(_WHERE)} {rng.choice(_PLACES)}."
        if is_held_out(text) == exam:
            return text


def letters(rng: random.Random, count: int) -> str:
    """Make a string of capital letters in which no letter comes twice."""
    return "".join(rng.sample("ABCDEFGHIJKLMNOPQRSTUVWXYZ", count))
