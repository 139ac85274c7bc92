"""What is said of a wrong topology file: place, what was found, what was expected."""

import re

import pytest

from collc.errors import InfeasibleError, InputError
from collc.topology import load, load_text

LINK = "gpus: [a, b]\nlinks:\n  - {between: [a, b], bandwidth: 1"

WRONG = [
    # text, where, what is said
    ("- a", "1:1", "found a list; expected a mapping"),
    ("just words", "1:1", "found 'just words'; expected a mapping"),
    ("", "", "the file is empty"),
    ("# nothing\n", "", "the file is empty"),
    ("a: [1", "2:1", "not YAML"),
    ("gpus: 1\n---\ngpus: 2", "2:1", "not YAML"),
    ("gpus: [\x07]", "1:8", "not YAML: character U+0007 is not allowed"),
    ("a: b: c", "1:5", "not YAML"),
    ("gpus: [*a]", "1:8", "not YAML: found undefined alias"),
    ("gpus: &a [*a]", "1:7: gpus[0]", "found a list; expected a name"),
    ("gpus: !!python/object:os.system [x]", "1:7: gpus", "found the tag"),
    ("? [1]\n: 2", "1:3", "found a key that is a list or a mapping"),
    ("[" * 2000 + "]" * 2000, "1:1001", "not YAML: exceeded maximum nesting depth"),
    ("name: x", "1:1", "no key 'gpus' and no key 'host'; expected one of them"),
    ("gpus: [a]\nswiches: [s]", "2:1: swiches", "unknown key 'swiches'; did you mean 'switches'?"),
    ("gpus: [a]\ngpus: [b]", "2:1: gpus", "key 'gpus' is given twice (first in line 1)"),
    ("gpus: []", "1:7: gpus", "found an empty list; expected at least one GPU"),
    ("gpus: {a: 1}", "1:7: gpus", "found a mapping; expected a list of names, or a count of GPUs"),
    ("gpus: 0", "1:7: gpus", "found 0; expected a list of names, or a count of GPUs: a whole number, 1 or more"),
    ("gpus: [a, true]", "1:11: gpus[1]", "found 'true'; expected a name"),
    ("gpus: [a, a]", "1:11: gpus[1]", "vertex 'a' is declared twice"),
    ('gpus: ["a*"]', "1:8: gpus[0]", "found the name 'a*'; expected 1 to 200 printable characters"),
    ("gpus: [a, b]\nswitches: [b]", "2:12: switches[0]", "vertex 'b' is declared twice"),
    ("gpus: [a]\nswitches: [{nme: s}]", "2:13: switches[0].nme", "unknown key 'nme'; did you mean 'name'?"),
    ("gpus: 2\nhosts: 4", "2:8: hosts", "found '4'; expected a list of GPUs for each host"),
    ("gpus: 2\nhosts: [[gpu0]]", "2:8: hosts", "leaves out gpu1; expected each GPU once"),
    ("gpus: 2\nranks: [gpu*, gpu0]", "2:8: ranks", "names gpu0 twice; expected each GPU once"),
    ("gpus: 2\nranks: [gpu0, gpu2]", "2:15: ranks[1]", "there is no vertex 'gpu2'; did you mean"),
    ("gpus: 1\nranks_per_device: 0", "2:19: ranks_per_device", "found 0; expected a count of ranks"),
    ("gpus: 1\nsource: [x]", "2:9: source", "found a list; expected a sentence"),
    ("host: {gpus: 8, nicks: 2}", "1:17: host.nicks", "unknown key 'nicks'; did you mean 'nics'?"),
    ("host: {count: 2}", "1:7: host", "no key 'gpus'; expected a count of GPUs"),
    ("host: {gpus: 1000000000}", "1:14: host.gpus", "found 1000000000; expected at most 200000"),
    ("host: {gpus: 2}\nhosts: [[a]]", "2:8: hosts", "stands beside 'host'"),
    ("host: {gpus: 1, count: 2}\nhosts: 2", "2:8: hosts", "stands beside 'host'"),
    ("gpus: [a, b]\nlinks: {between: [a, b]}", "2:8: links", "found a mapping; expected a list of links"),
    ("gpus: [a, b]\nlinks:\n  - {from: a, bandwidth: 1}", "3:5: links[0]", "found 'from'; expected 'from' and 'to'"),
    ("gpus: [a, b]\nlinks:\n  - {bandwidth: 1}", "3:5: links[0]", "found no ends; expected 'from' and 'to'"),
    ("gpus: [a, b]\nlinks:\n  - {between: [a], bandwidth: 1}", "3:15: links[0].between", "found 1 ends; expected two"),
    (
        "gpus: [a, b]\nlinks:\n  - {between: [a, b]}",
        "3:5: links[0]",
        "no key 'bandwidth'; expected a bandwidth in GB/s",
    ),
    (LINK + ", latency: -1}", "3:46: links[0].latency", "found -1; expected a latency in us, zero or more"),
    (LINK + ", count: 1.5}", "3:44: links[0].count", "found '1.5', which is 3/2; expected a count of cables"),
    (LINK + ", count: 0}", "3:44: links[0].count", "found 0; expected a count of cables: a whole number, 1 or more"),
    (LINK + ", bandwith: 2}", "3:37: links[0].bandwith", "unknown key 'bandwith'; did you mean 'bandwidth'?"),
    (LINK + ", pairs: some}", "3:44: links[0].pairs", "found 'some'; did you mean 'same'?"),
    (LINK + ", shape: ring}", "3:44: links[0].shape", "found a shape; expected it only with 'among'"),
]
WRONG += [
    (f"gpus: [a, b]\nlinks:\n  - {{between: [a, b], bandwidth: {value}}}", "3:34: links[0].bandwidth", message)
    for value, message in [
        ("25 GB", "found '25 GB': no number and no arithmetic; expected a bandwidth in GB/s, such as 25 or 25/3"),
        ("-25", "found -25; expected a bandwidth in GB/s, such as 25 or 25/3, more than zero"),
        ("0", "found 0; expected a bandwidth"),
        ("-0.0", "found '-0.0', which is 0; expected a bandwidth"),
        (".nan", "found '.nan'; expected a bandwidth"),
        ("-.inf", "found '-.inf'; expected a bandwidth"),
        ("inf", "'inf': there is no parameter 'inf'"),
        ("[25]", "found a list; expected a bandwidth"),
        ("true", "found 'true'; expected a bandwidth"),
        ("", "found nothing; expected a bandwidth"),
        ("1/0", "'1/0': divides by zero"),
        ("1e99999999", "found '1e99999999'; expected a bandwidth"),
        ("1_000", "found '1_000': '1_000' is not a number"),
        ("'__import__(\"os\")'", "is not simple arithmetic"),
        ("9**9**9", "'9**9**9': takes a power that is no whole number from 0 to 64"),
        ("2**64**64", "'2**64**64': takes a power"),
        ("(2**64)**64 * (2**64)**64", "is larger than any number that makes sense here"),
        ('"(lambda: 1)()"', "is not simple arithmetic"),
        ('"[1 for i in 1]"', "is not simple arithmetic"),
        ("a.b", "'a.b' is not simple arithmetic"),
        ("1 +", "no number and no arithmetic"),
        ("'" + "1+" * 200 + "1'", "401 characters; at most 200 are read"),
    ]
]
WRONG += [
    (f"gpus: 6\nlinks:\n  - {{{entry}, bandwidth: 1}}", where, message)
    for entry, where, message in [
        ("between: [gpu0, gpu6]", "3:22: links[0].between[1]", "there is no vertex 'gpu6'; did you mean 'gpu"),
        ("between: [gpu0, nic*]", "3:22: links[0].between[1]", "no vertex matches 'nic*'; expected one of gpu*"),
        ("between: [gpu0, gpu0]", "3:5: links[0]", "link from 'gpu0' to itself; expected two different vertices"),
        ("from: gpu0, to: gpu*", "3:5: links[0]", "link from 'gpu0' to itself"),
        ("between: [gpu*, gpu*]", "3:15: links[0].between", "both ends are 'gpu*'; expected 'among'"),
        ("between: [[], gpu0]", "3:16: links[0].between[0]", "found an empty list; expected at least one vertex"),
        ("among: gpu*", "3:5: links[0]", "'among' needs either a 'shape' or a list of 'pairs'"),
        ("among: gpu*, pairs: all", "3:5: links[0]", "'among' needs either a 'shape' or a list of 'pairs'"),
        ("among: gpu*, shape: rings", "3:26: links[0].shape", "found 'rings'; did you mean 'ring'?"),
        ("among: gpu*, shape: torus", "3:5: links[0]", "found a torus without 'dims'"),
        ("among: gpu*, shape: ring, dims: [6]", "3:5: links[0]", "found 'dims'; expected it only with a mesh or torus"),
        ("among: gpu*, shape: mesh, dims: [2, 2]", "3:38: links[0].dims", "dims 2 x 2 make 4 places; expected 6"),
        ("among: gpu*, shape: mesh, dims: [2, 0]", "3:42: links[0].dims[1]", "found 0; expected a length: a whole"),
        ("among: gpu*, shape: hypercube", "3:5: links[0]", "a hypercube of 6 vertices; expected a power of two"),
        ("among: gpu*, pairs: [[0, 6]]", "3:31: links[0].pairs[0][1]", "found place 6; expected 0 to 5"),
        ("among: gpu*, pairs: [[0]]", "3:27: links[0].pairs[0]", "found 1 entries; expected [i, j] or"),
        ("among: gpu*, pairs: [[1, 1]]", "3:5: links[0]", "link from 'gpu1' to itself"),
        ("among: gpu*, pairs: [[0, 1], [1, 0]]", "3:35: links[0].pairs[1]", "the pair [1, 0] is given twice"),
        ("among: gpu*, pairs: [[0, 1, 0]]", "3:34: links[0].pairs[0][2]", "found 0; expected a count of cables"),
        ('from: "gpu{k}", to: gpu1, for: {i: 2}', "3:12: links[0].from", "'{k}' there is no parameter 'k'"),
        ('from: "gpu{1/2}", to: gpu1', "3:12: links[0].from", "'{1/2}' is 1/2; expected a whole number"),
        ('from: "gpu{", to: gpu1', "3:12: links[0].from", "there is no vertex 'gpu{'"),
        ("from: gpu0, to: gpu1, for: {i: -1}", "3:37: links[0].for.i", "found -1; expected a count"),
        ("from: gpu0, to: gpu1, for: {1i: 1}", "3:38: links[0].for.1i", "found the variable '1i'"),
        ("from: gpu0, to: gpu1, for: {i: 100000, j: 100000}", "3:5: links[0]", "'for' has 10000000000 rounds"),
        ("between: [[gpu0, gpu1], [gpu2, gpu3, gpu4]]", "3:5: links[0]", "2 and 3 vertices meet; expected 'pairs'"),
        (
            "between: [[gpu0, gpu1], [gpu2, gpu3, gpu4]], pairs: same",
            "3:5: links[0]",
            "pairs: same, for 2 and 3 vertices; expected as many on both sides",
        ),
        (
            "between: [[gpu0, gpu1], [gpu2, gpu3, gpu4]], pairs: block",
            "3:5: links[0]",
            "pairs: block, for 2 and 3 vertices; expected 2 equal shares of 3",
        ),
    ]
]
WRONG += [
    ("parameters: [a]\ngpus: 1", "1:13: parameters", "found a list; expected a mapping of names to default values"),
    ("parameters: {1a: 2}\ngpus: 1", "1:18: parameters.1a", "found the name '1a'; expected letters, digits and '_'"),
    ("parameters: {min: 2}\ngpus: 1", "1:19: parameters.min", "found the name 'min'"),
    ("parameters: {a: {doc: x}}\ngpus: 1", "1:17: parameters.a", "no key 'default'"),
    ("parameters: {a: []}\ngpus: 1", "1:17: parameters.a", "found an empty list"),
    (
        "parameters: {a: {default: 3, max: 2}}\ngpus: 1",
        "1:27: parameters.a.default",
        "parameter a is 3; expected at most 2",
    ),
    ("parameters: {a: b, b: 1}\ngpus: 1", "1:17: parameters.a", "'b': there is no parameter 'b'"),
    ("parameters: {a: [2, 2]}\ngpus: a", "2:7: gpus", "found the list [2, 2]; expected a list of names, or a count"),
    ("parameters: {a: [2, 2]}\ngpus: a[2]", "2:7: gpus", "'a[2]': asks for entry 2 of a list of 2"),
    (
        "gpus: 200000\nlinks: [{among: gpu*, shape: full, bandwidth: 1}]",
        "2:9: links[0]",
        "makes more than 1000000 links",
    ),
    ("host: {gpus: 100, count: 100000}", "1:7: host", "100000 hosts make 10000000 vertices; expected at most 200000"),
    (
        "host: {gpus: 2, count: 2}\nfabric:\n  links:\n    - {between: [gpu*, laef], bandwidth: 1}",
        "4:24: fabric.links[0].between[1]",
        "there is no vertex 'laef'",
    ),
]


