"""Small programs written by hand, for tests of the checkers and of what stands after them."""

from __future__ import annotations

from collections.abc import Callable

from collc.ir.collective import make_collective
from collc.ir.program import Buffer, Gpu, Instruction, Op, Program, Slot, Threadblock


def i(offset: int) -> Slot:
    return Slot(Buffer.INPUT, offset)


def o(offset: int) -> Slot:
    return Slot(Buffer.OUTPUT, offset)


def s(offset: int) -> Slot:
    return Slot(Buffer.SCRATCH, offset)


def send(src: Slot, count: int = 1, after=()) -> Instruction:
    return Instruction(Op.SEND, src, None, count, after)


def recv(dst: Slot, count: int = 1, after=()) -> Instruction:
    return Instruction(Op.RECV, None, dst, count, after)


def copy(src: Slot, dst: Slot, count: int = 1, after=()) -> Instruction:
    return Instruction(Op.COPY, src, dst, count, after)


def reduce(src: Slot, dst: Slot, count: int = 1, after=()) -> Instruction:
    return Instruction(Op.REDUCE, src, dst, count, after)


def rcs(dst: Slot, after=()) -> Instruction:
    return Instruction(Op.RECV_COPY_SEND, None, dst, 1, after)


def rrs(src: Slot, after=()) -> Instruction:
    return Instruction(Op.RECV_REDUCE_SEND, src, None, 1, after)


def rrc(src: Slot, dst: Slot, after=()) -> Instruction:
    return Instruction(Op.RECV_REDUCE_COPY, src, dst, 1, after)


def rrcs(src: Slot, dst: Slot, after=()) -> Instruction:
    return Instruction(Op.RECV_REDUCE_COPY_SEND, src, dst, 1, after)


def block(send_peer: int | None, recv_peer: int | None, *instructions: Instruction, channel: int = 0) -> Threadblock:
    return Threadblock(send_peer, recv_peer, channel, instructions)


def program(collective, blocks: Callable[[int], list[Threadblock]], scratch: int = 0) -> Program:
    gpus = tuple(Gpu(rank, scratch, tuple(blocks(rank))) for rank in range(collective.n_ranks))
    return Program(collective, gpus)


def ring_allgather(n: int, *, fused: bool = True, inplace: bool = False) -> Program:
    def blocks(rank):
        steps = [copy(i(0), o(rank)), send(i(0))]
        for hop in range(1, n):
            slot = o((rank - hop) % n)
            if hop == n - 1:
                steps.append(recv(slot))
            elif fused:
                steps.append(rcs(slot))
            else:
                steps += [recv(slot), send(slot)]
        return [block((rank + 1) % n, (rank - 1) % n, *steps)]

    return program(make_collective("allgather", n, inplace=inplace), blocks)


def ring_reduce_scatter(n: int, *, inplace: bool = False) -> Program:
    def blocks(rank):
        steps = [send(i((rank - 1) % n))]
        steps += [rrs(i((rank - hop) % n)) for hop in range(2, n)]
        steps.append(rrc(i(rank), o(0)))
        return [block((rank + 1) % n, (rank - 1) % n, *steps)]

    return program(make_collective("reduce_scatter", n, inplace=inplace), blocks)


def ring_allreduce(n: int, *, inplace: bool = False) -> Program:
    def blocks(rank):
        steps = [send(i(rank))]
        steps += [rrs(i((rank - hop) % n)) for hop in range(1, n - 1)]
        done = (rank + 1) % n
        steps.append(rrcs(i(done), o(done)))
        steps += [rcs(o((rank - hop) % n)) for hop in range(n - 2)]
        steps.append(recv(o((rank - n + 2) % n)))
        return [block((rank + 1) % n, (rank - 1) % n, *steps)]

    return program(make_collective("allreduce", n, n, inplace=inplace), blocks)


def direct_allreduce(n: int, *, inplace: bool = False) -> Program:
    """Rank r adds up chunk r: it gathers in scratch, reduces in one threadblock and sends the sum on."""

    def blocks(rank):
        peers = [peer for peer in range(n) if peer != rank]
        adder = 2 * len(peers)
        adding = [copy(i(rank), o(rank))]
        adding += [reduce(s(index), o(rank), after=((len(peers) + index, 0),)) for index in range(len(peers))]
        sending = [block(peer, None, send(i(peer)), send(o(rank), after=((adder, len(peers)),))) for peer in peers]
        receiving = [
            # In place o(peer) is what was sent to the peer; that its sum is back says it has arrived.
            block(None, peer, recv(s(index)), recv(o(peer)))
            for index, peer in enumerate(peers)
        ]
        return [*sending, *receiving, block(None, None, *adding)]

    return program(make_collective("allreduce", n, n, inplace=inplace), blocks, scratch=n - 1)


