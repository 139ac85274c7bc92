"""The topology file: what it means; `test_topology_errors` has the wrong ones."""

import json
import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collc.errors import CollcError, InputError
from collc.ir.topology import Link, Topology
from collc.topology import dumps_yaml, example, load, load_text, open_topology, parameters, schema
from collc.topology.expression import parse
from collc.topology.yaml import compose


def bandwidths(topology):
    return {(link.src, link.dst): link.bandwidth for link in topology.links}


def both_ways(*links):
    return {pair: Fraction(value) for a, b, value in links for pair in ((a, b), (b, a))}


def as_json(item):
    """What a JSON reader would make of a YAML item."""
    match item.kind:
        case "mapping":
            return {key: as_json(value) for key, value in item.mapping("").items()}
        case "list":
            return [as_json(entry) for entry in item.entries("")]
        case "truth value":
            return item.truth("")
        case "number":
            value = item.number("")
            return int(value) if value.denominator == 1 else float(value)
        case "nothing":
            return None
    return item.text("")


def check_schema(text):
    import jsonschema

    jsonschema.Draft202012Validator(schema()).validate(as_json(compose(text, "t.yaml")))


# --- the plain form ------------------------------------------------------------------------------


def test_plain_form():
    topology = load_text(
        """
        name: three-gpus
        source: made up
        gpus: [g0, g1, g2]
        switches: [s0, {name: s1, multicast: true, reduce: true}]
        links:
          - {from: g0, to: s0, bandwidth: 25, latency: 0.7}
          - {from: s0, to: g0, bandwidth: 25/3, latency: 0}
          - {between: [g1, g2], bandwidth: 12.5, latency: 0.7, count: 2}
          - {between: [g1, s0], bandwidth: 1e1, latency: 1}
          - {between: [s0, s1], bandwidth: 010, latency: 1}
        ranks_per_device: 3
        """,
        "t.yaml",
    )
    assert topology == Topology(
        "three-gpus",
        ("g0", "g1", "g2"),
        ("s0", "s1"),
        (
            Link("g0", "s0", Fraction(25), Fraction(7, 10)),
            Link("s0", "g0", Fraction(25, 3), Fraction(0)),
            Link("g1", "g2", Fraction(25), Fraction(7, 10)),
            Link("g2", "g1", Fraction(25), Fraction(7, 10)),
            Link("g1", "s0", Fraction(10), Fraction(1)),
            Link("s0", "g1", Fraction(10), Fraction(1)),
            Link("s0", "s1", Fraction(10), Fraction(1)),
            Link("s1", "s0", Fraction(10), Fraction(1)),
        ),
        multicast=("s1",),
        reduce=("s1",),
        ranks_per_device=3,
    )


def test_yaml_1_2_words_and_exact_numbers():
    topology = load_text(
        "gpus: [no, on, 18:00, 010, 1.50]\n"
        "links: [{among: [no, on, 18:00, 010, 1.50], shape: ring, bandwidth: 3.14159265, latency: 0.1}]",
        "t.yaml",
    )
    assert topology.gpus == ("no", "on", "18:00", "010", "1.50")
    assert topology.links[0].bandwidth == Fraction(314159265, 10**8)
    assert topology.links[0].latency == Fraction(1, 10)
    assert topology.name == "t"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10),
        ("0x10", 16),
        ("0o10", 8),
        ("1e3", 1000),
        (".5", "1/2"),
        ("5.", 5),
        ("+2.50", "5/2"),
        ("25/3", "25/3"),
    ],
)
def test_numbers(text, value):
    topology = load_text(f"gpus: 2\nlinks: [{{between: [gpu0, gpu1], bandwidth: {text}, latency: 0}}]", "t.yaml")
    assert topology.links[0].bandwidth == Fraction(value)


def test_parallel_links_add_up():
    topology = load_text(
        """
        gpus: [a, b]
        links:
          - {between: [a, b], bandwidth: 10, latency: 0.5}
          - {from: a, to: b, bandwidth: 1/3, latency: 0.5}
        """,
        "t.yaml",
    )
    assert bandwidths(topology) == {("a", "b"): Fraction(31, 3), ("b", "a"): 10}


def test_listed_hosts_and_ranks():
    topology = load_text(
        """
        gpus: [a, b, c, d]
        hosts: [[a, c], [d, b]]
        ranks: [d, a, c, b]
        links: [{among: [a, b, c, d], shape: ring, bandwidth: 1, latency: 0}]
        """,
        "t.yaml",
    )
    assert topology.gpus == ("d", "a", "c", "b")
    assert topology.hosts == ((1, 2), (0, 3))


