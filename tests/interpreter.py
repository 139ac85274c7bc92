"""An interpreter of programs for tests: real numbers, finite queues, random legal orders.

It shares no code with the checkers: it knows only what the instructions mean. Each rank has one
stretch of memory per buffer (one for both where they overlap), filled with random numbers, so
that a wrong result is wrong with near certainty.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from collc.ir.collective import Collective
from collc.ir.program import Buffer, Instruction, Op, Program


@dataclass(frozen=True)
class Outcome:
    """How a run ended: `hung`, or with these complaints (none if all is right)."""

    hung: bool
    complaints: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        return not self.hung and not self.complaints


def run(program: Program, seed: int, depth: int | Mapping[tuple[int, int, int], int] = 1) -> Outcome:
    """One run in an order drawn from the seed.

    `depth` is that of all queues, or of each (from, to, channel).
    """
    machine = _Machine(program, random.Random(seed), depth)
    if not machine.run():
        return Outcome(True)
    return Outcome(False, tuple(machine.complaints()))


class _Machine:
    def __init__(self, program: Program, chance: random.Random, depth: int | Mapping) -> None:
        self.program = program
        self.chance = chance
        self.depth = depth
        self.memory = [_Memory(program.collective, gpu.rank, gpu.scratch_chunks, chance) for gpu in program.gpus]
        self.queues: dict[tuple[int, int, int], deque[np.ndarray]] = {}
        self.position = {(gpu.rank, block): 0 for gpu in program.gpus for block in range(len(gpu.threadblocks))}

    def run(self) -> bool:
        """Whether every threadblock came to its end."""
        # A threadblock runs on while its rank of priority is the highest; ranks change now and then, so
        # that some orders starve a threadblock for long and others mix them well.
        ready = list(self.position)
        self.chance.shuffle(ready)
        swaps = self.chance.choice((0.0, 0.05, 1.0))
        blocked: list[tuple[int, int]] = []
        while ready:
            pick = self.chance.randrange(len(ready)) if self.chance.random() < swaps else len(ready) - 1
            key = ready.pop(pick)
            if self.position[key] == len(self.program.gpus[key[0]].threadblocks[key[1]].instructions):
                continue
            if self.step(*key):
                # Anyone may have waited for this.
                ready += blocked
                blocked = []
                ready.insert(self.chance.randrange(len(ready) + 1) if swaps == 1.0 else len(ready), key)
            else:
                blocked.append(key)
        return not blocked

    def step(self, rank: int, block: int) -> bool:
        """Run the next instruction of a threadblock, if it can."""
        threadblock = self.program.gpus[rank].threadblocks[block]
        instruction = threadblock.instructions[self.position[rank, block]]
        if any(self.position[rank, other] <= index for other, index in instruction.after):
            return False
        source = self.queues.setdefault((threadblock.recv_peer, rank, threadblock.channel), deque())
        target = self.queues.setdefault((rank, threadblock.send_peer, threadblock.channel), deque())
        if instruction.op.receives and not source:
            return False
        key = (rank, threadblock.send_peer, threadblock.channel)
        depth = self.depth if isinstance(self.depth, int) else self.depth.get(key, 1)
        if instruction.op.sends and len(target) >= depth:
            return False
        received = source.popleft() if instruction.op.receives else None
        sent = self.compute(self.memory[rank], instruction, received)
        if instruction.op.sends:
            target.append(sent)
        self.position[rank, block] += 1
        return True

    def compute(self, memory: _Memory, instruction: Instruction, received: np.ndarray | None) -> np.ndarray:
        """Change memory as the instruction says; what it sends."""
        op, count = instruction.op, instruction.count
        if op is Op.NOP:
            return np.empty(0)
        if op in (Op.SEND, Op.COPY):
            result = memory.view(instruction.src, count).copy()
        elif op in (Op.RECV, Op.RECV_COPY_SEND):
            result = received
        elif op is Op.REDUCE:
            result = memory.view(instruction.dst, count) + memory.view(instruction.src, count)
        else:
            result = received + memory.view(instruction.src, count)
        if op not in (Op.SEND, Op.RECV_REDUCE_SEND):
            memory.view(instruction.dst, count)[:] = result
        return result

    def complaints(self):
        collective = self.program.collective
        for key, queue in self.queues.items():
            if queue:
                yield f"{len(queue)} items left from rank {key[0]} to rank {key[1]}"
        for number, chunk in enumerate(collective.chunks):
            for offset in range(chunk.count):
                wanted = sum(int(self.memory[rank].began[start + offset]) for rank, start in chunk.precondition.items())
                for rank, start in chunk.postcondition.items():
                    if self.memory[rank].output[start + offset] != wanted:
                        yield f"rank {rank} output[{start + offset}] of chunk {number}"
        for rank, memory in enumerate(self.memory):
            for slot in memory.constant_inputs:
                if memory.input[slot] != memory.began[slot]:
                    yield f"rank {rank} input[{slot}] changed"


class _Memory:
    def __init__(self, collective: Collective, rank: int, scratch_chunks: int, chance: random.Random) -> None:
        draw = np.random.default_rng(chance.getrandbits(64))

        def numbers(length):
            return draw.integers(-(2**40), 2**40, length)

        n_in, n_out, shift = collective.input_chunks, collective.output_chunks, collective.shift[rank]
        if collective.inplace:
            start = min(0, shift)
            both = numbers(max(n_out, shift + n_in) - start)
            self.output = both[-start : -start + n_out]
            self.input = both[shift - start : shift - start + n_in]
        else:
            self.output, self.input = numbers(n_out), numbers(n_in)
        self.scratch = numbers(scratch_chunks)
        self.began = self.input.copy()
        self.constant_inputs = [slot for slot in range(n_in) if not (collective.inplace and 0 <= slot + shift < n_out)]

    def view(self, slot, count) -> np.ndarray:
        buffer = {Buffer.INPUT: self.input, Buffer.OUTPUT: self.output, Buffer.SCRATCH: self.scratch}[slot.buffer]
        return buffer[slot.offset : slot.offset + count]
