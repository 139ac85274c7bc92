"""Exact arithmetic over named values, as topology files write it: `hosts // 2`, `25/3`, `(i + 1) % n`.

The text is parsed by Python's own grammar and then only a short list of forms is taken; nothing is
ever evaluated by Python.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache

from collc.errors import nearest
from collc.units import parse_number

Value = int | Fraction | tuple[int, ...]
Environment = Mapping[str, Value]
Formula = Callable[[Environment], Value]
Number = int | Fraction

MAX_LENGTH = 200  # characters; bounds the work and the size of any result
_MAX_BITS = 4096  # of a number; far beyond any bandwidth or count


def _divide(left: Number, right: Number) -> Number:
    return whole_or_fraction(Fraction(left) / right)


def _power(left: Number, right: Number) -> Number:
    if right != int(right) or not 0 <= right <= 64:
        raise ValueError("takes a power that is no whole number from 0 to 64")
    return whole_or_fraction(left ** int(right))


_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Value, Value], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
FUNCTIONS = ("len", "max", "min", "product")


def whole_or_fraction(value: Number) -> Number:
    """The same number, as an `int` where it is whole."""
    return int(value) if value.denominator == 1 else value


@lru_cache(maxsize=4096)
def parse(text: str) -> Formula:
    """What a text computes.

    Raises:
        ValueError: not such an expression; the caller knows the place.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"{len(text)} characters; at most {MAX_LENGTH} are read")
    try:
        number = whole_or_fraction(parse_number(text))
    except ValueError:
        pass
    else:
        return lambda environment: number
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's advice on texts such as `1if`, which are refused anyway
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError("no number and no arithmetic") from None
    return _Compiler(text.strip()).formula(tree.body)


class _Compiler:
    def __init__(self, text: str) -> None:
        self.text = text

    def formula(self, tree: ast.expr) -> Formula:
        match tree:
            case ast.Constant():
                return self._constant(tree)
            case ast.Name(id=name):
                return lambda environment: _look_up(name, environment)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _binary(_OPERATORS[type(op)], self.formula(left), self.formula(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.formula(operand)
                return lambda environment: -_number(inner(environment))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.formula(operand)
                return lambda environment: int(not inner(environment))
            case ast.BoolOp(op=op, values=values):
                test = all if isinstance(op, ast.And) else any
                parts = [self.formula(value) for value in values]
                return lambda environment: int(test(part(environment) for part in parts))
            case ast.Compare():
                return self._comparison(tree)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
                return _call(name, [self.formula(argument) for argument in arguments])
            case ast.Subscript(value=value, slice=index):
                return _pick(self.formula(value), self.formula(index))
        raise ValueError(f"'{ast.get_source_segment(self.text, tree)}' is not simple arithmetic")

    def _constant(self, tree: ast.Constant) -> Formula:
        # Python would round 0.1; the text is exact.
        number = whole_or_fraction(parse_number(ast.get_source_segment(self.text, tree) or ""))
        return lambda environment: number

    def _comparison(self, tree: ast.Compare) -> Formula:
        for op in tree.ops:
            if type(op) not in _COMPARISONS:
                raise ValueError("compares in a way that is not known; expected ==, !=, <, <=, > or >=")
        parts = [self.formula(part) for part in (tree.left, *tree.comparators)]
        tests = [_COMPARISONS[type(op)] for op in tree.ops]

        def compare(environment: Environment) -> Value:
            values = [_number(part(environment)) for part in parts]
            return int(all(test(a, b) for test, a, b in zip(tests, values, values[1:], strict=False)))

        return compare


def _number(value: Value) -> Number:
    if isinstance(value, tuple):
        raise ValueError(f"the list {list(value)} stands where a number is expected")
    return value


def _look_up(name: str, environment: Environment) -> Value:
    try:
        return environment[name]
    except KeyError:
        known = list(environment)
        ending = nearest(name, known) if known else "; the file declares no parameters"
        raise ValueError(f"there is no parameter '{name}'{ending}") from None


def _binary(apply: Callable[[Number, Number], Number], left: Formula, right: Formula) -> Formula:
    def compute(environment: Environment) -> Value:
        try:
            value = apply(_number(left(environment)), _number(right(environment)))
        except ZeroDivisionError:
            raise ValueError("divides by zero") from None
        if max(abs(value.numerator), value.denominator).bit_length() > _MAX_BITS:
            raise ValueError("is larger than any number that makes sense here")
        return value

    return compute


def _call(name: str, arguments: list[Formula]) -> Formula:
    def compute(environment: Environment) -> Value:
        values = [argument(environment) for argument in arguments]
        if len(values) == 1 and isinstance(values[0], tuple):
            values = list(values[0])
        if name == "len":
            return len(values)
        numbers = [_number(value) for value in values]
        if name == "product":
            return math.prod(numbers)
        if not numbers:
            raise ValueError(f"{name} of nothing")
        return max(numbers) if name == "max" else min(numbers)

    return compute


def _pick(sequence: Formula, index: Formula) -> Formula:
    def compute(environment: Environment) -> Value:
        values, position = sequence(environment), index(environment)
        if not isinstance(values, tuple):
            raise ValueError("has a [...] after something that is no list")
        if not isinstance(position, int) or not 0 <= position < len(values):
            raise ValueError(f"asks for entry {position} of a list of {len(values)}")
        return values[position]

    return compute
