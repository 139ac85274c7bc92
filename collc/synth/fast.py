"""FAST: all-to-all(v) between hosts in stages without incast, spread over all network cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from collc import cost
from collc.fast import baselines
from collc.fast.plan import Plan
from collc.fast.problem import plan_problem, refusal, slot_bytes
from collc.ir.collective import Problem
from collc.ir.flow import FlowSchedule, Tree
from collc.ir.routes import all_routes
from collc.ir.topology import Route

_Way = tuple[int, ...]  # ranks from contributor to consumer


@dataclass(frozen=True)
class Fast:
    """All-to-all(v) on two-tier machines: hosts share all their cards, in stages of one sender a receiver.

    The flow says which share of each block takes which ranks on its way; the stages are in the plan
    that `-b plan` writes.

    Guarantee: within what hand-overs and latency add to the bound; on uniform and skewed traffic a few per cent.
    Supports: collectives of chunks from one rank to one, on hosts with a switch or a full mesh inside.
    Source: FAST (arXiv:2505.09764), from its description; Birkhoff, 1946.
    """

    def supports(self, problem: Problem) -> str | None:
        """None, or why the fabric or the collective is not of this kind."""
        return refusal(problem)

    def run(self, problem: Problem) -> FlowSchedule:
        """Ways over the ranks that hand over and pass on, with their shares."""
        plan = plan_problem(problem)
        limit = cost.bound(problem)
        trees = tuple(_trees(problem, plan))
        notes: tuple[str, ...] = ()
        if plan.method == "direct" and plan.machine.n_ranks > 1:
            notes = ("every block goes straight: for messages this small, stages would cost more than they save",)
        return FlowSchedule(problem, trees, cost.bandwidth_time(problem, trees), limit, notes)

    def details(self, problem: Problem) -> Mapping[str, Any]:
        """What the report says of the plan; nothing without a size in whole bytes."""
        if slot_bytes(problem) is None:
            return {}
        plan = plan_problem(problem)
        limit = plan.bound
        compared = baselines.comparisons(plan.matrix, plan.machine)
        told = {
            "method": plan.method,
            "stages": plan.n_stages,
            "stage_order": plan.order,
            "unit_bytes": plan.unit,
            "staging_bytes_max": max(int(one.max()) for one in plan.staging),
            "bound_us": float(limit.time),
            "bound_exact_us": str(limit.time),
            "bound_by": {
                "what": limit.what,
                "index": limit.index,
                "direction": limit.direction,
                "bytes": limit.nbytes,
                "words": str(limit),
            },
            "predicted_us": {**vars(plan.predicted), "total": plan.predicted.total},
            "over_bound": _ratio(plan.predicted.total, limit),
            "comparison_us": {name: other.total for name, other in compared.items()},
        }
        return {"plan": told}


def _ratio(time: float, limit: baselines.Limit) -> float | None:
    return time / float(limit.time) if limit.time else None


def _trees(problem: Problem, plan: Plan) -> Iterator[Tree]:
    """One tree for each chunk and way."""
    routes = all_routes(problem.topology)
    pieces = _pieces(plan)
    done: dict[tuple[int, int], int] = {}
    scale = slot_bytes(problem) or 1
    for index, chunk in enumerate(problem.collective.chunks):
        ends = chunk.precondition.ranks[0], chunk.postcondition.ranks[0]
        begin = done.get(ends, 0)
        done[ends] = begin + chunk.count * scale
        ways: dict[_Way, int] = {}
        for way, first, end in pieces.get(ends, [(ends, 0, done[ends])]):
            share = min(end, done[ends]) - max(first, begin)
            if share > 0:
                ways[way] = ways.get(way, 0) + share
        for way, share in ways.items():
            legs = _legs(way, routes)
            yield Tree(index, Fraction(share, chunk.count * scale), ends[0], broadcast=legs)


def _legs(way: _Way, routes: Sequence[Mapping[int, Route]]) -> tuple[Route, ...]:
    return tuple(routes[a][b] for a, b in pairwise(way) if a != b)


def _pieces(plan: Plan) -> dict[tuple[int, int], list[tuple[_Way, int, int]]]:
    """(contributor, consumer) -> the parts of what goes between hosts: way, begin and end [bytes]."""
    message = plan.message.tolist()
    src, dst = plan.src.tolist(), plan.dst.tolist()
    found: dict[tuple[int, int], list[tuple[_Way, int, int]]] = {}
    columns = (plan.origin, plan.final, plan.offset, plan.length)
    for m, origin, final, offset, length in zip(message, *(column.tolist() for column in columns), strict=True):
        way = (origin, src[m], dst[m], final)
        found.setdefault((origin, final), []).append((way, offset, offset + length))
    return found
