"""What `collc synth` reports, as data: the keys are the contract's."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from math import lcm
from typing import Any

from collc import cost, registry
from collc.choose import Candidate
from collc.ir.collective import Problem
from collc.ir.flow import Bound, Cut, Forest, Orbit
from collc.pipeline import File, Outcome
from collc.request import Request


def report(request: Request, outcome: Outcome, topology: str) -> dict[str, Any]:
    """The report of `collc synth --json`, but for what only the command knows (paths, cache, total).

    Args:
        topology: as the user named it.
    """
    flow, problem = outcome.best.flow, request.problem
    bound = flow.bound
    least = cost.height_bound(flow)
    return {
        "topology": topology,
        "ranks": problem.topology.n_ranks,
        "collective": problem.collective.name,
        "synthesizer": outcome.best.synthesizer,
        "options": dict(outcome.best.options),
        "size_bytes": problem.nbytes,
        "guarantee": "optimal" if flow.is_optimal or not flow.time else "bounded" if bound else "heuristic",
        **_bandwidth(outcome.best, problem),
        "bound_algbw_GBps": float(bound.algbw) if bound else None,
        "bound_exact": str(bound.algbw) if bound else None,
        "witness": witness(problem, bound) if bound else None,
        "steps": max((f.compiled.schedule.n_steps for f in outcome.files if f.compiled.schedule), default=None),
        "in_network": flow.in_network,
        "trees": len(flow.trees),
        "trees_per_rank": _trees_per_rank(outcome.best),
        "max_height": cost.max_height(flow.trees),
        "height_at_least": least.hops if least else None,
        "height_because": least.why if least else None,
        **_details(outcome.best),
        "passed_over": dict(outcome.passed_over),
        "seconds": dict(outcome.seconds),
        "files": [_file(file, request.target.backend) for file in outcome.files] if request.target else [],
        "checked": _checked(outcome),
        "warnings": list(outcome.warnings),
    }


def _details(best: Candidate) -> dict[str, Any]:
    """What the synthesizer has to say beside its flow, under the key that it gives."""
    synthesizer = registry.load("synth", best.synthesizer, **best.options)
    return synthesizer.details(best.flow.problem) if hasattr(synthesizer, "details") else {}


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
    limit = cost.algbw(best.flow.time)
    predicted = cost.predict(best.flow, problem.nbytes) if problem.nbytes is not None else None
    shown = Fraction(problem.nbytes, 1000) / predicted if predicted and problem.nbytes is not None else limit
    return {
        "algbw_GBps": float(shown) if shown is not None else None,
        "busbw_GBps": float(cost.busbw(problem.collective, shown)) if shown is not None else None,
        "algbw_exact": str(limit) if limit is not None else None,
        "predicted_time_us": float(predicted) if predicted is not None else None,
    }


def _trees_per_rank(best: Candidate) -> int | None:
    """The k of k trees per rank, where every share is a multiple of 1/k."""
    problem = best.flow.problem
    if not best.flow.trees:
        return None
    trees = best.flow.trees
    if isinstance(trees, Forest | Orbit):
        least = trees.lowest_denominator
    else:
        least = lcm(*(tree.weight.denominator for tree in trees))
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
    levels = ["flow"]
    if any(file.compiled.program for file in outcome.files):
        levels += ["schedule", "program"]
    return [*levels, "file"] if outcome.files else levels
