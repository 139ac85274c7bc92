"""The road from a problem to a program, taken pass by pass, and an independent look at what comes out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import fabrics

from collc import registry, runtimes, verify
from collc.errors import UnsupportedError
from collc.ir.collective import COLLECTIVES, Collective, Problem, alltoallv, make_collective
from collc.ir.flow import FlowSchedule
from collc.ir.program import Buffer, Program, Threadblock
from collc.ir.topology import Topology
from collc.passes.fuse import Fuse
from collc.passes.lower_flow import LowerFlow
from collc.passes.lower_schedule import LowerSchedule
from collc.passes.round_weights import RoundWeights
from collc.runtimes import Runtime

SYNTHESIZERS = registry.names("synth")
RUNTIMES = runtimes.names()


def random_fabric(seed: int) -> Topology:
    """A random spanning tree of 2 to 5 GPUs, some more cables and perhaps a switch; odd bandwidths."""
    chance = random.Random(seed)
    n = chance.randint(2, 5)
    pairs = [(rank, chance.randrange(rank)) for rank in range(1, n)]
    pairs += [tuple(chance.sample(range(n), 2)) for _ in range(chance.randint(0, 3))]
    links = [link for a, b in pairs for link in fabrics.both(f"g{a}", f"g{b}", chance.choice((1, 2, 3, 5)))]
    switches = []
    if chance.random() < 0.4:
        switches = ["s0"]
        for rank in chance.sample(range(n), chance.randint(2, n)):
            links += fabrics.both(f"g{rank}", "s0", chance.choice((1, 2)))
    return fabrics.fabric(f"random{seed}", n, links, switches)


def random_collective(name: str, n_ranks: int, seed: int) -> Collective:
    """The collective, with a random root or demand where it takes one."""
    chance = random.Random(seed)
    if name == "alltoallv":
        demand = [[chance.choice((0, 1, 2, 3)) for _ in range(n_ranks)] for _ in range(n_ranks)]
        demand[0][n_ranks - 1] += 1
        return alltoallv(demand)
    rooted = name in ("broadcast", "reduce", "gather", "scatter")
    return make_collective(name, n_ranks, root=chance.randrange(n_ranks) if rooted else None)


def flow_of(topology: Topology, collective: Collective, synthesizer: str, **options: object) -> FlowSchedule | None:
    """The flow that a synthesizer makes of it; None where it does not serve it, or makes steps."""
    problem = Problem(topology, collective)
    method = registry.load("synth", synthesizer, **options)
    if method.supports(problem):
        return None
    try:
        flow = method.run(problem)
    except UnsupportedError:
        return None
    return verify.check(flow) if isinstance(flow, FlowSchedule) else None


def flows(topology: Topology, *names: str, seed: int = 0) -> Iterator[FlowSchedule]:
    """Every synthesizer on every collective (or those named) that it serves."""
    for name in names or (*COLLECTIVES, "alltoallv"):
        for synthesizer in SYNTHESIZERS:
            flow = flow_of(topology, random_collective(name, topology.n_ranks, seed), synthesizer)
            if flow is not None:
                yield flow


def lower(
    flow: FlowSchedule,
    runtime: Runtime,
    *,
    chunks: object = "pow2",
    loss: Fraction = Fraction(1, 4),
    instances: int = 1,
    inplace: bool = False,
    protocol: str = "Simple",
    fuse: bool = True,
) -> Program:
    """Every pass in its order, each result checked."""
    if inplace:
        problem = flow.problem
        called = Problem(problem.topology, problem.collective.called_inplace(), problem.nbytes)
        flow = FlowSchedule(called, flow.trees, flow.time, flow.bound, flow.notes)
    rounded = verify.check(RoundWeights(chunks, loss).run(flow))  # type: ignore[arg-type]
    schedule = verify.check(LowerFlow(instances).run(rounded))
    program = verify.check(LowerSchedule(runtime, protocol).run(schedule))
    return verify.check(Fuse(runtime).run(program)) if fuse else program


# --- what a runtime would hold against a program ----------------------------------------------------


def n_steps(threadblock: Threadblock) -> int:
    """Steps in a file: each wait after the first needs one of its own."""
    return sum(max(1, len(instruction.after)) for instruction in threadblock.instructions)


def over_limit(program: Program, runtime: Runtime) -> list[str]:
    """Every limit of the runtime that the program breaks."""
    broken = []
    if program.n_channels > runtime.max_channels:
        broken.append(f"{program.n_channels} channels")
    for gpu in program.gpus:
        blocks = gpu.threadblocks
        if len(blocks) > runtime.max_threadblocks:
            broken.append(f"{len(blocks)} threadblocks")
        senders = Counter(tb.channel for tb in blocks if tb.send_peer is not None)
        receivers = Counter(tb.channel for tb in blocks if tb.recv_peer is not None)
        if max([*senders.values(), *receivers.values()], default=0) > runtime.max_threadblocks_per_channel:
            broken.append("threadblocks of a channel")
        broken += [f"{n_steps(tb)} steps" for tb in blocks if n_steps(tb) > runtime.max_steps]
        if 1 + len(program.gpus) + len(blocks) + sum(map(n_steps, blocks)) > runtime.max_elements:
            broken.append("elements")
        for instruction in (one for tb in blocks for one in tb.instructions):
            if not 1 <= instruction.count <= runtime.max_count:
                broken.append(f"count {instruction.count}")
            if any(number > runtime.max_waited_threadblock for number, _ in instruction.after):
                broken.append(f"waits for {instruction.after}")
            offsets = [slot.offset + instruction.count - 1 for slot in (instruction.src, instruction.dst) if slot]
            if max(offsets, default=0) > runtime.max_offset:
                broken.append(f"offset {max(offsets)}")
    return broken


def crossed_connections(program: Program) -> list[str]:
    """Connections with two threadblocks at one end, or whose channel is not used both ways between two ranks."""
    faults = []
    channels: dict[tuple[int, int], set[int]] = {}
    for gpu in program.gpus:
        ends = Counter(
            (kind, peer, tb.channel)
            for tb in gpu.threadblocks
            for kind, peer in (("to", tb.send_peer), ("from", tb.recv_peer))
            if peer is not None
        )
        faults += [f"rank {gpu.rank}: {count} threadblocks {end}" for end, count in ends.items() if count > 1]
        for kind, peer, channel in ends:
            if kind == "to":
                channels.setdefault((gpu.rank, peer), set()).add(channel)
    for (src, dst), used in channels.items():
        back = channels.get((dst, src), set())
        fewer = min(used, back, key=len)
        if back and not fewer <= max(used, back, key=len):
            faults.append(f"ranks {src} and {dst}: channels {sorted(used)} one way, {sorted(back)} the other")
    return faults


def writes_input(program: Program) -> bool:
    """Whether some instruction's target is an input slot."""
    return any(
        one.op.writes_dst and one.dst is not None and one.dst.buffer is Buffer.INPUT
        for gpu in program.gpus
        for tb in gpu.threadblocks
        for one in tb.instructions
    )