@pytest.mark.parametrize(("text", "where", "message"), WRONG, ids=[f"{w} {m[:40]}" for _, w, m in WRONG])
def test_wrong_files(text, where, message):
    with pytest.raises(InputError) as caught:
        load_text(text, "f.yaml")
    assert str(caught.value).startswith(f"f.yaml:{where}: " if where else "f.yaml: "), str(caught.value)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus: [a, b]", "GPU a cannot reach any other GPU: no link leaves it"),
        (
            "gpus: [a, b, c]\nlinks: [{between: [a, b], bandwidth: 1}]",
            "GPU c cannot be reached from a: no link enters it",
        ),
        (
            "gpus: [a, b, c]\nlinks: [{between: [a, b], bandwidth: 1}, {from: a, to: c, bandwidth: 1}]",
            "GPU c cannot reach a: no link leaves it",
        ),
        (
            "host: {gpus: 2, count: 2, switches: [s]}\nlinks: [{between: [gpu*, s], bandwidth: 1}]",
            "2 GPUs, h1.gpu0, h1.gpu1, cannot be reached from h0.gpu0: "
            "no link enters the 3 vertices h1.gpu0, h1.gpu1, h1.s",
        ),
        (
            "gpus: 3\nlinks: [{from: gpu0, to: gpu1, bandwidth: 1}, {from: gpu1, to: gpu2, bandwidth: 1}]",
            "2 GPUs, gpu1, gpu2, cannot reach gpu0: no link leaves the 2 vertices gpu1, gpu2",
        ),
    ],
)
def test_gpus_that_cannot_reach_each_other(text, message):
    with pytest.raises(InfeasibleError, match=re.escape(message)) as caught:
        load_text(text, "f.yaml")
    assert caught.value.exit_code == 3