def test_one_gpu():
    assert load_text("gpus: [a]", "t.yaml").n_ranks == 1
    assert load_text("host: {gpus: 1}", "t.yaml").gpus == ("h0.gpu0",)


# --- the repeated form ---------------------------------------------------------------------------

CLUSTER = """
parameters:
  hosts: {default: 2, doc: machines, min: 1}
  nic: 25
host: {count: hosts, gpus: 4, nics: 2, switches: [sw]}
links:
  - {between: [gpu*, sw], bandwidth: 300, latency: 1}
  - {between: [gpu*, nic*], pairs: block, bandwidth: nic / 2, latency: 1}
fabric:
  switches: [{name: leaf, count: 2}]
  links:
    - {between: [nic*, leaf*], pairs: same, bandwidth: nic, latency: 1}
"""


def test_hosts_and_fabric():
    topology = load_text(CLUSTER, "t.yaml")
    assert topology.gpus == tuple(f"h{h}.gpu{g}" for h in range(2) for g in range(4))
    assert topology.switches == ("h0.nic0", "h0.nic1", "h0.sw", "h1.nic0", "h1.nic1", "h1.sw", "leaf0", "leaf1")
    assert topology.hosts == ((0, 1, 2, 3), (4, 5, 6, 7))
    expected = {}
    for h in ("h0", "h1"):
        expected |= both_ways(*((f"{h}.gpu{g}", f"{h}.sw", 300) for g in range(4)))
        expected |= both_ways(*((f"{h}.gpu{g}", f"{h}.nic{g // 2}", "25/2") for g in range(4)))
        expected |= both_ways(*((f"{h}.nic{n}", f"leaf{n}", 25) for n in range(2)))
    assert bandwidths(topology) == expected


def test_one_host_has_no_nics_and_no_fabric(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(CLUSTER)
    topology = load(f"{path}:hosts=1")
    assert topology.switches == ("h0.sw",)
    assert len(topology.links) == 8


def test_links_to_the_fabric_may_stand_in_either_list():
    moved = CLUSTER.replace("fabric:\n  switches: [{name: leaf, count: 2}]\n  links:\n  ", "").rstrip()
    moved += "\nfabric: {switches: [{name: leaf, count: 2}]}\n"
    assert load_text(moved, "t.yaml") == load_text(CLUSTER, "t.yaml")
    assert load_text(moved.replace("default: 2", "default: 1"), "t.yaml").switches == ("h0.sw",)


def pairs_of(entry, gpus=4, more=""):
    topology = load_text(f"{more}\ngpus: {gpus}\nlinks: [{{{entry}, bandwidth: 1, latency: 0}}]", "t.yaml")
    return [(int(link.src[3:]), int(link.dst[3:])) for link in topology.links]


def twins(*pairs):
    return [pair for a, b in pairs for pair in ((a, b), (b, a))]


@pytest.mark.parametrize(
    ("entry", "gpus", "expected"),
    [
        ("among: gpu*, shape: ring", 4, twins((0, 1), (1, 2), (2, 3), (3, 0))),
        ("among: gpu*, shape: ring", 2, twins((0, 1))),
        ("among: gpu*, shape: ring", 1, []),
        ("among: gpu*, shape: line", 3, twins((0, 1), (1, 2))),
        ("among: gpu*, shape: full", 3, twins((0, 1), (0, 2), (1, 2))),
        ("among: gpu*, shape: hypercube", 4, twins((0, 2), (0, 1), (1, 3), (2, 3))),
        ("among: gpu*, shape: mesh, dims: [2, 2]", 4, twins((0, 2), (0, 1), (1, 3), (2, 3))),
        # An axis of two has one link.
        ("among: gpu*, shape: torus, dims: [2, 2]", 4, twins((0, 2), (0, 1), (1, 3), (2, 3))),
        (
            "among: gpu*, shape: torus, dims: [2, 3]",
            6,
            twins((0, 3), (0, 1), (1, 4), (1, 2), (2, 5), (2, 0), (3, 4), (4, 5), (5, 3)),
        ),
        ("among: gpu*, pairs: [[0, 1], [2, 1]]", 3, twins((0, 1), (2, 1))),
        ("between: [gpu0, [gpu1, gpu2]]", 3, twins((0, 1), (0, 2))),
        ("between: [[gpu0, gpu1], [gpu2, gpu3]], pairs: all", 4, twins((0, 2), (0, 3), (1, 2), (1, 3))),
        ('from: "gpu{i}", to: "gpu{(i + 1) % 3}", for: {i: 3}', 3, [(0, 1), (1, 2), (2, 0)]),
        (
            'from: "gpu{i}", to: "gpu{j}", for: {i: 3, j: 3}, when: i != j',
            3,
            [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)],
        ),
    ],
)
def test_who_meets_whom(entry, gpus, expected):
    assert pairs_of(entry, gpus) == expected


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ("wrap", [(0, 0), (1, 1), (2, 0), (3, 1)]),
        ("block", [(0, 0), (1, 0), (2, 1), (3, 1)]),
        ("all", [(g, n) for g in range(4) for n in range(2)]),
        ("[[0, 1], [1, 0], [2, 1], [3, 0]]", [(0, 1), (1, 0), (2, 1), (3, 0)]),
    ],
)
def test_pairs(pairs, expected):
    topology = load_text(
        f"""
        host: {{gpus: 4, switches: [s]}}
        switches: [{{name: n, count: 2}}]
        links:
          - {{between: [gpu*, s], bandwidth: 1, latency: 0}}
          - {{between: [gpu*, n*], pairs: {pairs}, bandwidth: 1, latency: 0}}
        """,
        "t.yaml",
    )
    found = [(int(a[-1]), int(b[-1])) for a, b in bandwidths(topology) if b.startswith("n")]
    assert found == expected


