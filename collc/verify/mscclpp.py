"""MSCCL++ execution plans: whether a version loads the plan, and whether what it names is there.

Written from the loader. What the operations do together (signals, races, data) is not judged here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from collc.ir.topology import Topology
from collc.runtimes.plans import PlanRuntime
from collc.verify.findings import Finding
from collc.verify.json_text import Entry, JsonError, loads
from collc.verify.mscclpp_gpu import Gpu, Wire, check_threadblocks, read_tables
from collc.verify.mscclpp_reader import PlanReader
from collc.verify.nics import doors
from collc.verify.rules import Collector

MAX_BYTES = 64 << 20
_NO_LIMIT = 2**64 - 1
_MAX_TRANSPORTS = 8  # NICs that ranks are numbered to


@dataclass(frozen=True)
class Plan:
    """A plan as a version reads it.

    Attributes:
        collective: collc's name, or the plan's own where collc has none.
        min_bytes, max_bytes: message sizes it serves, both inclusive; None: no upper limit.
        grain: served sizes are multiples of it [bytes].
        wires: channels between two ranks.
    """

    name: str
    collective: str | None
    n_ranks: int
    protocol: str
    inplace: bool
    min_bytes: int
    max_bytes: int | None
    grain: int
    wires: tuple[Wire, ...]

    def why_not_served(self, nbytes: int) -> str | None:
        """None if a call of that message size [bytes, as nccl-tests counts] is served; otherwise why not."""
        if nbytes < max(self.min_bytes, 1):
            return f"below min_message_size {self.min_bytes}"
        if self.max_bytes is not None and nbytes > self.max_bytes:
            return f"above the largest size served, {self.max_bytes}"
        return f"no multiple of {self.grain} bytes, which aligned chunks make up" if nbytes % self.grain else None


def examine(
    text: bytes, runtime: PlanRuntime, *, nbytes: Iterable[int] = ()
) -> tuple[Plan | None, tuple[Finding, ...]]:
    """A plan by the rules of a version, and what is wrong with it; no plan where it cannot be read at all.

    Args:
        nbytes: message sizes [bytes] to ask for; those not served are reported.
    """
    found = Collector()
    plan = _read(text, PlanReader(runtime, found))
    for size in nbytes if plan else ():
        reason = plan.why_not_served(size) if plan else None
        if reason:
            found.add("size-not-served", f"{size} bytes are not served: {reason}", place=(1, 1))
    return plan, found.findings()


def _read(text: bytes, reader: PlanReader) -> Plan | None:
    if len(text) > MAX_BYTES:
        reader.found.add("plan-syntax", f"the file has {len(text)} bytes; expected at most {MAX_BYTES}", place=(1, 1))
        return None
    try:
        top = loads(text)
    except JsonError as error:
        reader.found.add("plan-syntax", error.message, place=error.place)
        return None
    if not isinstance(top, Entry):
        reader.found.add("plan-syntax", "the file is not one JSON object", place=(1, 1))
        return None
    name, spelt = reader.text(top, "name"), reader.text(top, "collective")
    protocol = reader.word(top, "protocol", reader.runtime.protocols)
    inplace = reader.flag(top, "inplace")
    for key in ("reuse_resources", "use_double_scratch_buffer"):
        reader.flag(top, key, False)
    reader.number(top, "num_threads_per_block", 1024, least=1)
    entries = reader.entries(top, "gpus")
    gpus = [read_tables(reader, entry, rank, len(entries)) for rank, entry in enumerate(entries)]
    if not gpus:
        reader.tell("plan-value", "gpus is empty; expected an entry for each rank", top)
    for gpu in gpus:
        check_threadblocks(reader, gpu, gpus)
    named = {spelling: collective for collective, spelling in reader.runtime.collectives.items()}
    collective = named.get(spelt or "", spelt)
    grain = _check_chunks(reader, collective, gpus, top)
    low, high = _check_sizes(reader, top, grain)
    wires = tuple(wire for gpu in gpus for wire in gpu.wires)
    return Plan(name or "", collective, len(gpus), protocol or "Simple", bool(inplace), low, high, grain, wires)


def _check_chunks(reader: PlanReader, collective: str | None, gpus: list[Gpu], top: Entry) -> int:
    """The bytes that message sizes must be multiples of."""
    n_ranks = len(gpus)
    # How many times a rank's input, or its output, the message is.
    n_in = n_ranks if collective == "allgather" else 1
    n_out = n_ranks if collective == "reduce_scatter" else 1
    alignment = reader.number(top, "buffer_alignment", 16, least=1) or 16
    grain = 1
    for gpu in gpus:
        inputs, outputs = gpu.chunks["i"], gpu.chunks["o"]
        if (not inputs and not outputs) or (reader.runtime.zero_chunks_crash and not (inputs and outputs)):
            message = (
                f"rank {gpu.rank} has input_chunks {inputs} and output_chunks {outputs}; expected 1 or more of each"
            )
            reader.tell("plan-zero-chunks", message, gpu.entry)
        elif inputs and outputs and collective in reader.runtime.collectives and inputs * n_in != outputs * n_out:
            message = (
                f"rank {gpu.rank} has {inputs} input chunks and {outputs} output chunks; in {collective} "
                f"on {n_ranks} ranks these are of different size"
            )
            reader.tell("plan-chunk-counts", message, gpu.entry)
        if reader.runtime.checks_alignment and inputs and outputs and max(inputs, outputs) <= 2**32:
            grain = min(math.lcm(grain, alignment * inputs * n_in, alignment * outputs * n_out), 2**64)
    return grain


def _check_sizes(reader: PlanReader, top: Entry, grain: int) -> tuple[int, int | None]:
    """The message sizes served, both inclusive."""
    runtime = reader.runtime
    low = reader.number(top, "min_message_size", 0) or 0
    limit = reader.number(top, "max_message_size", _NO_LIMIT)
    limit = _NO_LIMIT if limit is None else limit
    high = None if limit == _NO_LIMIT else limit - 1 if runtime.max_bytes_is_exclusive else limit
    first = -(-max(low, 1) // grain) * grain
    if high is not None and first > high:
        message = f"no size from {low} to {high} bytes is a multiple of {grain} bytes, which aligned chunks make up"
        reader.tell("plan-byte-range", message, top)
    elif high is None or high // grain * grain > runtime.max_offset:
        end = "there is no max_message_size" if high is None else f"max_message_size is {limit}"
        message = f"{end}; offsets reach {runtime.max_offset} bytes"
        reader.tell("plan-offset-wraps", message, top)
    return low, high


def fits(plan: Plan, topology: Topology) -> tuple[Finding, ...]:
    """What does not fit a fabric: numbers of ranks, memory channels between hosts, NICs."""
    found = Collector()
    if plan.n_ranks != topology.n_ranks:
        found.add("topology-ranks", f"made for {plan.n_ranks} ranks; topology '{topology.name}' has {topology.n_ranks}")
        return found.findings()
    host_of = topology.host_of
    for wire in plan.wires:
        if wire.kind == "memory" and host_of.get(wire.peer, host_of[wire.rank]) != host_of[wire.rank]:
            message = (
                f"a memory channel joins rank {wire.rank} of host {host_of[wire.rank]} and rank {wire.peer} of host "
                f"{host_of[wire.peer]}"
            )
            found.add("plan-memory-across-hosts", message, place=wire.place)
    port = next((wire for wire in plan.wires if wire.kind == "port"), None)
    if port:
        for host, (ranks, nics) in enumerate(zip(topology.hosts, doors(topology), strict=True)):
            there = min(len(nics), _MAX_TRANSPORTS) if len(topology.hosts) > 1 else _MAX_TRANSPORTS
            if len(ranks) > there:
                message = f"host {host} has {len(ranks)} ranks and {there} NICs; rank {ranks[there]} takes NIC {there}"
                found.add("plan-nic-index", message, place=port.place)
    return found.findings()
