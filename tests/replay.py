"""Replays a plan chunk by chunk, knowing nothing of how it was made: possession, and contributions."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from itertools import groupby

from collc.design.plan import Plan


def _steps(plan: Plan):
    """(step, [(source, chunk, tail, head, lane), ...]) in order."""
    for step, moves in groupby(sorted(plan.moves), key=lambda move: move.step):
        yield (
            step,
            [
                (move.source, chunk, *plan.lanes.lanes[move.lane][:2], move.lane)
                for move in moves
                for chunk in range(move.first, move.first + move.n_chunks)
            ],
        )


def allgather(plan: Plan, degree: int) -> tuple[int, Fraction]:
    """(T_L, T_B) of a plan that gives everyone everything, nothing twice, and sends only what is held."""
    n, n_chunks = plan.lanes.n, plan.n_chunks
    held = [{(vertex, chunk) for chunk in range(n_chunks)} for vertex in range(n)]
    total, steps = Fraction(0), []
    for step, crossings in _steps(plan):
        steps.append(step)
        arriving = []
        for source, chunk, tail, head, _ in crossings:
            assert tail != head
            assert (source, chunk) in held[tail], f"step {step}: {tail} sends what it has not"
            assert (source, chunk) not in held[head], f"step {step}: {head} has it"
            arriving.append((head, (source, chunk)))
        assert len(set(arriving)) == len(arriving)
        for head, piece in arriving:
            held[head].add(piece)
        total += Fraction(max(Counter(lane for *_, lane in crossings).values()), n_chunks)
    assert steps == list(range(len(steps))), "a step stands idle"
    assert all(len(pieces) == n * n_chunks for pieces in held)
    return len(steps), Fraction(degree, n) * total


def reduce_scatter(plan: Plan) -> None:
    """The plan turned round in time and direction adds every contribution once, at the right place."""
    n = plan.lanes.n
    held: list[dict] = [
        {(target, chunk): frozenset([vertex]) for target in range(n) for chunk in range(plan.n_chunks)}
        for vertex in range(n)
    ]
    for _, crossings in reversed(list(_steps(plan))):
        sent = [((target, chunk), tail, held[head].pop((target, chunk))) for target, chunk, tail, head, _ in crossings]
        for piece, tail, parts in sent:
            assert not held[tail][piece] & parts
            held[tail][piece] |= parts
    for vertex in range(n):
        for chunk in range(plan.n_chunks):
            assert held[vertex].pop((vertex, chunk)) == frozenset(range(n))
        assert not held[vertex]


def brute_force_loads(heads) -> list[Fraction]:
    """U_t of the eager broadcast by the definition: all sets of ports, plain Python."""
    n = len(heads)
    into = defaultdict(list)
    for u, row in enumerate(heads):
        for v in row:
            into[v].append(u)
    far = [_distances(heads, source) for source in range(n)]
    loads: dict[int, Fraction] = defaultdict(Fraction)
    for u in range(n):
        for bits in range(1, 1 << len(into[u])):
            inside = {w for port, w in enumerate(into[u]) if bits >> port & 1}
            for step in range(1, n):
                count = sum(
                    far[v][u] == step and {w for w in into[u] if far[v][w] == step - 1} <= inside for v in range(n)
                )
                if count:
                    members = sum(w in inside for w in into[u])
                    loads[step] = max(loads[step], Fraction(count, members))
    return [loads[step] for step in sorted(loads)]


def _distances(heads, source: int) -> list[int]:
    far = {source: 0}
    waiting = [source]
    for vertex in waiting:
        for head in heads[vertex]:
            if head not in far:
                far[head] = far[vertex] + 1
                waiting.append(head)
    return [far[vertex] for vertex in range(len(heads))]