def test_listed_pairs_have_cables_each():
    topology = load_text(
        "gpus: 3\nlinks: [{among: gpu*, pairs: [[0, 1, 2], [1, 2]], bandwidth: 25, count: 3, latency: 0}]", "t.yaml"
    )
    assert bandwidths(topology) == both_ways(("gpu0", "gpu1", 150), ("gpu1", "gpu2", 75))


def test_hosts_of_several_kinds():
    # ForestColl's hetero3: 8 GPUs and a switch, 4 in a full mesh, 2 and a faster switch.
    topology = load_text(
        """
        host:
          - {name: a, gpus: 8, switches: [nvswitch]}
          - {name: b, gpus: 4}
          - {name: c, gpus: 2, switches: [nvswitch]}
        links:
          - {between: ["a*.gpu*", "a*.nvswitch"], bandwidth: 300, latency: 0}
          - {among: "b0.gpu*", shape: full, bandwidth: 50, latency: 0}
          - {between: ["c*.gpu*", "c*.nvswitch"], bandwidth: 450, latency: 0}
        fabric:
          switches: [ib]
          links:
            - {between: ["a*.gpu*", ib], bandwidth: 25, latency: 0}
            - {between: ["b*.gpu*", ib], bandwidth: 12, latency: 0}
            - {between: ["c*.gpu*", ib], bandwidth: 50, latency: 0}
        """,
        "t.yaml",
    )
    assert [len(host) for host in topology.hosts] == [8, 4, 2]
    assert len(topology.links) == 2 * (8 + 6 + 2 + 14)


def test_two_planes_and_two_levels():
    topology = load_text(
        """
        parameters: {hosts: 4, per_leaf: 2, rails: 2}
        host: {count: hosts, gpus: rails, switches: [sw]}
        links:
          - {between: [gpu*, sw], bandwidth: 10, latency: 0}
        fabric:
          switches:
            - {name: leaf, count: rails * hosts // per_leaf}
            - {name: spine, count: rails}
          links:
            - between: ["h{h}.gpu{r}", "leaf{r * (hosts // per_leaf) + h // per_leaf}"]
              for: {h: hosts, r: rails}
              bandwidth: 5
              latency: 0
            - {between: [leaf*, spine*], pairs: block, bandwidth: 10, latency: 0}
        """,
        "t.yaml",
    )
    links = bandwidths(topology)
    assert links["h3.gpu1", "leaf3"] == 5
    assert links["h1.gpu1", "leaf2"] == 5
    assert links["leaf2", "spine1"] == 10
    assert ("leaf1", "spine1") not in links


def test_marks_and_switches_may_depend_on_parameters():
    text = """
        parameters: {nvls: 1}
        gpus: 2
        switches: [{name: s, multicast: nvls, reduce: nvls == 2, when: nvls > 0}]
        links:
          - {between: [gpu*, s], bandwidth: 1, latency: 0}
          - {among: gpu*, shape: ring, when: nvls == 0, bandwidth: 1, latency: 0}
        """
    assert load_text(text, "t.yaml").multicast == ("s",)
    assert load_text(text, "t.yaml").reduce == ()
    off = load_text(text.replace("nvls: 1", "nvls: 0"), "t.yaml")
    assert (off.switches, len(off.links)) == ((), 2)


