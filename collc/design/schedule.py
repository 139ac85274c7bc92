"""The best schedule that a recipe gives: the eager broadcast, or what its expansions make of their bases'."""

from __future__ import annotations

from fractions import Fraction

from collc.design import expand
from collc.design.eager import eager_cost
from collc.design.expand import Price
from collc.design.expanded import degree_plan, duplex_plan, line_plan, power_plan
from collc.design.graph import Graph
from collc.design.isomorphism import isomorphism
from collc.design.known import patient_facts
from collc.design.patient import patient_plan
from collc.design.plan import Plan, eager_plan, lanes_of, plan_time
from collc.design.recipe import parse, split


def best_plan(recipe: str) -> tuple[Graph, Plan]:
    """The graph of a recipe, and its schedule of least T_B; at equal T_B of fewest steps.

    Raises:
        InputError: not a recipe.
        InfeasibleError: the graph is not connected.
    """
    graph = parse(recipe)
    candidates = [_expanded(recipe), _patient(graph)]
    plans = [plan for plan in candidates if plan is not None]
    eager = eager_cost(graph)
    if not plans or (eager.time, eager.steps) <= min(_price(plan, graph.degree) for plan in plans):
        plans.append(eager_plan(lanes_of(graph)))
    return graph, min(plans, key=lambda plan: _price(plan, graph.degree))


def reverse_plan(recipe: str, graph: Graph, plan: Plan) -> Plan:
    """The best known allgather on the reversed graph, whose lanes and vertices it is numbered by.

    Tried: the graph's own plan, where the reversed graph is the same but for its vertices' names; the
    same expansion of the reversed base, likewise renamed; a patient plan; the eager broadcast.
    """
    back = graph.transpose
    eager = eager_cost(back)
    best = eager.time, eager.steps
    if _price(plan, graph.degree) < best and (image := isomorphism(graph, back)):
        return relabelled(plan, graph, back, image)
    if patient := _patient(back):
        return patient
    if swapped := _swapped(recipe):
        alike, its_plan = best_plan(swapped)
        if _price(its_plan, graph.degree) < best and (image := isomorphism(alike, back)):
            return relabelled(its_plan, alike, back, image)
    return eager_plan(lanes_of(back))


def _swapped(recipe: str) -> str | None:
    """The expansion of the reversed base: the same graph as the expansion reversed, under other names."""
    word, parts = _peeled(recipe)
    if word not in ("line", "degree", "power"):
        return None
    inner, its_parts = _peeled(parts[0])
    base = _swapped(parts[0]) if inner in ("line", "degree", "power") else None
    if inner == "reverse":
        base = its_parts[0]
    return f"{word}({','.join([base or f'reverse({parts[0]})', *parts[1:]])})"


def relabelled(plan: Plan, graph: Graph, other: Graph, image: tuple[int, ...]) -> Plan:
    """A plan carried over to an equal graph whose vertices have other names."""
    ports: dict[tuple[int, int], list[int]] = {}
    for u, row in enumerate(other.heads):
        for port, v in enumerate(row):
            ports.setdefault((u, v), []).append(u * other.degree + port)
    met: dict[tuple[int, int], int] = {}
    lanes = []
    for u, row in enumerate(graph.heads):
        for v in row:
            nth = met.get((u, v), 0)
            met[u, v] = nth + 1
            lanes.append(ports[image[u], image[v]][nth])
    moves = (move._replace(source=image[move.source], lane=lanes[move.lane]) for move in plan.moves)
    return Plan(lanes_of(other), plan.n_chunks, tuple(moves))


def _price(plan: Plan, degree: int) -> tuple[Fraction, int]:
    return plan_time(plan, degree), len(plan.loads)


def _patient(graph: Graph) -> Plan | None:
    for fact in patient_facts():
        if fact.recipe == graph.recipe:
            return patient_plan(graph, fact.steps)
    return None


def _expanded(recipe: str) -> Plan | None:
    """The schedule that the outermost expansion makes of the best plan of what it expands."""
    word, parts = _peeled(recipe)
    match word, parts:
        case "line", [base]:
            graph, plan = best_plan(base)
            return line_plan(graph, plan, expand.line(graph))
        case "degree", [base, copies]:
            graph, plan = best_plan(base)
            return degree_plan(graph, plan, expand.degree(graph, int(copies)))
        case "power", [base, exponent]:
            graph, plan = best_plan(base)
            return power_plan(graph, plan, expand.power(graph, int(exponent)), int(exponent))
        case "duplex", [base]:
            graph, plan = best_plan(base)
            return duplex_plan(graph, plan, reverse_plan(base, graph, plan), expand.duplex(graph))
    return None


def price(recipe: str, *, is_reversed: bool = False) -> Price:
    """(T_L, T_B) of the best schedule known for a recipe's graph, or for its reverse.

    Raises:
        InputError: not a recipe.
        InfeasibleError: the graph is not connected.
    """
    graph = parse(recipe)
    found = [_formula(recipe, is_reversed)]
    wanted = graph.transpose if is_reversed else graph
    eager = eager_cost(wanted)
    found += [(eager.steps, eager.time)]
    found += [(fact.steps, fact.time) for fact in patient_facts() if fact.recipe == wanted.recipe]
    return min((one for one in found if one is not None), key=lambda one: (one[1], one[0]))


def _formula(recipe: str, is_reversed: bool) -> Price | None:
    """What the outermost expansion's formula makes of its base's price; expanding and reversing may be swapped."""
    word, parts = _peeled(recipe)
    if word == "reverse":
        return _formula(parts[0], not is_reversed)
    if word not in ("line", "degree", "power"):
        return None
    n = parse(parts[0]).n
    base = price(parts[0], is_reversed=is_reversed)
    if word == "line":
        return expand.line_price(n, base)
    if word == "degree":
        return expand.degree_price(n, int(parts[1]), base)
    return expand.power_price(n, int(parts[1]), base)


def _peeled(recipe: str) -> tuple[str, list[str]]:
    """The outermost expansion and what it takes; of repeated line graphs the last one."""
    word, parts = split("".join(recipe.split()))
    if word == "line" and len(parts) == 2:
        times = int(parts[1])
        parts = [f"line({parts[0]},{times - 1})" if times > 1 else parts[0]]
    return word, parts