def direct_alltoall(n: int, *, inplace: bool = False, split: bool = False) -> Program:
    """Each pair trades blocks; `split` receives in other threadblocks, which in place is a race."""

    def blocks(rank):
        peers = [peer for peer in range(n) if peer != rank]
        own = block(None, None, copy(i(rank), o(rank)))
        if not split:
            return [*(block(peer, peer, send(i(peer)), recv(o(peer))) for peer in peers), own]
        sending = [block(peer, None, send(i(peer))) for peer in peers]
        return [*sending, *(block(None, peer, recv(o(peer))) for peer in peers), own]

    return program(make_collective("alltoall", n, inplace=inplace), blocks)


def wide_exchange(n_slots: int, count: int) -> Program:
    """Two ranks gather blocks of `n_slots` chunks, `count` in each instruction."""

    def blocks(rank):
        starts = range(0, n_slots, count)
        steps = [send(i(start), count) for start in starts]
        steps += [recv(o((1 - rank) * n_slots + start), count) for start in starts]
        return [block(1 - rank, 1 - rank, copy(i(0), o(rank * n_slots), n_slots), *steps)]

    return program(make_collective("allgather", 2, n_slots), blocks)


def allpairs_allreduce(n: int, channels: int, count: int) -> Program:
    """Every rank sends each other its share at once, `count` chunks on each channel, and then the sums.

    Before anyone receives, a share is on its way on every connection: `count` places, or fewer where
    chunks share a transfer.
    """
    share = channels * count

    def blocks(rank):
        peers = [peer for peer in range(n) if peer != rank]
        made = []
        for channel in range(channels):
            at, first = channel * count, channel * len(peers)
            for index, peer in enumerate(peers):
                steps = [send(i(peer * share + at), count), recv(s(index * share + at), count)]
                mine = o(rank * share + at)
                if index == 0:
                    steps += [copy(i(rank * share + at), mine, count), reduce(s(at), mine, count)]
                    steps += [
                        reduce(s(other * share + at), mine, count, ((first + other, 1),))
                        for other in range(1, len(peers))
                    ]
                summed = () if index == 0 else ((first, 2 + len(peers)),)
                steps += [send(mine, count, summed), recv(o(peer * share + at), count)]
                made.append(block(peer, peer, *steps, channel=channel))
        return made

    return program(make_collective("allreduce", n, n * share), blocks, scratch=(n - 1) * share)


def chain_broadcast(n: int, root: int = 0, *, inplace: bool = False) -> Program:
    def blocks(rank):
        place = (rank - root) % n
        after, before = (rank + 1) % n, (rank - 1) % n
        if place == 0:
            return [block(after, None, copy(i(0), o(0)), send(i(0)))]
        return [block(after, before, rcs(o(0)))] if place < n - 1 else [block(None, before, recv(o(0)))]

    return program(make_collective("broadcast", n, root=root, inplace=inplace), blocks)


def chain_reduce(n: int, root: int = 0, *, inplace: bool = False) -> Program:
    def blocks(rank):
        place = (rank - root) % n
        after, before = (rank + 1) % n, (rank - 1) % n
        if place == 1:
            return [block(after, None, send(i(0)))]
        return [block(after, before, rrs(i(0)))] if place else [block(None, before, rrc(i(0), o(0)))]

    return program(make_collective("reduce", n, root=root, inplace=inplace), blocks)


def direct_gather(n: int, root: int = 0, *, inplace: bool = False) -> Program:
    def blocks(rank):
        if rank != root:
            return [block(root, None, send(i(0)))]
        others = [block(None, peer, recv(o(peer))) for peer in range(n) if peer != root]
        return [block(None, None, copy(i(0), o(root))), *others]

    return program(make_collective("gather", n, root=root, inplace=inplace), blocks)


def direct_scatter(n: int, root: int = 0, *, inplace: bool = False) -> Program:
    def blocks(rank):
        if rank != root:
            return [block(None, root, recv(o(0)))]
        others = [block(peer, None, send(i(peer))) for peer in range(n) if peer != root]
        return [block(None, None, copy(i(root), o(0))), *others]

    return program(make_collective("scatter", n, root=root, inplace=inplace), blocks)