# --- parameters and references -------------------------------------------------------------------


def test_parameters(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(CLUSTER)
    hosts, nic = parameters(f"{path}:nic=100/3")
    assert (hosts.name, hosts.value, hosts.default, hosts.doc) == ("hosts", 2, 2, "machines")
    assert (nic.value, nic.default) == (Fraction(100, 3), 25)
    assert load(f"{path}:hosts=3,nic=100/3").link["h2.nic0", "leaf0"].bandwidth == Fraction(100, 3)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("hots=2", "no parameter 'hots'; did you mean 'hosts'?"),
        ("hosts=0", "parameter hosts is 0; expected at least 1"),
        ("hosts=2.5", "host.count: found 'hosts', which is 5/2; expected a count of hosts: a whole number"),
        ("hosts=many", "parameter hosts is 'many'; expected a number"),
        ("hosts=2x2", "parameter hosts is '2x2'; expected a number"),
        ("hosts=2,hosts=3", "parameter 'hosts' is set twice"),
        ("hosts", "'hosts' after the colon; expected KEY=VALUE"),
        ("hosts=", "override 'hosts='; expected KEY=VALUE"),
        ("hosts=1000000000", "host.count: found 'hosts', which is 1000000000; expected at most 200000"),
        ("nic=-1", "found 'nic / 2', which is -1/2; expected a bandwidth"),
    ],
)
def test_wrong_overrides(tmp_path, overrides, message):
    path = tmp_path / "c.yaml"
    path.write_text(CLUSTER)
    with pytest.raises(InputError, match=re.escape(message)):
        load(f"{path}:{overrides}")


def test_list_parameters():
    assert load("torus2d:dims=2x3").n_ranks == 6
    for wrong in ("4", "4x4x4", "4xx4", "4x-1", "4x1.5", "axb"):
        with pytest.raises(InputError, match="expected lengths such as 4x4"):
            load(f"torus2d:dims={wrong}")


def test_references(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring").write_text("gpus: [mine]")
    assert load("ring").n_ranks == 8, "a shipped name comes before a file of that name"
    assert load("./ring").n_ranks == 1
    (tmp_path / "x:a=1").write_text("gpus: [mine]")
    assert load("x:a=1").n_ranks == 1, "a file that is there is that file"


def test_standard_input(monkeypatch):
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CLUSTER.encode())))
    assert load("-:hosts=3").n_ranks == 12
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input is closed"):
        load("-")


def test_warnings(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text(
        """gpus: [a, b]
switches: [s]
links:
  - {between: [a, b], bandwidth: 1}
  - {between: [a, b], bandwidth: 1, latency: 2}
"""
    )
    loaded = open_topology(str(path))
    assert loaded.warnings == (
        "no latency given for links[0] (line 4): taken as 0 us",
        "parallel links with different latencies, a -> b first: the largest is taken",
        "1 of 1 switches have no links: s",
    )
    assert loaded.topology.link["a", "b"] == Link("a", "b", Fraction(2), Fraction(2))


def test_sources():
    loaded = open_topology("dgx-a100")
    assert [key for key, _ in loaded.sources] == ["", "parameters.nvlink", "parameters.nic"]
    assert loaded.doc.startswith("NVIDIA DGX A100")


# --- arithmetic ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("0.1 + 0.2", Fraction(3, 10)),
        ("7 // 2 + 7 % 2", 4),
        ("-(-n // 4)", 3),
        ("2 ** 10", 1024),
        ("25/3", Fraction(25, 3)),
        ("n / 4", Fraction(5, 2)),
        ("n > 4 and n < 20", 1),
        ("n == 4 or not n", 0),
        ("1 < n <= 10", 1),
        ("product(dims) + len(dims) + max(dims) + min(2, n)", 12 + 2 + 4 + 2),
        ("dims[1]", 4),
    ],
)
def test_arithmetic(text, value):
    assert parse(text)({"n": 10, "dims": (3, 4)}) == value


NUMBERS = st.recursive(
    st.integers(0, 99).map(str) | st.decimals(0, 9, places=2).map(str),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    max_leaves=6,
)


