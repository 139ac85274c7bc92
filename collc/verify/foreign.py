"""Reports on files that are no schedule of sends and receives: MSCCL++ plans and tuner tables."""

from __future__ import annotations

from dataclasses import replace

from collc.ir.topology import Topology
from collc.runtimes import plans, tuners, with_limits
from collc.verify import mscclpp, nccl_tuner
from collc.verify.contents import held_against
from collc.verify.fit import Fit
from collc.verify.report import FileReport, Request, Served


def examine_plan(raw: bytes, path: str, request: Request) -> FileReport:
    """An MSCCL++ execution plan, read by the rules of a version; the newest where none is named."""
    name = request.runtime or "mscclpp"
    runtime = with_limits(plans.load(name), request.limits)
    plan, findings = mscclpp.examine(raw, runtime, nbytes=request.sizes)
    report = FileReport(
        path,
        "mscclpp-plan",
        findings,
        runtime=name,
        guessed=request.runtime is None,
        limits=request.limits,
        source=raw,
    )
    if plan is None:
        return report
    report = replace(
        report,
        collective=plan.collective,
        ranks=plan.n_ranks,
        in_place=plan.inplace,
        out_of_place=not plan.inplace,
        min_bytes=plan.min_bytes,
        max_bytes=plan.max_bytes,
        grain=plan.grain,
        protocol=plan.protocol,
        served=tuple(Served(nbytes, plan.why_not_served(nbytes)) for nbytes in request.sizes),
    )

    def on_fabric(topology: Topology) -> Fit:
        return Fit(mscclpp.fits(plan, topology))

    return held_against(report, request, on_fabric)


def examine_table(raw: bytes, path: str, request: Request) -> FileReport:
    """A tuner table, read by the rules of a dialect; NVIDIA's where none is named."""
    name = request.runtime or "tuner"
    dialect = with_limits(tuners.load(name), request.limits)
    return FileReport(
        path,
        "tuner-csv",
        nccl_tuner.examine(raw, dialect)[1],
        runtime=name,
        guessed=request.runtime is None,
        limits=request.limits,
        source=raw,
    )