def hangs(program: Program, depth: int) -> bool:
    """Whether it stops short when a transfer of `count` chunks is `count` transfers and a queue holds `depth`.

    Each threadblock is a process that does one chunk at a time; whether all end depends on no order.
    """
    queues: Counter[tuple[int | None, int | None, int]] = Counter()
    processes = {}
    finished: set[tuple[int, int, int]] = set()

    def process(rank: int, number: int, threadblock: Threadblock) -> Iterator[bool]:
        out = (rank, threadblock.send_peer, threadblock.channel)
        into = (threadblock.recv_peer, rank, threadblock.channel)
        for index, instruction in enumerate(threadblock.instructions):
            while any((rank, other, at) not in finished for other, at in instruction.after):
                yield False
            receives, sends = instruction.op.receives, instruction.op.sends
            for _ in range(instruction.count):
                # What passes data on needs its source full and its target free at once.
                while (receives and not queues[into]) or (sends and queues[out] >= depth):
                    yield False
                queues[into] -= receives
                queues[out] += sends
                yield True
            finished.add((rank, number, index))
            yield True

    for gpu in program.gpus:
        for number, threadblock in enumerate(gpu.threadblocks):
            processes[gpu.rank, number] = process(gpu.rank, number, threadblock)
    while processes:
        moved = False
        for key in list(processes):
            while step := next(processes[key], None):
                moved = True
            if step is None:
                del processes[key]
                moved = True
        if not moved:
            return True
    return False