@given(NUMBERS)
@settings(max_examples=60, deadline=None)
def test_arithmetic_is_exact(text):
    expected = eval(re.sub(r"[\d.]+", lambda number: f"Fraction('{number[0]}')", text), {"Fraction": Fraction})
    assert parse(text)({}) == expected


@given(st.text(alphabet="0123456789+-*/%()[]{}.,=<> abnot_\"'", max_size=30))
@settings(max_examples=200, deadline=None)
def test_any_text_is_a_value_or_an_error(text):
    try:
        parse(text)({"a": 3, "b": (1, 2)})
    except ValueError as error:
        assert str(error)


# --- round trips and damage ----------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_characters="*{}", exclude_categories=("C", "Z")), min_size=1, max_size=8)
POSITIVE = st.fractions(min_value=Fraction(1, 1000), max_value=1000, max_denominator=1000)


@st.composite
def topologies(draw):
    names = draw(
        st.lists(
            NAMES | st.sampled_from(["no", "null", "1e3", "a b", "- x", "#", "a: b"]),
            min_size=2,
            max_size=8,
            unique=True,
        )
    )
    split = draw(st.integers(1, len(names)))
    gpus, switches = tuple(names[:split]), tuple(names[split:])
    pairs = {(names[i], names[(i + 1) % len(names)]) for i in range(len(names))}
    pairs |= draw(st.sets(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=8))
    links = tuple(Link(a, b, draw(POSITIVE), draw(POSITIVE)) for a, b in sorted(pairs) if a != b)
    cut = draw(st.integers(0, len(gpus) - 1))
    hosts = (tuple(range(cut)), tuple(range(cut, len(gpus)))) if cut else ()
    marked = tuple(switch for switch in switches if draw(st.booleans()))
    return Topology(draw(NAMES), gpus, switches, links, hosts, marked, marked[:1], draw(st.integers(1, 3)))


@given(topologies())
@settings(max_examples=80, deadline=None)
def test_the_plain_form_loads_back_equal(topology):
    text = dumps_yaml(topology)
    assert load_text(text, "t.yaml") == topology
    check_schema(text)


def test_the_plain_form_of_equal_topologies_is_the_same_bytes():
    assert dumps_yaml(load("mi250:hosts=2")) == dumps_yaml(load("mi250:hosts=2"))


def test_a_name_that_no_file_can_hold():
    with pytest.raises(InputError, match="expected printable characters"):
        dumps_yaml(Topology("t", ("a*",), (), ()))


LINK = "gpus: [a, b]\nlinks:\n  - {between: [a, b], bandwidth: 1"
SEED = example() + "\n"


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_damaged_file_is_an_error_of_ours(data):
    text = SEED
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 6))
        text = text[:at] + data.draw(st.text("[]{}:,-*&!#'\" \nab019./\t", max_size=4)) + text[at + gone :]
    try:
        load_text(text, "f.yaml")
    except CollcError as error:
        assert str(error).startswith("f.yaml")


def test_the_example_loads_and_validates():
    topology = load_text(example(), "my-cluster.yaml")
    assert (topology.n_ranks, len(topology.hosts)) == (32, 4)
    assert topology.link["h3.gpu5", "h3.nic2"].bandwidth == 25
    assert topology.link["leaf0", "spine"].bandwidth == 200
    check_schema(example())


def test_the_plain_part_of_the_example_loads():
    lines = example().partition("be written out:\n")[2].partition("# Regular shapes")[0].splitlines()
    topology = load_text("\n".join(line.removeprefix("#   ") for line in lines), "t.yaml")
    assert (topology.gpus, topology.switches) == (("g0", "g1", "g2"), ("s0",))
    assert topology.link["g1", "g2"].bandwidth == Fraction(50, 3)


def test_schema_refuses_what_the_loader_refuses():
    import jsonschema

    validator = jsonschema.Draft202012Validator(schema())
    for text in ("gpus: []", "gpus: [a]\nswiches: []", LINK + ", bandwith: 1}", LINK[:-1] + "-1}", "- a", "name: x"):
        with pytest.raises(CollcError):
            load_text(text, "f.yaml")
        assert not validator.is_valid(as_json(compose(text, "f.yaml")))


def test_schema_describes_every_key():
    def mappings(part):
        if isinstance(part, dict):
            if "properties" in part:
                yield part["properties"]
            for value in part.values():
                yield from mappings(value)

    found = [entry for properties in mappings(schema()) for entry in properties.values()]
    assert len(found) > 30
    assert all(entry.get("description") for entry in found)
    json.dumps(schema())
