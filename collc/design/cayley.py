"""Cayley graphs of semidirect products: vertex-transitive, so one vertex tells what a schedule costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING, Any

from collc.design.graph import Graph, check_scale
from collc.errors import InputError

if TYPE_CHECKING:
    from collc.design.graph import Matrix, Row


@dataclass(frozen=True)
class Group:
    """A group (base) x| Z_b; element (x, y) has the number x * b + y.

    Attributes:
        order: elements.
        b: order of the cyclic factor that acts.
        digit: the base is added up digit by digit in this base (without carry).
        images: [b x order/b] the y-th power of the action, on the numbers of the base's elements.
        recipe: how a Cayley graph's recipe names the group.
    """

    order: int
    b: int
    digit: int
    images: Matrix
    recipe: str

    def product(self, one: Any, other: Any) -> Any:
        """(x, y) * (u, v) = (x + action^y(u), y + v), of numbers or arrays of them."""
        x, y = one // self.b, one % self.b
        u, v = other // self.b, other % self.b
        return self._sum(x, self.images[y, u]) * self.b + (y + v) % self.b

    def _sum(self, x: Any, u: Any) -> Any:
        total, place, base = 0, 1, self.order // self.b
        while place < base:
            total = total + (x // place + u // place) % self.digit * place
            place *= self.digit
        return total

    @cached_property
    def elements(self) -> Row:
        """All elements, by number."""
        import numpy

        return numpy.arange(self.order)

    @cached_property
    def inverses(self) -> Row:
        """By element, its inverse."""
        import numpy

        x, back = self.elements // self.b, -self.elements % self.b
        minus, place = numpy.zeros_like(x), 1
        while place < self.order // self.b:
            minus += -(x // place) % self.digit * place
            place *= self.digit
        found: Row = self.images[back, minus] * self.b + back
        return found

    def graph(self, generators: Sequence[int]) -> Graph:
        """The Cayley graph: g leads to g * s for every generator s; multiplying from the left is a symmetry."""
        import numpy

        numbers = "x".join(map(str, generators))
        recipe = self.recipe[:-1] + f",generators={numbers})"
        group = self.recipe.replace("cayley", "Z").replace("affine", "V")
        heads = numpy.stack([self.product(self.elements, s) for s in generators], axis=1).tolist()
        moves = tuple(tuple(self.product(s, self.elements).tolist()) for s in dict.fromkeys(generators))
        return Graph(f"Cay({group}; {numbers})", recipe, tuple(map(tuple, heads)), moves)


def cyclic(a: int, k: int, b: int) -> Group:
    """Z_a x|_k Z_b: (x, y) * (u, v) = (x + k^y u, y + v).

    Raises:
        InputError: k to the power b is not 1 modulo a.
    """
    if a < 1 or b < 1 or gcd(a, k) != 1 or pow(k, b, a) != 1 % a:
        raise InputError(f"cayley: a={a}, k={k}, b={b}; expected k^b = 1 (mod a)")
    check_scale("cayley", a * b, 1)
    import numpy

    images = numpy.array([pow(k, y, a) for y in range(b)])[:, None] * numpy.arange(a) % a
    return Group(a * b, b, a, images, f"cayley(a={a},k={k},b={b})")


def linear(p: int, m: int, b: int, matrix: Sequence[int]) -> Group:
    """Z_p^m x| Z_b by an m x m matrix, row after row; vectors are numbered in base p, first entry least.

    Raises:
        InputError: the matrix to the power b is not one.
    """
    if p < 2 or m < 1 or b < 1 or len(matrix) != m * m:
        raise InputError(f"affine: p={p}, m={m}, b={b} with {len(matrix)} entries; expected {m * m}")
    check_scale("affine", p**m * b, 1)
    import numpy

    places = p ** numpy.arange(m)
    vectors = numpy.arange(p**m)[:, None] // places % p
    step = vectors @ numpy.array(matrix).reshape(m, m).T % p @ places
    images = [numpy.arange(p**m)]
    for _ in range(b):
        images.append(step[images[-1]])
    if not numpy.array_equal(images[b], images[0]):
        raise InputError(f"affine: the matrix to the power {b} is not one (mod {p}); expected it to be")
    entries = "x".join(map(str, matrix))
    return Group(p**m * b, b, p, numpy.array(images[:b]), f"affine(p={p},m={m},b={b},matrix={entries})")


def cayley(a: int, k: int, b: int, generators: tuple[int, ...]) -> Graph:
    """Cayley graph of Z_a x|_k Z_b; generator (x, y) is written x * b + y.

    Exists: k^b = 1 (mod a), generators that generate. T_L, T_B: computed at one vertex.
    Source: own search; every design shipped is checked again by a test.
    """
    return _checked(cyclic(a, k, b), generators)


def affine(p: int, m: int, b: int, matrix: tuple[int, ...], generators: tuple[int, ...]) -> Graph:
    """Cayley graph of Z_p^m x| Z_b, Z_b acting by a matrix; generator (x, y) is written x * b + y.

    Exists: matrix^b = 1 (mod p), generators that generate. T_L, T_B: computed at one vertex.
    Source: own search; every design shipped is checked again by a test.
    """
    return _checked(linear(p, m, b, matrix), generators)


def _checked(group: Group, generators: Sequence[int]) -> Graph:
    for s in generators:
        if not 0 < s < group.order:
            raise InputError(f"generator {s}; expected 1 to {group.order - 1}")
    if not generators:
        raise InputError("no generators; expected one or more")
    return group.graph(generators)
