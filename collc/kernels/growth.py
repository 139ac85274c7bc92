"""Kernel: one tree with many copies, grown from its root over paths GPU -> switches -> GPU.

The next GPU is the one with the cheapest path from the tree (Prim's order); a link costs more the
scarcer it is, and each level of depth costs extra, so that low trees come first.

Sets of vertices that were once violated limit the growth. A family is a set and its images under the
fabric's symmetries. A tree may enter each set once for nothing if its root is outside; entries beyond
these draw on the family's budget. A set that the tree has not reached keeps one entry for that.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from collc.kernels import Ints

_UNSEEN = 1 << 60
# Link costs are whole multiples of 1 / _COST, so that they are the same on every machine.
_COST = 1 << 10
_MOST_COST = 1 << 34
# Labels are kept above the vertex in one number of the queue.
_VERTEX_BITS = 20
# Places in `now`.
COPIES, LEFT, PRICE, DEPTH_COST, HOPS, ARCS, MENDS, MOST_MENDS = range(8)


class Tree(NamedTuple):
    """A tree under way on a graph whose first vertices are the GPUs.

    Attributes:
        tails, heads, slot: by arc; its capacity stands in `capacity` at its slot.
        out_start, out_arcs, in_start, in_arcs: by vertex, the arcs that start or end there.
        capacity, weight: by slot, what is left, and how much of it each copy of the tree takes.
        depth: by vertex, hops from the root; -1 for switches and GPUs not yet reached.
        path_arcs, path_start: the arcs of each hop, in the order in which the tree grew.
        now: the figures named above.
        label, via, path: room to work in.
    """

    tails: Ints
    heads: Ints
    slot: Ints
    out_start: Ints
    out_arcs: Ints
    in_start: Ints
    in_arcs: Ints
    capacity: Ints
    weight: Ints
    depth: Ints
    path_arcs: Ints
    path_start: Ints
    now: Ints
    label: Ints
    via: Ints
    path: Ints


class Sets(NamedTuple):
    """Learned sets, and what they allow the tree under way.

    Attributes:
        member: rows of ranks, by set.
        family: by set.
        first, last: by family, its sets are first .. last - 1.
        share: by family, by how much an entry of one copy lowers its slack.
        slack: by family, ways into a set beyond the trees left.
        budget: by family, entries beyond the free ones that are left to the tree.
        shut: by family, whether that has come to none.
        enter_start, enter_arcs: by set, the arcs into it.
        leave_start, leave_arcs: by set, the arcs out of it.
        entry, next_entry, entered: linked lists, by arc: the sets it enters.
        waiting: by set, whether the tree has still to reach it.
        closed: by set, 1 where the arcs out of it, 2 where the arcs into it are blocked.
        blocked: by arc, how many sets forbid it now.
        turned: room to work in.
    """

    member: Ints
    family: Ints
    first: Ints
    last: Ints
    share: Ints
    slack: Ints
    budget: Ints
    shut: Ints
    enter_start: Ints
    enter_arcs: Ints
    leave_start: Ints
    leave_arcs: Ints
    entry: Ints
    next_entry: Ints
    entered: Ints
    waiting: Ints
    closed: Ints
    blocked: Ints
    turned: Ints


def begin(tree: Tree, sets: Sets, n_families: int, n_ranks: int, root: int, copies: int, price: int) -> None:
    """Start a tree of that many copies at a root.

    Args:
        price: trees left to pack; a link with that much capacity costs one.
    """
    now = tree.now
    now[COPIES], now[LEFT], now[PRICE] = copies, n_ranks - 1, price * _COST
    now[HOPS], now[ARCS] = 0, 0
    tree.path_start[0] = 0
    depth, blocked = tree.depth, sets.blocked
    for vertex in range(len(depth)):
        depth[vertex] = -1
    depth[root] = 0
    for arc in range(len(blocked)):
        blocked[arc] = 0
    for family in range(n_families):
        sets.budget[family] = sets.slack[family] // (copies * sets.share[family])
        sets.shut[family] = 1 if sets.budget[family] <= 0 else 0
        for one in range(sets.first[family], sets.last[family]):
            sets.waiting[one] = 1 - sets.member[one * n_ranks + root]
            sets.closed[one] = 0
            _refresh(sets, one)


def advance(tree: Tree, sets: Sets, n_ranks: int) -> bool:
    """Grow as far as searches lead; whether the tree is complete."""
    while tree.now[LEFT] > 0:
        before = tree.now[LEFT]
        _grow(tree, sets, n_ranks)
        if tree.now[LEFT] == before:
            return False
    return True


def take(tree: Tree, sets: Sets, n_ranks: int, length: int) -> bool:
    """Let the tree go over the first arcs of `path` to the GPU at their end, if its sets allow."""
    rank = tree.heads[tree.path[length - 1]]
    # Two arcs of a path may share a slot, so each was open and both are not.
    if not _afford(tree, length):
        return False
    if not _charge(tree, sets, n_ranks, rank, length):
        _pay(tree, length, -tree.now[COPIES])
        return False
    now = tree.now
    for at in range(length):
        tree.path_arcs[now[ARCS] + at] = tree.path[at]
    now[ARCS] += length
    now[HOPS] += 1
    tree.path_start[now[HOPS]] = now[ARCS]
    tree.depth[rank] = tree.depth[tree.tails[tree.path[0]]] + 1
    now[LEFT] -= 1
    return True


def _afford(tree: Tree, length: int) -> bool:
    _pay(tree, length, tree.now[COPIES])
    slots, capacity, path = tree.slot, tree.capacity, tree.path
    for at in range(length):
        if capacity[slots[path[at]]] < 0:
            _pay(tree, length, -tree.now[COPIES])
            return False
    return True


def _pay(tree: Tree, length: int, copies: int) -> None:
    slots, capacity, weight, path = tree.slot, tree.capacity, tree.weight, tree.path
    for at in range(length):
        slot = slots[path[at]]
        capacity[slot] -= copies * weight[slot]


def settle(sets: Sets, n_families: int, n_ranks: int, root: int, copies: int, arcs: Ints) -> None:
    """Note a whole tree in the slack of all families; negative copies take it back."""
    for family in range(n_families):
        outside = 0
        for one in range(sets.first[family], sets.last[family]):
            outside += 1 - sets.member[one * n_ranks + root]
        sets.slack[family] += copies * sets.share[family] * outside
    entry_of, next_entry, entered, family_of = sets.entry, sets.next_entry, sets.entered, sets.family
    for arc in arcs:
        entry = entry_of[arc]
        while entry >= 0:
            family = family_of[entered[entry]]
            sets.slack[family] -= copies * sets.share[family]
            entry = next_entry[entry]


def spend(tree: Tree, copies: int, arcs: Ints) -> None:
    """Take a tree's arcs off the capacities; negative copies give them back."""
    slots, capacity, weight = tree.slot, tree.capacity, tree.weight
    for arc in arcs:
        capacity[slots[arc]] -= copies * weight[slots[arc]]


