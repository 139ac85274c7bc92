"""The schedules that expansions make of their base's schedule, chunk by chunk.

Source: arXiv:2202.03356, expansion techniques.
"""

from __future__ import annotations

from itertools import product as tuples

from collc.design.graph import Graph
from collc.design.plan import Move, Plan, dealt, lanes_of


def line_plan(graph: Graph, plan: Plan, expanded: Graph) -> Plan:
    """The line graph's schedule: first everyone's own shard goes to its successors; then what the base
    sends of w's shard over a link is sent of the shard of every link that ends in w.
    """
    d = graph.degree
    ending: list[list[int]] = [[] for _ in range(graph.n)]
    for u, row in enumerate(graph.heads):
        for port, v in enumerate(row):
            ending[v].append(u * d + port)
    owned = expanded.heads
    moves = [
        Move(0, link, 0, plan.n_chunks, link * d + port)
        for link in range(expanded.n)
        for port in range(d)
        if owned[link][port] != link
    ]
    for move in plan.moves:
        for source in ending[move.source]:
            moves += [
                Move(move.step + 1, source, move.first, move.n_chunks, move.lane * d + port)
                for port in range(d)
                if owned[move.lane][port] != source
            ]
    return Plan(lanes_of(expanded), plan.n_chunks, tuple(moves))


def degree_plan(graph: Graph, plan: Plan, expanded: Graph) -> Plan:
    """The degree expansion's schedule: copy j of a source runs the base's through the j-th copies, which
    serve all copies; in one step more the copies of a vertex fetch each other's shards, over all ports.
    """
    copies, d = expanded.degree // graph.degree, graph.degree
    fine = plan.n_chunks * (copies * d)
    moves = []
    for move in plan.moves:
        u, port = divmod(move.lane, d)
        for j, b in tuples(range(copies), repeat=2):
            lane = ((u * copies + j) * d + port) * copies + b
            moves.append(
                Move(move.step, move.source * copies + j, move.first * copies * d, move.n_chunks * copies * d, lane)
            )
    into: list[list[int]] = [[] for _ in range(expanded.n)]
    for u, row in enumerate(expanded.heads):
        for port, v in enumerate(row):
            into[v].append(u * expanded.degree + port)
    last = len(plan.loads)
    for vertex in range(expanded.n):
        others = [vertex - vertex % copies + a for a in range(copies) if a != vertex % copies]
        share = len(others) * fine // expanded.degree
        moves += dealt(last, others, [(lane, share) for lane in into[vertex]], fine)
    return Plan(lanes_of(expanded), fine, tuple(moves))


def power_plan(graph: Graph, plan: Plan, expanded: Graph, exponent: int) -> Plan:
    """The power's schedule: part i of every shard takes the dimensions in the order i, i + 1, ...

    So all dimensions are busy all the time; in phase s, part i runs the base's schedule in dimension
    i + s with everything that it has gathered in the dimensions before.
    """
    n, d, n_steps = graph.n, graph.degree, len(plan.loads)
    places = [n ** (exponent - 1 - axis) for axis in range(exponent)]
    moves = []
    for phase, part in tuples(range(exponent), repeat=2):
        axis = (part + phase) % exponent
        done = [(part + earlier) % exponent for earlier in range(phase)]
        rest = [other for other in range(exponent) if other != axis and other not in done]
        for move in plan.moves:
            u, port = divmod(move.lane, d)
            step, first = phase * n_steps + move.step, part * plan.n_chunks + move.first
            for kept in tuples(range(n), repeat=len(rest)):
                fixed = sum(letter * places[other] for letter, other in zip(kept, rest, strict=True))
                around = [
                    sum(letter * places[other] for letter, other in zip(word, done, strict=True))
                    for word in tuples(range(n), repeat=len(done))
                ]
                for here, there in tuples(around, repeat=2):
                    tail = fixed + here + u * places[axis]
                    source = fixed + there + move.source * places[axis]
                    moves.append(Move(step, source, first, move.n_chunks, tail * expanded.degree + axis * d + port))
    return Plan(lanes_of(expanded), exponent * plan.n_chunks, tuple(sorted(moves)))


def duplex_plan(graph: Graph, forth: Plan, back: Plan, expanded: Graph) -> Plan:
    """Half of every shard by the graph's own plan, half by the reversed graph's, at the same time."""
    d = graph.degree
    moves: list[Move] = []
    # Both halves get equally many chunks: each plan's are cut as fine as the other's.
    for plan, finer, offset in ((forth, back.n_chunks, 0), (back, forth.n_chunks, 1)):
        for move in plan.moves:
            u, port = divmod(move.lane, d)
            first = move.first * finer + offset * forth.n_chunks * back.n_chunks
            moves.append(Move(move.step, move.source, first, move.n_chunks * finer, u * 2 * d + offset * d + port))
    return Plan(lanes_of(expanded), 2 * forth.n_chunks * back.n_chunks, tuple(sorted(moves)))
