"""What every slot holds in the end: a run of the program on symbolic data.

A value says how many contributions of each rank to each chunk it adds up: chunk -> one number with a
16-bit digit per contributor. Adding two values is then one addition, and it stays exact: the top bit
of each digit is a guard, and a sum that reaches it is set aside as too large to be right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from collc.ir.collective import Chunk, Collective, Places
from collc.ir.program import Buffer, Instruction, Op, Slot
from collc.verify.graph import Graph, in_words, slot_name
from collc.verify.memory import Memory
from collc.verify.rules import Collector

Value = tuple[tuple[int, int], ...]  # sorted (family, digits); a family is the contributors of one chunk
Row = tuple[int, int, Chunk]  # chunk number, slot within it, chunk
_NOTHING: Value = ((-2, 0),)  # in a slot that nothing was written to
_UNKNOWN: Value = ()  # came out of a slot that held nothing; told once, where it was read
_DIGIT = 16
_GUARD = 1 << (_DIGIT - 1)
_TOO_MANY: Value = ((-1, 0),)
_JUDGED = 256  # wrong slots that are looked into; that takes a step per rank for each


class Contributions:
    """The input slots of a collective, as digits of the families they belong to.

    Attributes:
        rows: the slots of the table that are looked at, each for all that share its fate.
        members: family -> its contributors (rank, input slot); digit d stands for the d-th.
        guard: family -> the guard bits of all its digits.
    """

    def __init__(self, collective: Collective, memory: Memory) -> None:
        self.rows = [row for row in _slots(collective) if _is_looked_at(row, memory)]
        self._digit: dict[tuple[int, int], tuple[int, int]] = {}
        self.members: list[list[tuple[int, int]]] = []
        self._is_by_chunk = self._by_chunk()
        if not self._is_by_chunk:
            self._all_in_one()
        self.guard = [_GUARD * _each_once(len(slots)) for slots in self.members]

    def _by_chunk(self) -> bool:
        for _, offset, chunk in self.rows:
            slots = [(rank, start + offset) for rank, start in _items(chunk.precondition)]
            known = self._digit.get(slots[0])
            if known is None and not any(slot in self._digit for slot in slots):
                for digit, slot in enumerate(slots):
                    self._digit[slot] = (len(self.members), digit)
                self.members.append(slots)
            elif known is None or self.members[known[0]] != slots:
                return False
        return True

    def _all_in_one(self) -> None:
        # Chunks share some contributors but not all: one family keeps it exact, if slower.
        slots = sorted(
            {(rank, start + offset) for _, offset, chunk in self.rows for rank, start in _items(chunk.precondition)}
        )
        self._digit = {slot: (0, digit) for digit, slot in enumerate(slots)}
        self.members = [slots]

    def initial(self) -> Iterator[tuple[int, int, Value]]:
        """(rank, input slot, value) of all that is there before the program runs."""
        # Shared, as a high digit is a number of some hundred bytes.
        units = [1 << (_DIGIT * digit) for digit in range(max(map(len, self.members), default=0))]
        for (rank, slot), (family, digit) in self._digit.items():
            yield rank, slot, ((family, units[digit]),)

    def expected(self, chunk: Chunk, offset: int) -> Value:
        """The sum of one contribution from each contributor of a chunk."""
        slots = _items(chunk.precondition)
        if self._is_by_chunk:
            rank, start = next(slots)
            family, _ = self._digit[rank, start + offset]
            return ((family, _each_once(len(self.members[family]))),)
        return ((0, sum(1 << (_DIGIT * self._digit[rank, start + offset][1]) for rank, start in slots)),)

    def add(self, left: Value, right: Value) -> Value:
        """The sum of two values."""
        if not left or not right:
            return _UNKNOWN
        if len(left) == len(right) == 1 and left[0][0] == right[0][0] >= 0:
            family, total = left[0][0], left[0][1] + right[0][1]
            return _TOO_MANY if total & self.guard[family] else ((family, total),)
        sums = dict(left)
        for family, digits in right:
            sums[family] = sums.get(family, 0) + digits
        if any(family < 0 or total & self.guard[family] for family, total in sums.items()):
            return _TOO_MANY
        return tuple(sorted(sums.items()))

    def counts(self, value: Value) -> dict[tuple[int, int], int]:
        """Contributor -> how often the value holds it."""
        return {
            slot: count
            for family, digits in value
            if family >= 0
            for digit, slot in enumerate(self.members[family])
            if (count := (digits >> (_DIGIT * digit)) & (2 * _GUARD - 1))
        }


@lru_cache(maxsize=64)
def _each_once(n_digits: int) -> int:
    """A one in each of so many digits."""
    return sum([1 << (_DIGIT * digit) for digit in range(n_digits)])


def _items(places: Places) -> Iterator[tuple[int, int]]:
    if isinstance(places.offsets, int):
        return ((rank, offset) for rank in places.ranks for offset in (places.offsets,))
    return zip(places.ranks, places.offsets, strict=True)


def _is_looked_at(row: Row, memory: Memory) -> bool:
    """Whether a slot of the table is the first of those that always move together."""
    _, offset, chunk = row
    rank, start = next(_items(chunk.precondition))
    return memory.begins(Buffer.INPUT, rank, start + offset)


def _slots(collective: Collective) -> Iterator[Row]:
    """Every slot of the table."""
    for number, chunk in enumerate(collective.chunks):
        for offset in range(chunk.count):
            yield number, offset, chunk


def check(graph: Graph, memory: Memory, order: Sequence[int], found: Collector, *, inplace: bool) -> tuple[bool, bool]:
    """Run the program once and compare what it leaves with what the collective asks for.

    Returns:
        Whether all is well; and whether it then is in place as well, where this was a run out of place: an
        input whose memory an output has overwritten was not read again.
    """
    run = _Run(graph, memory, found, inplace)
    run.run(order)
    return not run.told, not run.reads_stale


class _Run:
    """A run on symbolic data.

    Attributes:
        told: whether anything was wrong.
        reads_stale: whether called in place an instruction could read something else.
    """

    def __init__(self, graph: Graph, memory: Memory, found: Collector, inplace: bool) -> None:
        self.told = False
        self.reads_stale = False
        self._graph = graph
        self._memory = memory
        self._found = found
        self._inplace = inplace
        self._collective = graph.program.collective
        self._contributions = Contributions(self._collective, memory)
        self._state: dict[int, Value] = {
            memory.place(Buffer.INPUT, rank, slot): value for rank, slot, value in self._contributions.initial()
        }
        self._started = dict(self._state)
        self._writer: dict[int, int] = {}
        self._changed: set[int] = set()  # outputs written with anything but what in place is there already
        self._in_flight: dict[int, list[Value]] = {}
        self._bare = _ranks_without_output(self._collective, memory)

    def run(self, order: Sequence[int]) -> None:
        instructions, touched = self._graph.instructions, self._memory.touched
        for number in order:
            source, target = touched[number]
            if source or target:
                self._step(number, instructions[number], source, target)
        self._check_outputs()
        self._check_inputs()

    def _step(self, number: int, instruction: Instruction, source: range, target: range) -> None:
        op, add = instruction.op, self._contributions.add
        self._check_access(number, instruction, source, target)
        values: list[Value] = []
        if op.receives:
            values = self._in_flight.pop(self._graph.feeder[number])
        if op.reads_src:
            read = self._read(number, source, instruction.src)
            values = list(map(add, values, read)) if op.receives else read
        if op.reads_dst:
            values = list(map(add, self._read(number, target, instruction.dst), values))
        if op.sends:
            self._in_flight[number] = values
        for place, value in zip(target, values, strict=False):
            self._state[place] = value
            self._writer[place] = number

    def _read(self, number: int, places: range, slot: Slot | None) -> list[Value]:
        state = self._state
        values = [state.get(place, _NOTHING) for place in places]
        if _NOTHING in values and slot:
            there = self._memory.slot(self._graph.where[number][0], slot, places[values.index(_NOTHING)])
            self._tell("uninitialized-read", number, f"reads {slot_name(there)}, which nothing has written")
            values = [_UNKNOWN if value == _NOTHING else value for value in values]
        return values

    def _check_access(self, number: int, instruction: Instruction, source: range, target: range) -> None:
        rank = self._graph.where[number][0]
        inputs, outputs = self._memory.inputs[rank], self._memory.outputs[rank]
        if not self._inplace:
            if target and target[0] in inputs and instruction.dst:
                self._tell(
                    "input-overwritten",
                    number,
                    f"writes {slot_name(instruction.dst)}; out of place the input must stay as it is",
                )
            self._follow_in_place(rank, instruction, source, target)
        if source and target and source != target and source[0] <= target[-1] and target[0] <= source[-1]:
            self._tell("self-overlap", number, "reads and writes ranges that overlap without being the same")
        if rank in self._bare and ((source and source[0] in outputs) or (target and target[0] in outputs)):
            self._tell(
                "no-output-buffer",
                number,
                f"uses the output buffer of a rank that has no output in {self._collective.name}; "
                "callers may pass no buffer there",
            )

    def _follow_in_place(self, rank: int, instruction: Instruction, source: range, target: range) -> None:
        """Note what would be different in place; the outputs' memory is that of inputs then."""
        if instruction.src and instruction.src.buffer is Buffer.INPUT and source:
            shared = self._memory.shared(rank, source)
            if not self._changed.isdisjoint(shared):
                self.reads_stale = True
            if shared == target and instruction.op is Op.COPY:
                return
            if target and shared != target and shared[0] <= target[-1] and target[0] <= shared[-1]:
                self.reads_stale = True
        if instruction.dst and instruction.dst.buffer is Buffer.OUTPUT:
            self._changed.update(target)

    def _tell(self, rule: str, number: int, text: str) -> None:
        self.told = True
        instruction = self._graph.instructions[number]
        self._found.add(rule, f"{self._graph.name(number)} ({instruction.op.value}) {text}", self._graph.where[number])

    def _check_outputs(self) -> None:
        judged = wrong = more = 0
        for chunk_number, offset, chunk in self._contributions.rows:
            expected = self._contributions.expected(chunk, offset)
            for rank, start in _items(chunk.postcondition):
                place = self._memory.place(Buffer.OUTPUT, rank, start + offset)
                value = self._state.get(place, _NOTHING)
                if value in (expected, _UNKNOWN):
                    continue
                width = self._memory.width(Buffer.OUTPUT, rank, start + offset)
                judged, wrong = judged + 1, wrong + width
                if judged > _JUDGED:
                    more += width
                    continue
                name = f"rank {rank} {_range('output', start + offset, width)} (chunk {chunk_number})"
                self._judge(value, expected, place, name)
        self.told = self.told or wrong > 0
        if more:
            self._found.add("wrong-result", f"{more} more output slots are wrong, {wrong} in all")

    def _judge(self, value: Value, expected: Value, place: int, name: str) -> None:
        """Say how a value differs from the expected one."""
        writer = self._writer.get(place)
        where = None if writer is None else self._graph.where[writer]
        last = "nothing writes it" if where is None else f"last written by {in_words(where)}"
        wanted = self._contributions.counts(expected)
        held = self._contributions.counts(value)
        if value == _TOO_MANY:
            self._found.add("double-contribution", f"{name} adds up thousands of contributions; {last}", where)
            return
        missing = [slot for slot in wanted if slot not in held]
        double = [slot for slot, count in held.items() if slot in wanted and count > 1]
        foreign = [slot for slot in held if slot not in wanted]
        for rule, slots, verb in (
            ("wrong-result", foreign, "holds what does not belong there,"),
            ("missing-contribution", missing, "lacks"),
            ("double-contribution", double, "adds more than once"),
        ):
            if slots:
                self._found.add(rule, f"{name} {verb} {self._list(slots)}; {last}", where)

    def _list(self, slots: Sequence[tuple[int, int]]) -> str:
        width = self._memory.width
        shown = ", ".join(
            f"rank {rank} {_range('input', slot, width(Buffer.INPUT, rank, slot))}" for rank, slot in slots[:4]
        )
        return shown if len(slots) <= 4 else f"{shown} and {len(slots) - 4} more"

    def _check_inputs(self) -> None:
        """In place, input slots that are no output slots must end as they began."""
        for rank, inputs in enumerate(self._memory.inputs if self._inplace else ()):
            for place in inputs:
                writer = self._writer.get(place)
                is_output = place in self._memory.outputs[rank]
                if writer is not None and not is_output and self._state.get(place) != self._started.get(place):
                    slot = self._memory.slot(rank, Slot(Buffer.INPUT, 0), place)
                    self._tell(
                        "input-overwritten",
                        writer,
                        f"leaves another value in rank {rank} {slot_name(slot)}, which is no output slot and must stay",
                    )


def _ranks_without_output(collective: Collective, memory: Memory) -> frozenset[int]:
    """Ranks where the collective leaves nothing, unless their output lies in their input."""
    served = {rank for chunk in collective.chunks for rank in chunk.postcondition}
    return frozenset(
        rank
        for rank in range(collective.n_ranks)
        if rank not in served
        and not (memory.outputs[rank] and memory.inputs[rank] and memory.outputs[rank][0] in memory.inputs[rank])
    )


def _range(buffer: str, offset: int, width: int) -> str:
    """Slots side by side in words, such as `output[3..5]`."""
    return f"{buffer}[{offset}..{offset + width - 1}]" if width > 1 else f"{buffer}[{offset}]"
