"""Vertex sets that were once violated, in families: a set with its images under the fabric's symmetries.

A set S with slack = capacity entering S + trees rooted in S - trees left can take a tree of m copies
that enters it at most (1 if the root is outside) + slack // m times. While a tree has not reached any
GPU in S, one of those entries is kept for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from collc.kernels import Ints, filled, ints
from collc.symmetry import Group
from collc.synth.forestcoll.scale import Instance


class _Pool:
    """A kernel's array that grows at the end."""

    def __init__(self, compiled: bool, start: Iterable[int] = ()) -> None:
        self._compiled = compiled
        self.array = ints(start, compiled)
        self.length = len(self.array)

    def extend(self, values: Sequence[int]) -> None:
        end = self.length + len(values)
        if end > len(self.array):
            more = max(end, 2 * len(self.array), 64) - len(self.array)
            if self._compiled:
                import numpy

                self.array = numpy.concatenate([self.array, filled(more, 0, True)])  # type: ignore[assignment]
            else:
                self.array.extend([0] * more)
        self.array[self.length : end] = values
        self.length = end


# Pools that start with a zero, the end of no entry.
_STARTS = ("enter_start", "leave_start")
_FIELDS = (
    *("member", "family", "first", "last", "share", "slack", "budget", "shut", *_STARTS, "enter_arcs", "leave_arcs"),
    *("next_entry", "entered", "waiting", "closed", "turned"),
)


class TightSets:
    """Learned sets.

    Attributes:
        arrays: as the kernel wants them.
        n_families: how many were learned.
    """

    def __init__(self, instance: Instance, kernel: Any, group: Group, compiled: bool) -> None:
        self._instance, self._kernel, self._group, self._compiled = instance, kernel, group, compiled
        self._pools = {name: _Pool(compiled, [0] if name in _STARTS else []) for name in _FIELDS}
        self._entry = filled(len(instance.tails), -1, compiled)
        self._blocked = filled(len(instance.tails), 0, compiled)
        self._known: set[bytes] = set()
        self.n_families = 0
        self._refresh()

    def learn(self, found: Iterable[bytes], capacities: Ints, slot: Sequence[int], trees: Sequence[int]) -> int:
        """Remember sets and their images; how many of them were new.

        Args:
            found: sets, a byte for each vertex, 1 inside.
            capacities, slot: what is left on each link, and where it stands.
            trees: left to root at each rank.
        """
        before = self.n_families
        room, roots = ints([int(capacities[place]) for place in slot], self._compiled), ints(trees, self._compiled)
        for inside in found:
            if inside in self._known:
                continue
            images = self._images(inside)
            self._known.update(images)
            self._add_family(images, room, roots)
        self._refresh()
        return self.n_families - before

    @property
    def slacks(self) -> Ints:
        """By family, ways into a set beyond the trees left."""
        return self._pools["slack"].array[: self.n_families]

    def _images(self, inside: bytes) -> list[bytes]:
        """The set and its images, each once."""
        if self._group.order == 1:
            return [inside]
        import numpy

        members = numpy.frombuffer(inside, dtype=numpy.uint8)
        images = numpy.empty(self._group.vertices.shape, dtype=numpy.uint8)
        numpy.put_along_axis(images, self._group.vertices.astype(numpy.int64), members[None], axis=1)
        return list(dict.fromkeys(image.tobytes() for image in images))

    def _add_family(self, images: Sequence[bytes], room: Ints, roots: Ints) -> None:
        pools, n = self._pools, self._instance.n_ranks
        first = pools["family"].length
        for image in images:
            entering, leaving = self._border(image)
            self._enlist(pools["family"].length, entering)
            pools["member"].extend(self._array(image[:n]))
            pools["family"].extend([self.n_families])
            pools["leave_arcs"].extend(leaving)
            for name, arcs in (("enter_start", entering), ("leave_start", leaving)):
                pools[name].extend([int(pools[name].array[pools[name].length - 1]) + len(arcs)])
            for name in ("waiting", "closed", "turned"):
                pools[name].extend([0])
        entering, _ = self._border(images[0])
        slack = self._sum(room, entering) - self._sum(roots, self._outside(images[0][:n]))
        share = self._group.order // len(images)
        for name, value in (
            *(("first", first), ("last", first + len(images)), ("share", share), ("slack", slack)),
            *(("budget", 0), ("shut", 0)),
        ):
            pools[name].extend([value])
        self.n_families += 1

    def _sum(self, values: Ints, places: Ints) -> int:
        if self._compiled:
            return int(values[places].sum())  # type: ignore[call-overload]
        return sum(values[place] for place in places)

    def _array(self, members: bytes) -> Ints:
        if not self._compiled:
            return list(members)
        import numpy

        return numpy.frombuffer(members, dtype=numpy.uint8)  # type: ignore[return-value]

    def _outside(self, members: bytes) -> Ints:
        if not self._compiled:
            return [rank for rank, inside in enumerate(members) if not inside]
        import numpy

        return numpy.nonzero(numpy.frombuffer(members, dtype=numpy.uint8) == 0)[0]  # type: ignore[return-value]

    def _border(self, inside: bytes) -> tuple[Ints, Ints]:
        """The links into a set and out of it."""
        if not self._compiled:
            ends = list(zip(self._instance.tails, self._instance.heads, strict=True))
            entering = [arc for arc, (a, b) in enumerate(ends) if inside[b] and not inside[a]]
            return entering, [arc for arc, (a, b) in enumerate(ends) if inside[a] and not inside[b]]
        import numpy

        tails, heads = self._instance.ends
        members = numpy.frombuffer(inside, dtype=numpy.uint8).astype(bool)
        tail_in, head_in = members[tails], members[heads]
        return numpy.nonzero(head_in & ~tail_in)[0], numpy.nonzero(tail_in & ~head_in)[0]  # type: ignore[return-value]

    def _enlist(self, index: int, entering: Ints) -> None:
        pools = self._pools
        at = pools["enter_arcs"].length
        pools["enter_arcs"].extend(entering)
        pools["entered"].extend([index] * len(entering))
        if self._compiled:
            import numpy

            pools["next_entry"].extend(self._entry[entering])  # type: ignore[call-overload]
            self._entry[entering] = numpy.arange(at, at + len(entering))  # type: ignore[call-overload]
            return
        pools["next_entry"].extend([self._entry[arc] for arc in entering])
        for place, arc in enumerate(entering, start=at):
            self._entry[arc] = place

    def _refresh(self) -> None:
        self.arrays = self._kernel.Sets(
            entry=self._entry, blocked=self._blocked, **{name: pool.array for name, pool in self._pools.items()}
        )
