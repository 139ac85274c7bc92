"""Several groups of ranks that share the fabric at the same time: each link is split among them.

One linear program gives every group the same rate per slot, the highest there is where no GPU forwards
for another group; each group's trees are then packed into its part of the links.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from collc import cost
from collc.cost.rates import Part, Rates, best_rates
from collc.errors import UnsupportedError
from collc.ir.collective import Collective, Problem
from collc.ir.flow import Bound, FlowSchedule, Tree
from collc.ir.topology import Topology
from collc.synth.forestcoll.allreduce import pack_share
from collc.synth.forestcoll.ways import Way, overlay


@dataclass(frozen=True)
class _Job:
    """What one group does.

    Attributes:
        chunks: index in the table -> slots.
        copies, sums: whether its chunks go to all of the group, or come from all of it.
        roots: rank -> index of the chunk that only this rank has, or is only for it.
        rates: numbers of the rates of its roots; the common rate's where each root has its own chunk.
    """

    ranks: tuple[int, ...]
    chunks: Mapping[int, int]
    copies: bool
    sums: bool
    roots: Mapping[int, int]
    rates: range

    @property
    def shared(self) -> bool:
        """Whether every chunk may have any root."""
        return self.copies and self.sums


def refusal(collective: Collective) -> str | None:
    """Why the chunks of a group do not all spread over it, or all come from it; None where they do."""
    for ranks in collective.groups:
        members, n = set(ranks), len(ranks)
        shapes = collective.shapes
        if n < collective.n_ranks:
            chunks = [chunk for chunk in collective.chunks if chunk.precondition.ranks[0] in members]
            shapes = frozenset((len(chunk.precondition), len(chunk.postcondition)) for chunk in chunks)
        if n > 1 and shapes not in ({(1, n)}, {(n, 1)}, {(n, n)}):
            return f"forestcoll spreads or sums over all ranks of a group; {collective.name} does not"
    return None


def grouped(problem: Problem, limit: Bound) -> FlowSchedule:
    """Trees for all groups.

    Args:
        limit: the bound to carry, where prices do not prove a better one.

    Raises:
        UnsupportedError: no rates were found, or they need capacities beyond 64 bits.
    """
    topology = problem.topology
    jobs = _jobs(problem.collective)
    parts, n_rates, ties = _parts(topology, jobs)
    rates = best_rates(topology, parts, [1, *[0] * (n_rates - 1)], ties, range(1, n_rates))
    if rates is None or not rates.total:
        raise UnsupportedError("forestcoll: no exact split of the links among the groups was found")
    trees = tuple(tree for job in jobs for tree in _trees(topology, job, parts, rates))
    note = "rates by linear program, since switches take in and send out different sums"
    if len(jobs) > 1:
        note = f"{len(jobs)} groups at the same time, each with its part of every link"
    time = cost.bandwidth_time(problem, trees)
    proven = Bound(1 / (rates.total * problem.collective.size_chunks), rates.witness(topology))
    return FlowSchedule(problem, trees, time, max(limit, proven, key=lambda bound: bound.time), (note,))


def _jobs(collective: Collective) -> list[_Job]:
    jobs, next_rate = [], 1
    for ranks in collective.groups:
        members, n = set(ranks), len(ranks)
        table = {
            index: chunk for index, chunk in enumerate(collective.chunks) if chunk.precondition.ranks[0] in members
        }
        copies = all(len(chunk.postcondition) == n for chunk in table.values())
        sums = all(len(chunk.precondition) == n for chunk in table.values())
        shared = copies and sums
        ends = {
            i: chunk.precondition.ranks[0] if copies else chunk.postcondition.ranks[0] for i, chunk in table.items()
        }
        roots = {} if shared else {root: index for index, root in ends.items()}
        rates = range(next_rate, next_rate + n) if shared and n > 1 else range(1)
        next_rate += len(rates) if shared and n > 1 else 0
        counts = {index: chunk.count for index, chunk in table.items()}
        jobs.append(_Job(ranks, counts, copies, sums, roots, rates))
    return jobs


def _parts(topology: Topology, jobs: Sequence[_Job]) -> tuple[list[Part], int, list[list[tuple[int, int]]]]:
    """The parts of all jobs in order, sums before copies; how many rates there are; sums of rates that are zero."""
    parts: list[Part] = []
    ties = []
    n_rates = 1
    for job in jobs:
        if len(job.ranks) == 1:
            continue
        gpus = tuple(topology.gpus[rank] for rank in job.ranks)
        absent = frozenset(topology.gpus) - frozenset(gpus)
        if job.shared:
            roots = tuple((gpu, rate, 1) for gpu, rate in zip(gpus, job.rates, strict=True))
            ties.append([(1, rate) for rate in job.rates] + [(-sum(job.chunks.values()), 0)])
            n_rates += len(job.rates)
            parts += [Part(gpus, roots, True, absent), Part(gpus, roots, False, absent)]
        else:
            roots = tuple((topology.gpus[rank], 0, job.chunks[index]) for rank, index in job.roots.items())
            parts.append(Part(gpus, roots, job.sums, absent))
    return parts, n_rates, ties


def _trees(topology: Topology, job: _Job, parts: Sequence[Part], rates: Rates) -> list[Tree]:
    if len(job.ranks) == 1:
        return [Tree(index, Fraction(1), job.ranks[0]) for index in job.chunks]
    found = {
        part.inward: _ways(topology, job, part, share, rates)
        for part, share in zip(parts, rates.shares, strict=True)
        if part.spanned[0] == topology.gpus[job.ranks[0]]
    }
    if not job.shared:
        (ways,) = found.values()
        if job.sums:
            return [Tree(job.roots[way.root], way.share, way.root, reduce=way.routes) for way in ways]
        return [Tree(job.roots[way.root], way.share, way.root, broadcast=way.routes) for way in ways]
    rate_of = dict(zip(job.ranks, job.rates, strict=True))
    total = sum((rates.rates[rate] for rate in job.rates), Fraction(0))
    return [
        Tree(index, up.share * rates.rates[rate_of[up.root]] / total, up.root, up.routes, down.routes)
        for index in job.chunks
        for up, down in overlay(found[True], found[False])
    ]


def _ways(topology: Topology, job: _Job, part: Part, share: Sequence[Fraction], rates: Rates) -> list[Way]:
    """Ways of one part, by the ranks of the whole fabric."""
    vertex_rates = {vertex: weight * rates.rates[rate] for vertex, rate, weight in part.roots}
    ways = pack_share(topology, part, share, vertex_rates)
    return [
        Way(
            job.ranks[way.root],
            way.share,
            tuple(replace(route, src=job.ranks[route.src], dst=job.ranks[route.dst]) for route in way.routes),
        )
        for way in ways
    ]
