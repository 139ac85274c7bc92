"""`collc topo`: what it prints where, as text and as data."""

import json
import subprocess
import sys
from fractions import Fraction

import pytest

from collc.cli.topo_text import describe
from collc.topology import load, load_text, shipped


def topo(*words, given="", cwd=None):
    """Exit code, stdout and stderr of a command."""
    command = [sys.executable, "-m", "collc", "topo", *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, cwd=cwd)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def test_list():
    code, out, err = topo("list")
    assert (code, err) == (0, "")
    names = [line.split()[0] for line in out.splitlines()]
    assert names == ["name", *shipped()]
    assert "NVIDIA DGX A100, 8 GPUs on NVSwitch" in out


def test_list_as_data():
    code, out, _ = topo("list", "--json")
    found = {entry["name"]: entry for entry in json.loads(out)}
    assert code == 0
    assert tuple(found) == shipped()
    assert found["torus2d"]["parameters"][0] == {
        "name": "dims",
        "value": "4x4",
        "default": "4x4",
        "doc": "lengths of the axes, as in dims=8x8",
    }


def test_show():
    code, out, err = topo("show", "mi250:hosts=2")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "32 ranks on 2 hosts of 16 GPUs; 1 ib; 176 links" in lines
    assert "2 ranks share a device" in lines
    assert "hosts 2 1 machines" in lines
    assert "gpu <-> gpu 16 200 0.7" in lines, "16 devices of two GCDs, four lanes of 50"
    assert "gpu <-> gpu 8 100 0.7" in lines
    assert "gpu <-> gpu 32 50 0.7" in lines
    assert "gpu <-> ib 32 16 1.3" in lines
    assert "parameters.ib ForestColl (arXiv:2402.06787)" in lines


def test_show_one_way_links():
    _, out, _ = topo("show", "ndv2:hosts=3")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "gpu -> ib 3 12.5 1.3" in lines
    assert "ib -> gpu 3 12.5 1.3" in lines
    one_way = "gpus: 3\nlinks: [{from: 'gpu{i}', to: 'gpu{(i+1)%3}', for: {i: 3}, bandwidth: 1}]"
    _, out, _ = topo("show", "-", given=one_way)
    assert "gpu -> gpu 3 1 0" in [" ".join(line.split()) for line in out.splitlines()]


def test_show_as_data_and_as_yaml():
    code, out, _ = topo("show", "dgx-h100", "--json")
    shown = json.loads(out)
    assert code == 0
    assert shown["switches"] == [{"name": "h0.nvswitch", "multicast": True, "reduce": True}]
    assert shown["links"][0] == {
        "src": "h0.gpu0",
        "dst": "h0.nvswitch",
        "bandwidth_GBps": 450.0,
        "bandwidth_exact": "450",
        "latency_us": 0.7,
    }
    _, out, _ = topo("show", "dgx2:hosts=3", "--yaml")
    assert load_text(out, "t.yaml") == load("dgx2:hosts=3")


def test_warnings_go_to_stderr():
    code, out, err = topo("show", "-", "--json", given="gpus: 2\nlinks: [{among: gpu*, shape: ring, bandwidth: 1}]")
    assert code == 0
    assert json.loads(out)["warnings"] == ["no latency given for links[0] (line 2): taken as 0 us"]
    assert err == "collc: warning: no latency given for links[0] (line 2): taken as 0 us\n"