def _refresh(sets: Sets, one: int) -> None:
    """Bring what a set blocks up to date.

    No way in when all entries are used up. With only the kept entry left, it must end inside, so there
    is no way out.
    """
    state = 0
    if sets.shut[sets.family[one]] != 0:
        state = 1 if sets.waiting[one] != 0 else 2
    if state != sets.closed[one]:
        _block(sets, one, sets.closed[one], -1)
        _block(sets, one, state, 1)
        sets.closed[one] = state


def _block(sets: Sets, one: int, side: int, change: int) -> None:
    """Close (or open) the arcs out of a set, on side 1, or those into it, on side 2."""
    blocked = sets.blocked
    if side == 1:
        arcs = sets.leave_arcs
        for at in range(sets.leave_start[one], sets.leave_start[one + 1]):
            blocked[arcs[at]] += change
    elif side == 2:
        arcs = sets.enter_arcs
        for at in range(sets.enter_start[one], sets.enter_start[one + 1]):
            blocked[arcs[at]] += change


def _charge(tree: Tree, sets: Sets, n_ranks: int, rank: int, length: int) -> bool:
    """Draw a path's entries from the budgets; False, and nothing drawn, if they do not suffice."""
    n_turned = 0
    enough = True
    for at in range(length):
        entry = sets.entry[tree.path[at]]
        while entry >= 0:
            one = sets.entered[entry]
            if sets.waiting[one] != 0 and sets.member[one * n_ranks + rank] != 0:
                sets.waiting[one] = 0
                sets.turned[n_turned] = one
                n_turned += 1
            else:
                sets.budget[sets.family[one]] -= 1
                enough = enough and sets.budget[sets.family[one]] >= 0
            entry = sets.next_entry[entry]
    if not enough:
        for at in range(length):
            entry = sets.entry[tree.path[at]]
            while entry >= 0:
                sets.budget[sets.family[sets.entered[entry]]] += 1
                entry = sets.next_entry[entry]
        for at in range(n_turned):
            sets.waiting[sets.turned[at]] = 1
            sets.budget[sets.family[sets.turned[at]]] -= 1
        return False
    for at in range(n_turned):
        if sets.shut[sets.family[sets.turned[at]]] != 0:
            _refresh(sets, sets.turned[at])
    for at in range(length):
        entry = sets.entry[tree.path[at]]
        while entry >= 0:
            family = sets.family[sets.entered[entry]]
            # Budgets only fall, so a family is shut once.
            if sets.budget[family] <= 0 and sets.shut[family] == 0:
                sets.shut[family] = 1
                for other in range(sets.first[family], sets.last[family]):
                    _refresh(sets, other)
            entry = sets.next_entry[entry]
    return True