def all_programs() -> dict[str, Program]:
    """Every shape above, right and by name."""
    found = {"wide_exchange": wide_exchange(4, 2), "direct_alltoall split": direct_alltoall(4, split=True)}
    for inplace in (False, True):
        end = " in place" if inplace else ""
        found[f"ring_allgather{end}"] = ring_allgather(4, inplace=inplace)
        found[f"ring_allgather unfused{end}"] = ring_allgather(4, fused=False, inplace=inplace)
        found[f"ring_reduce_scatter{end}"] = ring_reduce_scatter(4, inplace=inplace)
        found[f"ring_allreduce{end}"] = ring_allreduce(4, inplace=inplace)
        found[f"direct_alltoall{end}"] = direct_alltoall(4, inplace=inplace)
        found[f"direct_allreduce{end}"] = direct_allreduce(3, inplace=inplace)
        found[f"chain_broadcast{end}"] = chain_broadcast(4, 1, inplace=inplace)
        found[f"chain_reduce{end}"] = chain_reduce(4, 2, inplace=inplace)
        found[f"direct_gather{end}"] = direct_gather(4, 1, inplace=inplace)
        found[f"direct_scatter{end}"] = direct_scatter(4, 1, inplace=inplace)
    return found


# --- as MSCCL XML ---------------------------------------------------------------------------------

_TYPES = {
    Op.SEND: "s",
    Op.RECV: "r",
    Op.COPY: "cpy",
    Op.REDUCE: "re",
    Op.NOP: "nop",
    Op.RECV_COPY_SEND: "rcs",
    Op.RECV_REDUCE_SEND: "rrs",
    Op.RECV_REDUCE_COPY: "rrc",
    Op.RECV_REDUCE_COPY_SEND: "rrcs",
}


def to_xml(made: Program, **attributes: object) -> str:
    """A program whose instructions wait for one other at most, as an executor file; by hand, not by collc."""
    collective = made.collective
    counted = max(collective.input_chunks, collective.output_chunks)
    if collective.name in ("gather", "scatter"):
        counted //= collective.n_ranks
    values = {
        "name": "handmade",
        "proto": "Simple",
        "nchannels": made.n_channels,
        "nchunksperloop": counted,
        "ngpus": collective.n_ranks,
        "coll": collective.name.replace("reduce_scatter", "reducescatter"),
        "inplace": int(collective.inplace),
        "outofplace": int(not collective.inplace),
        "minBytes": 0,
        "maxBytes": 0,
        **attributes,
    }
    lines = [_tag("algo", values) + ">"]
    for gpu in made.gpus:
        chunks = {
            "i_chunks": collective.input_chunks,
            "o_chunks": collective.output_chunks,
            "s_chunks": gpu.scratch_chunks,
        }
        lines.append("  " + _tag("gpu", {"id": gpu.rank, **chunks}) + ">")
        awaited = {item for block in gpu.threadblocks for step in block.instructions for item in step.after}
        for number, block in enumerate(gpu.threadblocks):
            lines.append("    " + _tag("tb", _block_values(number, block)) + ">")
            lines += [
                "      " + _tag("step", _step_values(at, step, (number, at) in awaited)) + "/>"
                for at, step in enumerate(block.instructions)
            ]
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return "\n".join((*lines, "</algo>", ""))


def _tag(name: str, values: dict[str, object]) -> str:
    return f"<{name} " + " ".join(f'{key}="{value}"' for key, value in values.items() if value is not None)


def _block_values(number: int, block: Threadblock) -> dict[str, object]:
    peers = [-1 if peer is None else peer for peer in (block.send_peer, block.recv_peer)]
    return {"id": number, "send": peers[0], "recv": peers[1], "chan": block.channel}


def _step_values(at: int, step: Instruction, is_awaited: bool) -> dict[str, object]:
    src, dst = step.src or i(-1), step.dst or o(-1)
    (wanted,) = step.after or ((-1, -1),)
    return {
        "s": at,
        "type": _TYPES[step.op],
        "srcbuf": src.buffer.value[0],
        "srcoff": src.offset,
        "dstbuf": dst.buffer.value[0],
        "dstoff": dst.offset,
        "cnt": step.count,
        "depid": wanted[0],
        "deps": wanted[1],
        "hasdep": int(is_awaited),
    }
