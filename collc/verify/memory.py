"""Which slots of a rank are one and the same memory, and which each instruction touches."""

from __future__ import annotations

from collections.abc import Sequence

from collc.ir.collective import Collective
from collc.ir.program import Buffer, Instruction, Program, Slot


class Memory:
    """The places in all ranks' memory, numbered through; slots that overlap in place share a number.

    Attributes:
        input, output, scratch: rank -> slot -> place.
    """

    def __init__(self, program: Program) -> None:
        collective = program.collective
        self.input: list[Sequence[int]] = []
        self.output: list[Sequence[int]] = []
        self.scratch: list[Sequence[int]] = []
        free = 0
        for gpu in program.gpus:
            inputs, outputs, free = _overlay(collective, gpu.rank, free)
            self.input.append(inputs)
            self.output.append(outputs)
            # A range, so that a scratch of a billion chunks costs nothing.
            self.scratch.append(range(free, free + gpu.scratch_chunks))
            free += gpu.scratch_chunks
        self._of = {Buffer.INPUT: self.input, Buffer.OUTPUT: self.output, Buffer.SCRATCH: self.scratch}

    def places(self, rank: int, slot: Slot | None, count: int) -> Sequence[int]:
        """The places of `count` slots from `slot` on."""
        if slot is None:
            return ()
        return self._of[slot.buffer][rank][slot.offset : slot.offset + count]

    def accesses(self, rank: int, instruction: Instruction) -> tuple[Sequence[int], Sequence[int]]:
        """The places an instruction reads and those it writes; a copy onto itself touches nothing."""
        op, count = instruction.op, instruction.count
        source = self.places(rank, instruction.src, count) if op.reads_src else ()
        target = self.places(rank, instruction.dst, count) if op.writes_dst else ()
        if not op.receives and not op.sends and not op.reads_dst and source == target:
            return (), ()
        return ([*source, *target] if op.reads_dst else source), target


def _overlay(collective: Collective, rank: int, free: int) -> tuple[Sequence[int], Sequence[int], int]:
    """Places of the input and the output slots of a rank from `free` on, and the next free place."""
    n_in, n_out, shift = collective.input_chunks, collective.output_chunks, collective.shift[rank]
    if not collective.inplace or shift >= n_out or shift + n_in <= 0:
        return range(free, free + n_in), range(free + n_in, free + n_in + n_out), free + n_in + n_out
    # Both lie in one stretch of memory, the input `shift` places behind the output.
    left, right = min(0, shift), max(n_out, shift + n_in)
    base = free - left
    return range(base + shift, base + shift + n_in), range(base, base + n_out), free + right - left
