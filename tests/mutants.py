"""Programs with faults: edits by hand and at random, and a judge that holds verdicts against runs."""

from __future__ import annotations

import random
from dataclasses import replace

from handmade import i, o, s
from interpreter import run

from collc.ir.program import Op, Program
from collc.verify.program import examine
from collc.verify.rules import RULES


def changed(program: Program, rank: int, number: int, **fields) -> Program:
    """The program with one threadblock changed."""
    gpu = program.gpus[rank]
    blocks = list(gpu.threadblocks)
    blocks[number] = replace(blocks[number], **fields)
    gpus = list(program.gpus)
    gpus[rank] = replace(gpu, threadblocks=tuple(blocks))
    return replace(program, gpus=tuple(gpus))


def edited(program: Program, rank: int, number: int, edit) -> Program:
    """The program with the instruction list of one threadblock changed."""
    instructions = list(program.gpus[rank].threadblocks[number].instructions)
    edit(instructions)
    return changed(program, rank, number, instructions=tuple(instructions))


def with_step(program: Program, rank: int, number: int, step: int, **fields) -> Program:
    """The program with one instruction changed."""

    def edit(instructions):
        instructions[step] = replace(instructions[step], **fields)

    return edited(program, rank, number, edit)


def widened(program: Program, factor: int) -> Program:
    """The same program with each slot cut into so many, which it moves together."""

    def wide(slot):
        return slot and replace(slot, offset=slot.offset * factor)

    gpus = tuple(
        replace(
            gpu,
            scratch_chunks=gpu.scratch_chunks * factor,
            threadblocks=tuple(
                replace(
                    block,
                    instructions=tuple(
                        replace(step, src=wide(step.src), dst=wide(step.dst), count=step.count * factor)
                        for step in block.instructions
                    ),
                )
                for block in gpu.threadblocks
            ),
        )
        for gpu in program.gpus
    )
    return replace(program, collective=program.collective.refined(factor), gpus=gpus)


def in_transfers(program: Program, width: int) -> Program:
    """The same program with instructions of at most `width` chunks each, as large messages run it."""
    gpus = []
    for gpu in program.gpus:
        last = []  # threadblock -> instruction -> the last of its parts
        for threadblock in gpu.threadblocks:
            parts = [max(1, -(-item.count // width)) for item in threadblock.instructions]
            last.append([sum(parts[: at + 1]) - 1 for at in range(len(parts))])
        blocks = []
        for threadblock in gpu.threadblocks:
            steps = []
            for item in threadblock.instructions:
                waits = tuple((block, last[block][step]) for block, step in item.after)
                steps += [
                    replace(
                        item,
                        src=item.src and replace(item.src, offset=item.src.offset + start),
                        dst=item.dst and replace(item.dst, offset=item.dst.offset + start),
                        count=min(width, item.count - start),
                        after=() if start else waits,
                    )
                    for start in range(0, max(1, item.count), width)
                ]
            blocks.append(replace(threadblock, instructions=tuple(steps)))
        gpus.append(replace(gpu, threadblocks=tuple(blocks)))
    return replace(program, gpus=tuple(gpus))


_NOT_ABOUT_RESULTS = {
    "race",
    "uninitialized-read",
    "input-overwritten",
    "self-overlap",
    "no-output-buffer",
    "fifo-depth-large",
}


def mutate(original: Program, chance: random.Random) -> Program:
    """The program with one or two random small faults."""
    mutant = original
    for _ in range(chance.choice((1, 1, 2))):
        busy = [
            (gpu.rank, number)
            for gpu in mutant.gpus
            for number, threadblock in enumerate(gpu.threadblocks)
            if threadblock.instructions
        ]
        mutant = chance.choice(_MUTATIONS)(mutant, *chance.choice(busy), chance)
    return mutant


def _drop(program, rank, number, chance):
    return edited(program, rank, number, lambda steps: steps.pop(chance.randrange(len(steps))))


def _repeat(program, rank, number, chance):
    def edit(steps):
        place = chance.randrange(len(steps))
        steps.insert(chance.randrange(len(steps) + 1), steps[place])

    return edited(program, rank, number, edit)


def _swap(program, rank, number, chance):
    def edit(steps):
        one, other = chance.randrange(len(steps)), chance.randrange(len(steps))
        steps[one], steps[other] = steps[other], steps[one]

    return edited(program, rank, number, edit)


def _shift(program, rank, number, chance):
    step = chance.randrange(len(program.gpus[rank].threadblocks[number].instructions))
    item = program.gpus[rank].threadblocks[number].instructions[step]
    side = chance.choice([side for side in ("src", "dst") if getattr(item, side)] or ["count"])
    if side == "count":
        return program
    slot = getattr(item, side)
    moved = replace(slot, offset=slot.offset + chance.choice((-1, 1)))
    if chance.random() < 0.2:
        moved = replace(slot, buffer=chance.choice((o(0), i(0), s(0))).buffer)
    return with_step(program, rank, number, step, **{side: moved})


def _unwait(program, rank, number, chance):
    step = chance.randrange(len(program.gpus[rank].threadblocks[number].instructions))
    waiting = [at for at, item in enumerate(program.gpus[rank].threadblocks[number].instructions) if item.after]
    return with_step(program, rank, number, chance.choice(waiting or [step]), after=())


def _wait(program, rank, number, chance):
    blocks = program.gpus[rank].threadblocks
    step = chance.randrange(len(blocks[number].instructions))
    other = chance.randrange(len(blocks))
    after = ((other, chance.randrange(1 + len(blocks[other].instructions))),)
    return with_step(program, rank, number, step, after=after)


def _retype(program, rank, number, chance):
    step = chance.randrange(len(program.gpus[rank].threadblocks[number].instructions))
    item = program.gpus[rank].threadblocks[number].instructions[step]
    like = [op for op in Op if (op.sends, op.receives) == (item.op.sends, item.op.receives)]
    return with_step(program, rank, number, step, op=chance.choice(like), src=item.src or o(0), dst=item.dst or o(0))


def _move(program, rank, number, chance):
    """An instruction to another threadblock of the same rank, which keeps sends and receives apart."""
    blocks = program.gpus[rank].threadblocks
    other = chance.randrange(len(blocks))
    step = chance.randrange(len(blocks[number].instructions))
    item = blocks[number].instructions[step]
    without = edited(program, rank, number, lambda steps: steps.pop(step))
    length = len(without.gpus[rank].threadblocks[other].instructions)
    return edited(without, rank, other, lambda steps: steps.insert(chance.randrange(length + 1), item))


_MUTATIONS = (_drop, _repeat, _swap, _swap, _shift, _shift, _unwait, _unwait, _wait, _retype, _move)


def judge(mutant: Program, n_orders: int) -> str:
    """Compare the checker's verdict with what the interpreter does; the kind of verdict."""
    report = examine(mutant)
    found = {finding.rule for finding in report.findings}
    if any(RULES[rule].severity == "error" for rule in found) and report.fifo_depth_needed is None:
        if "deadlock" in found:
            assert run(mutant, 0, 10**6).hung
        return "refused"
    depth = report.fifo_depth_needed
    outcomes = [run(mutant, seed, depth) for seed in range(n_orders)]
    assert not any(outcome.hung for outcome in outcomes)
    if depth > 1:
        assert run(mutant, 0, depth - 1).hung
    if not any(RULES[rule].severity == "error" for rule in found):
        assert all(outcome.is_right for outcome in outcomes)
        return "harmless"
    if not found & _NOT_ABOUT_RESULTS:
        assert not any(outcome.is_right for outcome in outcomes)
    return "wrong"
