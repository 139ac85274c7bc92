"""Recipes: a design written as one word, from which it is built again.

circulant(n=16,offsets=3x4)            a family with its parameters
line(circulant(n=16),3)                its third line graph
degree(X,n)  power(X,n)  product(X,Y,...)  duplex(X)  reverse(X)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from collc.design import expand
from collc.design.families import FAMILIES, build
from collc.design.graph import Graph
from collc.errors import InputError, nearest

_EXPANSIONS: Mapping[str, Callable[..., Graph]] = {
    "line": lambda graph, times=1: _repeated(graph, times),
    "degree": expand.degree,
    "power": expand.power,
    "product": expand.product,
    "duplex": expand.duplex,
    "reverse": lambda graph: graph.transpose,
}
_DEEPEST = 64


def parse(text: str) -> Graph:
    """The graph of a recipe.

    >>> parse("line(complete(n=3))").n
    6

    Raises:
        InputError: not a recipe, or no such graph.
    """
    return _parse("".join(text.split()), 0)


def split(text: str) -> tuple[str, list[str]]:
    """The word before the brackets, and what they hold.

    >>> split("product(uniring(n=4),uniring(n=8))")
    ('product', ['uniring(n=4)', 'uniring(n=8)'])

    Raises:
        InputError: brackets do not match.
    """
    word, bracket, rest = text.partition("(")
    if not bracket or not rest.endswith(")"):
        raise InputError(f"recipe '{_short(text)}'; expected a word with brackets, such as circulant(n=16)")
    parts, depth, start = [], 0, 0
    inner = rest[:-1]
    for place, letter in enumerate(inner):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            raise InputError(f"recipe '{_short(text)}': a bracket closes that was not opened")
        if letter == "," and depth == 0:
            parts.append(inner[start:place])
            start = place + 1
    if depth:
        raise InputError(f"recipe '{_short(text)}': a bracket is not closed")
    return word, [*parts, inner[start:]] if inner else []


def _parse(text: str, depth: int) -> Graph:
    if depth > _DEEPEST:
        raise InputError(f"a recipe more than {_DEEPEST} brackets deep; expected a simpler one")
    word, parts = split(text)
    if word in _EXPANSIONS:
        return _expanded(word, parts, text, depth)
    if word not in FAMILIES:
        raise InputError(f"recipe '{_short(text)}': '{word}'" + nearest(word, (*FAMILIES, *_EXPANSIONS)))
    values: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or key in values:
            raise InputError(f"recipe '{_short(text)}': '{part}'; expected KEY=VALUE, each key once")
        values[key] = value
    return build(word, values)


def _expanded(word: str, parts: list[str], text: str, depth: int) -> Graph:
    graphs = [_parse(part, depth + 1) for part in parts if not part.isdigit()]
    numbers = [int(part) for part in parts if part.isdigit()]
    wanted = {"line": (1, (0, 1)), "degree": (1, (1,)), "power": (1, (1,)), "duplex": (1, (0,)), "reverse": (1, (0,))}
    if word in wanted and (len(graphs) != wanted[word][0] or len(numbers) not in wanted[word][1]):
        raise InputError(f"recipe '{_short(text)}': expected {word}(X{',n' if word in ('degree', 'power') else ''})")
    if word == "product" and numbers:
        raise InputError(f"recipe '{_short(text)}': expected product(X,Y,...)")
    return _EXPANSIONS[word](*graphs, *numbers)


def _repeated(graph: Graph, times: int) -> Graph:
    if not 1 <= times <= 12:
        raise InputError(f"line({graph.name},{times}): expected 1 to 12 times")
    for _ in range(times):
        graph = expand.line(graph)
    return graph


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