def write(tmp_path, content):
    path = tmp_path / "t.yaml"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"#" * (40 * 2**20), "t.yaml: is larger than 8 MiB"),
        (bytes(range(256)), "t.yaml:1: holds a zero byte; expected a text file"),
        (b"gpus: 1\n# \xff\n", "t.yaml:2: byte 0xff is not UTF-8"),
        ("gpus: 1".encode("utf-16"), "t.yaml:1: holds a zero byte"),
        (b"", "t.yaml: the file is empty"),
    ],
)
def test_files_that_are_no_text(tmp_path, content, message):
    with pytest.raises(InputError, match=re.escape(message)):
        load(str(write(tmp_path, content)))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="is a directory; expected a topology file"):
        load(str(tmp_path))
    with pytest.raises(InputError, match="no such file"):
        load(str(tmp_path / "none.yaml"))
    with pytest.raises(InputError, match="did you mean 'dgx-a100'"):
        load("dgx-a10")
    with pytest.raises(InputError, match="cannot be read: Not a directory"):
        load(str(write(tmp_path, b"gpus: 1") / "x"))
    for nothing in ("", "a\0b"):
        with pytest.raises(InputError, match="no topology is named"):
            load(nothing)


def test_no_permission(tmp_path):
    path = write(tmp_path, b"gpus: 1")
    path.chmod(0)
    try:
        path.read_bytes()
    except PermissionError:
        with pytest.raises(InputError, match="cannot be read: Permission denied"):
            load(str(path))
    else:
        pytest.skip("this user may read everything")


