"""Data races: two accesses of one place, at least one a write, that nothing puts in order.

What orders two instructions: their order in a threadblock, a wait, and a matched send before its
receive, on any rank in between. A full queue orders nothing, as queues may be deeper than thought.

A large message goes through the program slice by slice. Every slice has its own part of all buffers, of
scratch too, so one pass touches nothing of another's and a slot is not reused between them.

For each place it is enough to compare neighbours in one legal run: a read with the write before it,
a write with the write before it and the reads since. If all of these are ordered, so are all pairs.
Most are by the order of a threadblock or a wait; the rest are settled in sweeps over the graph that
carry, for each instruction, the set of first accesses that come before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collc.ir.program import Op
from collc.verify.graph import Graph, slot_name
from collc.verify.memory import Memory
from collc.verify.rules import Collector

_BATCH = 4096  # first accesses a sweep carries, one bit each

Pair = tuple[int, int]  # instruction numbers, in the order of the run


def check(graph: Graph, memory: Memory, order: Sequence[int], found: Collector) -> bool:
    """Report every pair of neighbouring accesses that nothing orders; whether there is one."""
    doubtful = _doubtful(graph, memory, order)
    racing = list(_unordered(graph, order, list(doubtful)))
    for first, second in racing:
        place = doubtful[first, second]
        rank, block, step = graph.where[second]
        _, other_block, other_step = graph.where[first]
        found.add(
            "race",
            f"{graph.name(first)} ({_access(graph, memory, first, place)}) and {graph.name(second)} "
            f"({_access(graph, memory, second, place)}) may run in either order; "
            f"threadblock {block} step {step} has to wait for threadblock {other_block} step {other_step}",
            (rank, block, step),
        )
    return bool(racing)


def _doubtful(graph: Graph, memory: Memory, order: Sequence[int]) -> dict[Pair, int]:
    """Neighbouring accesses that no threadblock and no direct wait orders, and a place of each."""
    doubtful: dict[Pair, int] = {}
    last_write: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    # Per threadblock: another one -> the latest of its instructions that was waited for.
    waited: list[dict[int, int]] = [{} for _ in graph.spans]
    serial, instructions, touched = graph.serial, graph.instructions, memory.touched
    for number in order:
        mine = serial[number]
        known = waited[mine]
        for target in graph.waits[number]:
            known[serial[target]] = max(target, known.get(serial[target], -1))
        source, target_places = touched[number]
        neighbours: list[tuple[int, int]] = []
        for reads in (source, target_places) if instructions[number].op.reads_dst else (source,):
            for place in reads:
                if place in last_write:
                    neighbours.append((last_write[place], place))
                readers.setdefault(place, []).append(number)
        for place in target_places:
            if place in readers:
                neighbours += [(reader, place) for reader in readers.pop(place)]
            if place in last_write:
                neighbours.append((last_write[place], place))
            last_write[place] = number
        for first, place in neighbours:
            other = serial[first]
            if other != mine and known.get(other, -1) < first:
                doubtful.setdefault((first, number), place)
    return doubtful


def _unordered(graph: Graph, order: Sequence[int], pairs: list[Pair]) -> Iterator[Pair]:
    """Those of the pairs whose second does not come after their first."""
    position = {number: index for index, number in enumerate(order)} if pairs else {}
    firsts = sorted({first for first, _ in pairs}, key=position.__getitem__)
    seconds: dict[int, list[int]] = {}
    for first, second in pairs:
        seconds.setdefault(first, []).append(second)
    predecessors = graph.predecessors() if pairs else []
    for start in range(0, len(firsts), _BATCH):
        batch = firsts[start : start + _BATCH]
        end = max(position[second] for first in batch for second in seconds[first])
        bit = {number: 1 << index for index, number in enumerate(batch)}
        before: dict[int, int] = {}
        for number in order[position[batch[0]] : end + 1]:
            total = bit.get(number, 0)
            for other in predecessors[number]:
                total |= before.get(other, 0)
            if total:
                before[number] = total
        for first in batch:
            for second in seconds[first]:
                if not before.get(second, 0) & bit[first]:
                    yield first, second


def _access(graph: Graph, memory: Memory, number: int, place: int) -> str:
    """What an instruction does to a place, such as `recv writes output[3]`."""
    instruction = graph.instructions[number]
    rank, op = graph.where[number][0], instruction.op
    is_target = place in memory.touched[number][1]
    slot = instruction.dst if is_target else instruction.src
    verb = "reads and writes" if op is Op.REDUCE and is_target else "writes" if is_target else "reads"
    return f"{op.value} {verb} {slot_name(memory.slot(rank, slot, place))}" if slot else op.value