def test_new_and_schema(tmp_path):
    code, text, _ = topo("new")
    assert code == 0
    assert topo("new", "-o", "mine.yaml", cwd=tmp_path)[:2] == (0, "")
    assert (tmp_path / "mine.yaml").read_text() == text
    assert topo("show", "mine.yaml:hosts=2", cwd=tmp_path)[0] == 0
    code, out, _ = topo("schema")
    assert code == 0
    assert json.loads(out)["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    code, _, err = topo("new", "-o", "mine.yaml/x", cwd=tmp_path)
    assert code == 2
    assert "mine.yaml" in err


# --- bounds --------------------------------------------------------------------------------------

# From the shared reference: exact optimum of allgather [GB/s].
OPTIMA = [
    ("dgx-a100", "2400/7"),
    ("dgx-a100:hosts=2", "1040/3"),
    ("dgx-a100:hosts=4", "800/3"),
    ("dgx-h100:hosts=2", "1600/3"),
    ("dgx-h100:hosts=4", "16000/31"),
    ("mi250", "2400/7"),
    ("mi250:hosts=2", "5312/15"),
    ("dgx1-v100", "1200/7"),
    ("ndv2:hosts=2", "25"),
    ("torus2d:bandwidth=1", "64/15"),
    ("hypercube:bandwidth=1", "64/15"),
    ("ring:bandwidth=1", "16/7"),
]


@pytest.mark.parametrize(("reference", "optimum"), OPTIMA)
def test_published_optima(reference, optimum):
    from collc import cost
    from collc.ir.collective import Problem, make_collective

    topology = load(reference)
    bound = cost.bound(Problem(topology, make_collective("allgather", topology.n_ranks)))
    assert bound is not None
    assert bound.algbw == Fraction(optimum)


def test_bound_in_words():
    code, out, err = topo("bound", "dgx-a100:hosts=4")
    assert (code, err) == (0, "")
    assert "800/3 = 266.667 GB/s algbw" in out
    assert "24 GPUs inside, 8 x 25 GB/s leaving" in out or "8 GPUs inside, 8 x 25 GB/s leaving" in out
    assert "host" in out


def test_bound_as_data():
    code, out, _ = topo("bound", "mi250:hosts=2", "--json")
    shown = json.loads(out)
    assert code == 0
    assert shown["ranks"] == 32
    assert shown["collective"] == "allgather"
    assert shown["bound_exact"] == "5312/15"
    assert shown["bound_algbw_GBps"] == pytest.approx(5312 / 15)
    cut = shown["witness"]
    assert cut["kind"] == "cut"
    leaving = sum(bandwidth for _, _, bandwidth in cut["links_leaving"])
    # All GPUs but two: 30 of 32 shares over 332 GB/s.
    assert (len(cut["gpus_inside"]), leaving) == (30, 332)
    assert Fraction(cut["ratio_exact"]) == 1 / Fraction(shown["bound_exact"])
    assert shown["seconds"] >= 0


def test_bound_of_other_collectives():
    assert "640/3 = 213.333" in topo("bound", "torus2d", "-c", "reduce_scatter")[1]
    code, out, _ = topo("bound", "torus2d", "-c", "allreduce")
    assert code == 0
    assert "each byte of the message needs 30 transfers or more" in out
    assert "64 links" in out


def test_bound_of_one_gpu():
    code, out, _ = topo("bound", "ring:gpus=1", "--json")
    assert code == 0
    assert json.loads(out)["bound_exact"] is None
    assert "nothing moves" in topo("bound", "ring:gpus=1")[1]


@pytest.mark.parametrize(
    ("words", "given", "code", "message"),
    [
        (("show", "dgx-a10"), "", 2, "did you mean 'dgx-a100'?"),
        (("show", "ring:gpu=3"), "", 2, "no parameter 'gpu'; did you mean 'gpus'?"),
        (("show", "-"), "- a", 2, "<stdin>:1:1: found a list"),
        (("show", "-"), "gpus: [a, b]", 3, "GPU a cannot reach any other GPU"),
        (("bound", "-"), "gpus: 2\nlinks: [{from: gpu0, to: gpu1, bandwidth: 1}]", 3, "cannot reach gpu0"),
        (("bound", "ring", "-c", "allgathr"), "", 2, "did you mean 'allgather'?"),
        (("bound", "ring", "-c", "allgather", "--root", "1"), "", 2, "allgather has no root"),
        (("lst",), "", 2, "lst"),
        (("show",), "", 2, "TOPOLOGY"),
    ],
)
def test_errors(words, given, code, message):
    found, out, err = topo(*words, given=given)
    assert (found, out) == (code, "")
    assert message in err


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (range(8), "host 0"),
        (range(8, 16), "host 1"),
        (range(16), "hosts 0-1"),
        ([*range(8), *range(16, 24)], "hosts 0, 2"),
        ([0, 3], "h0.gpu0, h0.gpu3"),
        ([*range(8), 8, 9], "host 0 and h1.gpu0, h1.gpu1"),
        ([0, 1, 2, 3, 4, 5], "h0.gpu0, h0.gpu1, h0.gpu2, ... h0.gpu5"),
        (range(1, 24), "all but h0.gpu0"),
        (range(2, 24), "all but h0.gpu0, h0.gpu1"),
    ],
)
def test_ranks_in_words(ranks, words):
    assert describe(load("dgx-a100:hosts=3"), list(ranks)) == words


def test_ranks_in_words_without_hosts():
    ring = load("ring:gpus=6")
    assert describe(ring, [0, 1]) == "gpu0, gpu1"
    assert describe(ring, [0, 1, 2, 3, 4]) == "all but gpu5"


def test_help_is_quick():
    script = "import resource, collc.cli, sys; sys.argv = ['collc', 'topo', '--help']\n"
    script += (
        "try: collc.cli.main()\nfinally: print(resource.getrusage(resource.RUSAGE_SELF).ru_utime, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "List, show and bound" in done.stdout
    assert float(done.stderr) < 0.3


@pytest.mark.parametrize(("forwarding", "limit"), [("nic", "1/9"), ("host", "2/27")])
def test_generated_hosts_narrower_than_their_cables(tmp_path, forwarding, limit):
    """Source: 2309.13541, host bottleneck of the 3x3x3 torus."""
    file = str(tmp_path / "torus.yaml")
    asked = ["generate", "torus", "dims=3x3x3", "--bandwidth", "1", "--host-bandwidth", "4", "-o", file]
    assert topo(*asked, "--forwarding", forwarding) == (0, "", "")
    fabric = load(file)
    command = [sys.executable, "-m", "collc", "synth", file, "-c", "alltoall", "-s", "mcf", "--no-cache", "--json"]
    shown = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert shown["guarantee"] == "optimal"
    assert shown["bound_algbw_GBps"] == pytest.approx(float(Fraction(limit) * fabric.n_ranks), rel=1e-9)


def test_forwarding_is_a_question_of_hosts():
    code, _, err = topo("generate", "torus", "dims=3x3", "--forwarding", "host")
    assert code == 2
    assert "give --host-bandwidth too" in err
