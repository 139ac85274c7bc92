"""What `collc synth` reports, as data: the keys are the contract's."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any

from collc import cost, registry
from collc.choose import Candidate
from collc.ir.collective import Problem
from collc.ir.flow import Bound, Cut, FlowSchedule, Forest, Orbit, Tree
from collc.ir.schedule import Schedule
from collc.pipeline import File, Outcome
from collc.request import Request

# Trees per rank that are worth telling; shares of blocks of any length have no common denominator to speak of.
_MOST_TREES = 2**62


def report(request: Request, outcome: Outcome, topology: str) -> dict[str, Any]:
    """The report of `collc synth --json`, but for what only the command knows (paths, cache, total).

    Args:
        topology: as the user named it.
    """
    made, problem = outcome.best.made, request.problem
    bound = made.bound
    trees = made.trees if isinstance(made, FlowSchedule) else None
    least = cost.height_bound(made) if isinstance(made, FlowSchedule) else None
    return {
        "topology": topology,
        "ranks": problem.topology.n_ranks,
        "collective": problem.collective.name,
        "synthesizer": outcome.best.synthesizer,
        "options": dict(outcome.best.options),
        "size_bytes": problem.nbytes,
        "guarantee": "optimal" if made.is_optimal or not made.time else "bounded" if bound else "heuristic",
        **_bandwidth(outcome.best, problem),
        "bound_algbw_GBps": float(bound.algbw) if bound else None,
        "bound_exact": str(bound.algbw) if bound else None,
        "witness": witness(problem, bound) if bound else None,
        "steps": _steps(outcome),
        "in_network": isinstance(made, FlowSchedule) and made.in_network,
        "trees": len(trees) if trees is not None else None,
        "trees_per_rank": _trees_per_rank(problem, trees) if trees else None,
        "max_height": cost.max_height(trees) if trees is not None else None,
        "height_at_least": least.hops if least else None,
        "height_because": least.why if least else None,
        **_details(outcome.best),
        "passed_over": dict(outcome.passed_over),
        "seconds": dict(outcome.seconds),
        "files": [_file(file, request.target.backend) for file in outcome.files] if request.target else [],
        "checked": _checked(outcome),
        "warnings": list(outcome.warnings),
    }


def _steps(outcome: Outcome) -> int | None:
    """Of the schedule itself, where it is one of steps; else the most in a file."""
    if isinstance(outcome.best.made, Schedule):
        return outcome.best.made.n_steps
    return max((file.compiled.schedule.n_steps for file in outcome.files if file.compiled.schedule), default=None)


def _details(best: Candidate) -> dict[str, Any]:
    """What the synthesizer has to say beside its schedule, under the key that it gives."""
    synthesizer = registry.load("synth", best.synthesizer, **best.options)
    return synthesizer.details(best.problem) if hasattr(synthesizer, "details") else {}


def witness(problem: Problem, bound: Bound) -> dict[str, Any]:
    """What proves a bound, so that a reader can add it up again."""
    topology, proof = problem.topology, bound.witness
    if isinstance(proof, Cut):
        inside = set(proof.inside)
        leaving = [link for link in topology.links if link.src in inside and link.dst not in inside]
        return {
            "kind": "cut",
            "gpus_inside": [gpu for gpu in topology.gpus if gpu in inside],
            "switches_inside": [switch for switch in topology.switches if switch in inside],
            "links_leaving": [[link.src, link.dst, float(link.bandwidth)] for link in leaving],
            "ratio_exact": str(bound.time),
        }
    prices = [[src, dst, str(price)] for src, dst, price in proof.price]
    over = "schedules of trees" if proof.rooted else "all schedules"
    return {"kind": "prices", "price_per_byte": prices, "ratio_exact": str(bound.time), "over": over}


def _bandwidth(best: Candidate, problem: Problem) -> dict[str, Any]:
    """At the asked size, or in the large-message limit; nulls where nothing moves (one rank)."""
    limit = cost.algbw(best.made.time)
    predicted = cost.predict(best.made, problem.nbytes) if problem.nbytes is not None else None
    shown = Fraction(problem.nbytes, 1000) / predicted if predicted and problem.nbytes is not None else limit
    return {
        "algbw_GBps": float(shown) if shown is not None else None,
        "busbw_GBps": float(cost.busbw(problem.collective, shown)) if shown is not None else None,
        "algbw_exact": str(limit) if limit is not None else None,
        "predicted_time_us": float(predicted) if predicted is not None else None,
    }


def _trees_per_rank(problem: Problem, trees: Sequence[Tree]) -> int | None:
    """The k of k trees per rank, where every share is a multiple of 1/k, if anybody can read it."""
    if isinstance(trees, Forest | Orbit):
        least = trees.lowest_denominator
    else:
        least = 1
        for denominator in {tree.weight.denominator for tree in trees}:
            if (least := lcm(least, denominator)) > _MOST_TREES:
                return None
    # With one chunk for all roots, a root's block is its part of that chunk.
    blocks = len({tree.root for tree in trees}) if len(problem.collective.chunks) == 1 else 1
    return least // blocks if least % blocks == 0 else None


def _file(file: File, backend: str) -> dict[str, Any]:
    compiled = file.compiled
    entry: dict[str, Any] = {
        "path": file.name,
        "sha256": hashlib.sha256(file.text.encode()).hexdigest(),
        "backend": backend,
        "synthesizer": file.candidate.synthesizer,
        "options": dict(file.candidate.options),
        "min_bytes": compiled.min_bytes,
        "max_bytes": compiled.max_bytes,
        "in_place": compiled.inplace,
        "out_of_place": compiled.outofplace,
        "channels": None,
        "threadblocks_max": None,
        "steps_max": None,
    }
    if compiled.program is None or compiled.schedule is None:
        return entry
    program = compiled.program
    blocks = [tb for gpu in program.gpus for tb in gpu.threadblocks]
    steps = (sum(max(1, len(one.after)) for one in tb.instructions) for tb in blocks)
    algbw = cost.algbw(compiled.schedule.time)
    return entry | {
        "in_place": file.report.in_place,
        "out_of_place": file.report.out_of_place,
        "channels": program.n_channels,
        "threadblocks_max": max(len(gpu.threadblocks) for gpu in program.gpus),
        "steps_max": max(steps, default=0),
        "fifo_depth_needed": file.report.fifo_depth_needed,
        "algbw_GBps": float(algbw) if algbw is not None else None,
        "algbw_exact": str(algbw) if algbw is not None else None,
        # The count is the call's: elements per rank block, or of the whole buffer.
        "serves_counts_that_are_multiples_of": program.collective.chunk_factor,
    }


def _checked(outcome: Outcome) -> list[str]:
    levels = ["flow"] if isinstance(outcome.best.made, FlowSchedule) else ["schedule"]
    if any(file.compiled.program for file in outcome.files):
        levels = [*dict.fromkeys([*levels, "schedule"]), "program"]
    return [*levels, "file"] if outcome.files else levels