def test_byte_order_mark_and_line_ends(tmp_path):
    assert load(str(write(tmp_path, b"\xef\xbb\xbfgpus: 1\r\n"))).n_ranks == 1


def test_a_billion_laughs_is_a_short_error():
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 30)]
    with pytest.raises(InputError, match="unknown key 'l0'"):
        load_text("\n".join(lines), "f.yaml")
    inside = "\n".join(["gpus:", *(f"  - &{line.partition('&')[2]}" for line in lines)])
    with pytest.raises(InputError, match=r"gpus\[0\]: found a list; expected a name"):
        load_text(inside, "f.yaml")


def test_patterns_take_linear_time():
    text = f'gpus: 3000\nlinks: [{{between: ["{"*a" * 100}*b", gpu1], bandwidth: 1}}]'
    with pytest.raises(InputError, match="no vertex matches"):
        load_text(text, "f.yaml")


def test_half_a_character_pair():
    for text in ("gpus: [\ud800]", 'gpus: ["\\ud800"]'):
        with pytest.raises(InputError, match="not YAML"):
            load_text(text, "f.yaml")


def test_python_says_nothing_of_odd_arithmetic(recwarn):
    with pytest.raises(InputError):
        load_text("gpus: 1if 2else 3", "f.yaml")
    assert not recwarn.list