def _grow(tree: Tree, sets: Sets, n_ranks: int) -> None:
    """One search from all that is reached."""
    depth, label, via, now = tree.depth, tree.label, tree.via, tree.now
    for vertex in range(len(depth)):
        label[vertex] = _UNSEEN
        via[vertex] = -1
    now[MENDS] = 0
    queue = [0]
    queue.pop()
    for rank in range(n_ranks):
        if depth[rank] >= 0:
            _settle(tree, sets, rank, queue)
    while len(queue) > 0 and now[LEFT] > 0:
        top = heapq.heappop(queue)
        vertex = top & ((1 << _VERTEX_BITS) - 1)
        if top >> _VERTEX_BITS != label[vertex] or depth[vertex] >= 0:
            continue
        length = _path_to(tree, sets, n_ranks, vertex, queue)
        if length == 0:
            continue
        if vertex >= n_ranks:
            _relax(tree, sets, vertex, queue)
        elif take(tree, sets, n_ranks, length):
            _settle(tree, sets, vertex, queue)


def _is_open(tree: Tree, sets: Sets, arc: int) -> bool:
    slot = tree.slot[arc]
    return tree.capacity[slot] >= tree.now[COPIES] * tree.weight[slot] and sets.blocked[arc] == 0


def _cost(tree: Tree, arc: int) -> int:
    slot = tree.slot[arc]
    return min(_MOST_COST, tree.now[PRICE] * tree.weight[slot] // tree.capacity[slot])


def _settle(tree: Tree, sets: Sets, rank: int, queue: list[int]) -> None:
    tree.label[rank] = tree.now[DEPTH_COST] * _COST * tree.depth[rank]
    _relax(tree, sets, rank, queue)


def _relax(tree: Tree, sets: Sets, vertex: int, queue: list[int]) -> None:
    # Arrays by name of their own: each look-up in a tuple of arrays costs a compiled kernel two atomic counts.
    out_arcs, heads, slots, depth, label, via = tree.out_arcs, tree.heads, tree.slot, tree.depth, tree.label, tree.via
    capacity, weight, blocked = tree.capacity, tree.weight, sets.blocked
    copies, price, base = tree.now[COPIES], tree.now[PRICE], label[vertex]
    for at in range(tree.out_start[vertex], tree.out_start[vertex + 1]):
        arc = out_arcs[at]
        head = heads[arc]
        if depth[head] >= 0 or blocked[arc] != 0:
            continue
        slot = slots[arc]
        room, taken = capacity[slot], weight[slot]
        if room < copies * taken:
            continue
        key = base + min(_MOST_COST, price * taken // room)
        if key < label[head]:
            label[head] = key
            via[head] = arc
            heapq.heappush(queue, (key << _VERTEX_BITS) + head)


def _path_to(tree: Tree, sets: Sets, n_ranks: int, vertex: int, queue: list[int]) -> int:
    """Write the labelled path; its length, or 0 after mending the label of where it no longer holds."""
    tails, slots, depth, via, path = tree.tails, tree.slot, tree.depth, tree.via, tree.path
    capacity, weight, blocked = tree.capacity, tree.weight, sets.blocked
    copies = tree.now[COPIES]
    length = 0
    at = vertex
    while depth[at] < 0:
        arc = via[at]
        if arc < 0 or blocked[arc] != 0 or capacity[slots[arc]] < copies * weight[slots[arc]]:
            _mend(tree, sets, n_ranks, at, vertex, queue)
            return 0
        for before in range(length):
            if path[before] == arc:
                # Mended labels rise, and an older, lower one may then point in a circle.
                _mend(tree, sets, n_ranks, vertex, vertex, queue)
                return 0
        path[length] = arc
        length += 1
        at = tails[arc]
    for before in range(length // 2):
        other = path[before]
        path[before] = path[length - 1 - before]
        path[length - 1 - before] = other
    return length


def _mend(tree: Tree, sets: Sets, n_ranks: int, broken: int, vertex: int, queue: list[int]) -> None:
    tree.now[MENDS] += 1
    if tree.now[MENDS] > tree.now[MOST_MENDS]:
        return
    if not _relabel(tree, sets, n_ranks, broken, queue):
        if broken != vertex:
            _relabel(tree, sets, n_ranks, vertex, queue)
    elif broken != vertex:
        # The mended part leads on to the vertex over the arcs its label names.
        tree.label[vertex] += 1
        heapq.heappush(queue, (tree.label[vertex] << _VERTEX_BITS) + vertex)


def _relabel(tree: Tree, sets: Sets, n_ranks: int, vertex: int, queue: list[int]) -> bool:
    best = _UNSEEN
    via = -1
    for at in range(tree.in_start[vertex], tree.in_start[vertex + 1]):
        arc = tree.in_arcs[at]
        tail = tree.tails[arc]
        if tree.label[tail] < _UNSEEN and _is_open(tree, sets, arc):
            key = tree.label[tail] + _cost(tree, arc)
            if key < best and _holds(tree, sets, n_ranks, tail, vertex):
                best = key
                via = arc
    tree.label[vertex] = best
    tree.via[vertex] = via
    if via >= 0:
        heapq.heappush(queue, (best << _VERTEX_BITS) + vertex)
    return via >= 0


def _holds(tree: Tree, sets: Sets, n_ranks: int, vertex: int, without: int) -> bool:
    """Whether the labelled path to a vertex is open and does not lead over another."""
    for _ in range(len(tree.depth)):
        if tree.depth[vertex] >= 0:
            return True
        arc = tree.via[vertex]
        if vertex == without or vertex < n_ranks or arc < 0 or not _is_open(tree, sets, arc):
            return False
        vertex = tree.tails[arc]
    return False


def width(tree: Tree, n_ranks: int) -> int:
    """Copies that some path out of the tree has capacity for."""
    widest = tree.label
    for vertex in range(len(tree.depth)):
        widest[vertex] = 0
    queue = [(0, 0)]
    queue.pop()
    for rank in range(n_ranks):
        if tree.depth[rank] >= 0:
            heapq.heappush(queue, (-_UNSEEN, rank))
    while len(queue) > 0:
        negative, vertex = heapq.heappop(queue)
        if vertex < n_ranks and tree.depth[vertex] < 0:
            return -negative
        for at in range(tree.out_start[vertex], tree.out_start[vertex + 1]):
            arc = tree.out_arcs[at]
            head = tree.heads[arc]
            room = min(-negative, tree.capacity[tree.slot[arc]] // tree.weight[tree.slot[arc]])
            if tree.depth[head] < 0 and room > widest[head]:
                widest[head] = room
                heapq.heappush(queue, (-room, head))
    return 0
