"""The report of `collc synth` for eyes."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any


def lines(shown: dict[str, Any]) -> Iterator[str]:
    """The report for eyes."""
    what = f"{shown['collective']} on {shown['topology']}, {shown['ranks']} ranks"
    yield f"{what}: {shown['synthesizer']}, {shown['guarantee']}"
    if shown["algbw_exact"] is None:
        yield "  nothing moves between ranks"
    else:
        yield f"  reached  {_rate(shown['algbw_exact'])} algbw for large messages"
    if shown["bound_exact"] is not None:
        yield f"  bound    {_rate(shown['bound_exact'])}, proven by {_proof(shown['witness'])}"
    if "healthy" in shown:
        before = shown["healthy"]
        yield f"  healthy  {_rate(before['bound_exact'])} on {before['topology']}; {before['kept']:.1%} of that is left"
    if shown["predicted_time_us"] is not None:
        time = f"{shown['predicted_time_us']:.4g} us predicted"
        yield f"  at {shown['size_bytes']} bytes  {time}, {shown['algbw_GBps'] or 0:.4g} GB/s algbw"
    if "plan" in shown:
        yield from _plan_lines(shown["plan"])
    parts = f"{shown['trees']} trees, {_hops(shown)}" if shown["trees"] is not None else f"{shown['steps']} steps"
    yield f"  {parts}" + ("; from the cache" if shown["cached"] else "")
    alike: dict[str, list[str]] = {}
    for name, why in sorted(shown["passed_over"].items()):
        alike.setdefault(why, []).append(name)
    for why, names in alike.items():
        yield f"  not {', '.join(names)}: {why}"
    for entry in shown["files"]:
        yield from _file_lines(entry)
    yield f"  checked: {', '.join(shown['checked'])}"


def _hops(shown: dict[str, Any]) -> str:
    most, least = shown["max_height"], shown["height_at_least"]
    if least is None:
        return f"{most} hops at most"
    why = shown["height_because"]
    return f"{most} hops at most{', as few as can be' if most == least else f'; {least} or more'}: {why}"


def _file_lines(entry: dict[str, Any]) -> Iterator[str]:
    yield f"  file  {entry['path']}"
    if entry["channels"] is None:
        return
    calls = [
        word for word, serves in (("in place", entry["in_place"]), ("out of place", entry["out_of_place"])) if serves
    ]
    top = "up" if entry["max_bytes"] is None else f"to {entry['max_bytes']}"
    if entry["algbw_exact"] is not None:
        yield f"    {_rate(entry['algbw_exact'])}; {' and '.join(calls)}; {entry['min_bytes']} bytes {top}"
    yield f"    serves counts that are multiples of {entry['serves_counts_that_are_multiples_of']}"
    blocks, steps = entry["threadblocks_max"], entry["steps_max"]
    yield f"    {entry['channels']} channels, at most {blocks} threadblocks a rank and {steps} steps a threadblock"


def _plan_lines(plan: dict[str, Any]) -> Iterator[str]:
    """An all-to-all plan: its time, what that consists of, and how others would do."""
    parts = plan["predicted_us"]
    stages = f"{plan['stages']} stages, {plan['stage_order']}" if plan["method"] == "staged" else "all sent directly"
    yield f"  plan     {parts['total']:.4g} us predicted in {stages}"
    told = ("balance", "wire", "exposed", "latency")
    yield "    " + " + ".join(f"{name} {parts[name]:.4g}" for name in told) + " us"
    if plan["over_bound"] is not None:
        yield f"    {plan['over_bound']:.4g} times the bound of {plan['bound_us']:.4g} us: {plan['bound_by']['words']}"
    others = ", ".join(f"{name} {time:.4g} us" for name, time in plan["comparison_us"].items())
    yield f"    otherwise: {others}"


def _proof(proof: dict[str, Any]) -> str:
    if proof["kind"] == "prices":
        over = "" if proof["over"] == "all schedules" else f", for {proof['over']}"
        return f"prices on {len(proof['price_per_byte'])} links{over}"
    gpus, links = proof["gpus_inside"], proof["links_leaving"]
    return f"the cut of {len(gpus)} GPUs with {sum(link[2] for link in links):.6g} GB/s leaving"


def _rate(exact: str) -> str:
    """`2400/7 = 342.857 GB/s`, or the number alone where it is whole."""
    value = Fraction(exact)
    return f"{exact} GB/s" if value.denominator == 1 else f"{exact} = {float(value):.6g} GB/s"
