"""One GPU of an MSCCL++ plan: its channels, buffers and threadblocks, and what each operation names.

The loader checks next to nothing here: ids index its tables as they are, and past their end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from collc.verify.json_text import Entry
from collc.verify.mscclpp_reader import PlanReader

_LETTERS = {"i": "input_chunks", "o": "output_chunks", "s": "scratch_chunks"}
# What an operation works on; the others need nothing but their name.
_MOVES = ("src_buff", "dst_buff")
_NEEDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("put", "pws", "pwsf", "get", "rre", "res", "rres"), (*_MOVES, "channel_type")),
    **dict.fromkeys(("ppkt", "rppkt", "respkt", "recspkt"), (*_MOVES, "channel_type")),
    **dict.fromkeys(("glres", "gstore", "gstorepkt"), (*_MOVES, "channel_type")),
    **dict.fromkeys(("copy", "re", "cpkt", "upkt", "repkt", "recpkt"), _MOVES),
    **dict.fromkeys(("signal", "wait", "rlxsignal", "rlxwait", "flush"), ("channel_ids", "channel_type")),
    **dict.fromkeys(("sem_acquire", "sem_release"), ("semaphore_ids",)),
    "barrier": ("barrier_id", "num_threadblocks"),
    "pipeline": ("iter_context", "ops"),
}


@dataclass(frozen=True)
class Wire:
    """A channel from one rank to another.

    Attributes:
        kind: memory or port.
    """

    rank: int
    peer: int
    kind: str
    place: tuple[int, int]


@dataclass
class Gpu:
    """A GPU as it stands in the plan.

    Attributes:
        chunks: buffer letter -> chunks.
        wires: channels to single peers, in the order of their ids within each kind.
        switches: buffer letter of each switch channel.
        remotes: (rank, buffer letter, kinds of channel that reach it) of each remote buffer.
        n_semaphores: how many it has.
        n_channels: kind -> channels of it.
    """

    rank: int
    entry: Entry
    chunks: dict[str, int] = field(default_factory=dict)
    wires: list[Wire] = field(default_factory=list)
    switches: list[str] = field(default_factory=list)
    remotes: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)
    n_semaphores: int = 0
    n_channels: Counter[str] = field(default_factory=Counter)


def read_tables(reader: PlanReader, entry: Entry, rank: int, n_ranks: int) -> Gpu:
    """A GPU without its threadblocks."""
    gpu = Gpu(rank, entry)
    ident = reader.number(entry, "id")
    if ident is not None and ident != rank:
        reader.tell("plan-ids", f"GPU {rank} has id {ident}; expected its place in the list", entry)
    for letter, key in _LETTERS.items():
        gpu.chunks[letter] = reader.number(entry, key) or 0
    for channel in reader.entries(entry, "channels"):
        _read_channel(reader, gpu, channel, n_ranks)
    for buffer in reader.entries(entry, "remote_buffers"):
        owner = _peer(reader, gpu, buffer, reader.number(buffer, "rank"), n_ranks)
        kind_of = reader.word(buffer, "type", reader.runtime.buffer_types)
        ways = reader.words(buffer, "access_channel_types", reader.runtime.channel_types)
        gpu.remotes.append((owner if owner is not None else rank, kind_of or "i", ways))
    gpu.n_semaphores = len(reader.entries(entry, "semaphores", optional=True))
    if gpu.n_semaphores > reader.runtime.max_syncers:
        reader.tell(
            "plan-limit-syncers",
            f"rank {rank} has {gpu.n_semaphores} semaphores; {reader.runtime.name} has {reader.runtime.max_syncers}",
            entry,
        )
    return gpu


def _read_channel(reader: PlanReader, gpu: Gpu, channel: Entry, n_ranks: int) -> None:
    kind = reader.word(channel, "channel_type", reader.runtime.channel_types)
    if kind == "switch":
        letter = reader.word(channel, "buffer_type", reader.runtime.buffer_types)
        for group in reader.entries(channel, "rank_groups"):
            reader.number(group, "size", least=1)
            for rank in reader.numbers(group, "ranks"):
                if not 0 <= rank < n_ranks:
                    reader.tell("plan-rank", f"rank {gpu.rank} joins rank {rank}; the plan has {n_ranks}", group)
            gpu.switches.append(letter or "i")
        gpu.n_channels[kind] = len(gpu.switches)
    elif kind is not None:
        for peer in reader.numbers(channel, "connected_to"):
            _peer(reader, gpu, channel, peer, n_ranks)
            gpu.wires.append(Wire(gpu.rank, peer, kind, channel.place))
            gpu.n_channels[kind] += 1


def _peer(reader: PlanReader, gpu: Gpu, entry: Entry, peer: int | None, n_ranks: int) -> int | None:
    if peer is not None and (peer == gpu.rank or not 0 <= peer < n_ranks):
        reader.tell("plan-rank", f"rank {gpu.rank} names rank {peer}; expected another of {n_ranks} ranks", entry)
        return None
    return peer


# --- threadblocks --------------------------------------------------------------------------------


def check_threadblocks(reader: PlanReader, gpu: Gpu, gpus: list[Gpu]) -> None:
    """What the threadblocks of a GPU name and do, once all tables of all GPUs are known."""
    for position, entry in enumerate(reader.entries(gpu.entry, "threadblocks")):
        _Threadblock(reader, gpu, gpus, entry, position).check()


class _Threadblock:
    def __init__(self, reader: PlanReader, gpu: Gpu, gpus: list[Gpu], entry: Entry, position: int) -> None:
        self.reader = reader
        self.gpu = gpu
        self.gpus = gpus
        self.entry = entry
        self.position = position
        self.name = f"rank {gpu.rank} threadblock {position}"
        self.channels: dict[str, list[int]] = {}
        self.buffers: dict[str, list[int]] = {}

    def check(self) -> None:
        reader, entry, runtime = self.reader, self.entry, self.reader.runtime
        ident = reader.number(entry, "id")
        if ident is not None and ident != self.position:
            reader.tell("plan-ids", f"{self.name} has id {ident}; expected its place in the list", entry)
        for channel in reader.entries(entry, "channels"):
            kind = reader.word(channel, "channel_type", runtime.channel_types) or "none"
            ids = self._ids(channel, "channel_ids", self.gpu.n_channels[kind], f"{kind} channel")
            self.channels.setdefault(kind, []).extend(ids)
        for reference in reader.entries(entry, "remote_buffer_refs", optional=True):
            kind = reader.word(reference, "access_channel_type", runtime.channel_types) or "none"
            ids = self._ids(reference, "remote_buffer_ids", len(self.gpu.remotes), "remote buffer")
            for ident in ids:
                if kind not in self.gpu.remotes[ident][2]:
                    message = f"{self.name} reaches remote buffer {ident} by {kind}, which it does not list"
                    reader.tell("plan-buffer-reference", message, reference)
            self.buffers.setdefault(kind, []).extend(ids)
        n_channels = sum(map(len, self.channels.values()))
        if n_channels > runtime.max_channels:
            message = f"{self.name} has {n_channels} channels; {runtime.name} takes {runtime.max_channels}"
            reader.tell("plan-limit-channels", message, entry)
        self._check_operations()

    def _ids(self, entry: Entry, key: str, n_there: int, what: str) -> list[int]:
        ids = self.reader.numbers(entry, key)
        rule = "plan-channel-reference" if key == "channel_ids" else "plan-buffer-reference"
        for ident in ids:
            if not 0 <= ident < n_there:
                self.reader.tell(rule, f"{self.name} names {what} {ident}; the GPU has {n_there}", entry)
        return [ident for ident in ids if 0 <= ident < n_there]

    def _check_operations(self) -> None:
        n_operations = 0
        for operation in self.reader.entries(self.entry, "ops"):
            n_operations += 1
            self._check_operation(operation)
            if operation.get("name") == "pipeline" and "ops" in operation:
                inner = self.reader.entries(operation, "ops")
                n_operations += len(inner)
                for item in inner:
                    self._check_operation(item, is_inside=True)
        runtime = self.reader.runtime
        if n_operations > runtime.max_operations:
            message = f"{self.name} has {n_operations} operations; {runtime.name} runs {runtime.max_operations}"
            self.reader.tell("plan-limit-operations", message, self.entry)

    def _check_operation(self, operation: Entry, *, is_inside: bool = False) -> None:
        reader, runtime = self.reader, self.reader.runtime
        name = reader.word(operation, "name", runtime.operations, "plan-operation")
        if name is None:
            return
        if name == "pipeline" and is_inside:
            reader.tell("plan-operation", f"{self.name}: a pipeline inside a pipeline", operation)
        for key in _NEEDS.get(name, ()):
            if not operation.get(key) and operation.get(key) != 0:
                reader.tell("plan-operands", f"{self.name}: {name} has no {key}", operation)
        kind = "none"
        if "channel_type" in operation:
            kind = reader.word(operation, "channel_type", runtime.channel_types) or "none"
        if operation.get("reduce_op", "sum") != "sum":
            message = f"{self.name}: {name} asks for '{operation['reduce_op']}'; every reduction is a sum"
            reader.tell("plan-reduce-operator", message, operation)
        self._check_channels(operation, name, kind)
        self._check_syncers(operation, name)
        for key in _MOVES:
            for operand in reader.entries(operation, key, optional=True):
                self._check_operand(operand, name, kind)
        if "iter_context" in operation and isinstance(operation["iter_context"], Entry):
            for key in ("unit_size", "num_chunks"):
                reader.number(operation["iter_context"], key, least=1)
        self._check_group(operation, name)

    def _check_channels(self, operation: Entry, name: str, kind: str) -> None:
        if "channel_ids" not in operation:
            return
        reader, limit = self.reader, self.reader.runtime.max_operation_channels
        ids = reader.numbers(operation, "channel_ids")
        if len(ids) > limit:
            message = f"{self.name}: {name} names {len(ids)} channels; {reader.runtime.name} takes {limit}"
            reader.tell("plan-limit-operation-channels", message, operation)
        n_own = len(self.channels.get(kind, ()))
        for ident in ids:
            if not 0 <= ident < n_own:
                message = f"{self.name}: {name} names its {kind} channel {ident}; the threadblock has {n_own}"
                reader.tell("plan-channel-reference", message, operation)

    def _check_syncers(self, operation: Entry, name: str) -> None:
        reader, limit = self.reader, self.reader.runtime.max_syncers
        if "barrier_id" in operation:
            ident = reader.number(operation, "barrier_id")
            if ident is not None and ident >= limit:
                message = f"{self.name}: barrier {ident}; {reader.runtime.name} has {limit}"
                reader.tell("plan-limit-syncers", message, operation)
        for ident in reader.numbers(operation, "semaphore_ids") if "semaphore_ids" in operation else ():
            if not 0 <= ident < self.gpu.n_semaphores:
                message = f"{self.name}: {name} names semaphore {ident}; the GPU has {self.gpu.n_semaphores}"
                reader.tell("plan-buffer-reference", message, operation)

    def _check_operand(self, operand: Entry, name: str, kind: str) -> None:
        reader = self.reader
        index, size = reader.number(operand, "index"), reader.number(operand, "size", least=1)
        buffer = self._buffer(operand, name, kind)
        if index is None or size is None or buffer is None:
            return
        rank, letter = buffer
        there = self.gpus[rank].chunks[letter]
        if index + size > there:
            what = {"i": "input", "o": "output", "s": "scratch"}[letter]
            message = f"{self.name}: {name} reaches chunk {index + size - 1} of rank {rank} {what}, which has {there}"
            reader.tell("plan-range", message, operand)

    def _buffer(self, operand: Entry, name: str, kind: str) -> tuple[int, str] | None:
        """The rank and the letter of the buffer an operand names."""
        reader = self.reader
        if "switch_channel_id" in operand:
            own = self.channels.get("switch", [])
            ident = reader.number(operand, "switch_channel_id")
            if ident is not None and ident < len(own):
                return self.gpu.rank, self.gpu.switches[own[ident]]
            named = f"switch channel {ident}; the threadblock has {len(own)}"
        elif "buffer_id" in operand:
            own = self.buffers.get(kind, [])
            ident = reader.number(operand, "buffer_id")
            if ident is not None and ident < len(own):
                rank, letter, _ = self.gpu.remotes[own[ident]]
                return rank, letter
            named = f"remote buffer {ident} reached by {kind}; the threadblock has {len(own)}"
        else:
            letter_ = reader.word(operand, "type", reader.runtime.buffer_types)
            return None if letter_ is None else (self.gpu.rank, letter_)
        if ident is not None:
            reader.tell("plan-buffer-reference", f"{self.name}: {name} names {named}", operand)
        return None

    def _check_group(self, operation: Entry, name: str) -> None:
        group = operation.get("tbg_info")
        if not isinstance(group, Entry):
            return
        ident, size = self.reader.number(group, "tb_id"), self.reader.number(group, "tbg_size", least=1)
        if ident is not None and size is not None and ident >= size:
            message = f"{self.name}: {name} is part {ident} of {size}; parts count from 0"
            self.reader.tell("plan-value", message, group)
