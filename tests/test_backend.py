"""What is written: golden files, the syntax the runtimes' readers take, and the way back to the program."""

from __future__ import annotations

import json
from dataclasses import replace

import fabrics
import interpreter
import pytest
from cases import xml_program
from cases.lowering import RUNTIMES, flow_of, flows, lower
from conftest import GOLDEN

from collc import registry, runtimes, verify
from collc.backend.msccl import Msccl
from collc.errors import UnsupportedError
from collc.ir.collective import alltoallv, make_collective
from collc.ir.flow import FlowSchedule
from collc.ir.program import Buffer, Compiled, Gpu, Instruction, Op, Slot, Threadblock
from collc.ir.text import loads
from collc.ir.topology import Topology


def compiled(flow: FlowSchedule, runtime: str, **options: object) -> Compiled:
    program = lower(flow, runtimes.load(runtime), **options)  # type: ignore[arg-type]
    inplace = bool(options.get("inplace"))
    return Compiled(flow, None, program, program.collective.size_chunks, None, inplace, not inplace)


def emit(entry: Compiled, runtime: str) -> dict[str, str]:
    files: dict[str, str] = registry.load("backend", "msccl", runtime=runtime).emit([entry])
    return files


def head(text: str) -> dict[str, str]:
    return dict(part.split("=") for part in text.splitlines()[0].removeprefix("<algo ").replace('"', "")[:-1].split())


def small(name: str, n: int = 3, topology: Topology | None = None) -> FlowSchedule:
    flow = flow_of(topology or fabrics.star(n), make_collective(name, n), "direct")
    assert flow is not None
    return flow


# --- golden files ---------------------------------------------------------------------------------

CASES = [
    ("executor", "allgather", {}),
    ("executor", "allreduce", {"instances": 2}),
    ("executor", "broadcast", {"protocol": "LL"}),
    ("executor", "gather", {}),
    ("rccl", "allreduce", {}),
    ("rccl", "reduce_scatter", {"inplace": True}),
    ("rccl", "scatter", {}),
    ("classic", "alltoall", {"inplace": True}),
    ("classic", "reduce", {"protocol": "LL128"}),
]


@pytest.mark.parametrize(("runtime", "name", "options"), CASES)
def test_golden(golden, runtime, name, options):
    entry = compiled(small(name, topology=fabrics.path(3)), runtime, **options)
    (text,) = emit(entry, runtime).values()
    golden(f"msccl/{runtime}-{name}.xml", text)


def test_every_golden_file_has_its_case():
    assert {path.stem for path in (GOLDEN / "msccl").iterdir()} == {f"{runtime}-{name}" for runtime, name, _ in CASES}


# --- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("inplace", [False, True])
def test_files_read_back_by_other_code_do_the_right_thing(runtime, inplace):
    consumer = runtimes.load(runtime)
    for topology in (fabrics.one_way_ring(4), fabrics.star(3)):
        for flow in flows(topology, *consumer.collectives, seed=1):
            entry = compiled(flow, runtime, inplace=inplace, instances=2)
            (text,) = emit(entry, runtime).values()
            assert not xml_program.syntax_faults(text)
            _, read = xml_program.read(text, root=entry.program.collective.root)
            assert read == replace(entry.program, notes=())
            assert all(interpreter.run(read, seed, 2).is_right for seed in range(2))
            assert verify.check_text(text, runtime, name="x.xml").ok()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_head_has_what_the_runtime_requires(runtime):
    consumer = runtimes.load(runtime)
    (text,) = emit(compiled(small("reduce_scatter"), runtime), runtime).values()
    found = head(text)
    assert set(consumer.required) <= set(found)
    assert found["coll"] == ("reduce_scatter" if runtime == "classic" else "reducescatter")
    assert (found["ngpus"], found["nchunksperloop"], found["minBytes"]) == ("3", "3", "3")
    assert found["maxBytes"] == (str(2**63 - 1) if runtime == "classic" else "0")
    assert next(iter(found)) == "name"
    # Every step type of the file is one the runtime executes.
    kinds = {part.split('"')[1] for part in text.split() if part.startswith("type=")}
    assert kinds <= set(consumer.step_types)


@pytest.mark.parametrize(("runtime", "top"), [("executor", "4096"), ("rccl", "4096"), ("classic", "4097")])
def test_the_upper_end_of_the_sizes_is_read_as_the_runtime_reads_it(runtime, top):
    entry = replace(compiled(small("allreduce"), runtime), min_bytes=1024, max_bytes=4096)
    ((name, text),) = emit(entry, runtime).items()
    assert (head(text)["minBytes"], head(text)["maxBytes"]) == ("1024", top)
    assert "-1024-4096" in name


@pytest.mark.parametrize("runtime", ["executor", "rccl"])
@pytest.mark.parametrize("name", ["gather", "scatter"])
def test_gather_and_scatter_count_one_block(runtime, name):
    flow = small(name, 4)
    entry = replace(compiled(flow, runtime), min_bytes=997, max_bytes=4003)
    (text,) = emit(entry, runtime).values()
    assert head(text)["nchunksperloop"] == "1"
    # 250 bytes a block is the first that is in the range, and 1000 the last.
    assert (head(text)["minBytes"], head(text)["maxBytes"]) == ("250", "1000")


def test_one_file_serves_both_calls_where_the_runtime_lets_it():
    entry = replace(compiled(small("allreduce"), "executor", inplace=True), inplace=True, outofplace=True)
    ((name, text),) = emit(entry, "executor").items()
    assert (head(text)["inplace"], head(text)["outofplace"]) == ("1", "1")
    assert name == "allreduce-star3-3ranks.xml"


def test_classic_gets_a_file_for_each_kind_of_call():
    files = emit(replace(compiled(small("allreduce"), "classic"), inplace=True, outofplace=True), "classic")
    assert {name: head(text)["inplace"] for name, text in files.items()} == {
        "allreduce-star3-3ranks-inplace.xml": "1",
        "allreduce-star3-3ranks-outofplace.xml": "0",
    }
    assert len({head(text)["name"] for text in files.values()}) == 2


def test_long_and_foreign_names_are_cut_to_what_the_readers_hold():
    flow = small("allreduce")
    named = replace(flow.problem.topology, name='größer "than" <63>' * 9)
    entry = replace(compiled(flow, "executor"), made=replace(flow, problem=replace(flow.problem, topology=named)))
    ((name, text),) = emit(entry, "executor").items()
    assert not xml_program.syntax_faults(text)
    assert name.isascii() and '"' not in name and "/" not in name


# --- waits ----------------------------------------------------------------------------------------


def test_several_waits_become_nops_and_a_wait_names_the_padded_step():
    # A step that waits for three threadblocks, and another that waits for it, on a rank with its own transfers.
    program = lower(small("broadcast"), runtimes.load("rccl"))

    def copy(at: int, *after: tuple[int, int]) -> Instruction:
        return Instruction(Op.COPY, Slot(Buffer.INPUT, 0), Slot(Buffer.SCRATCH, at), 1, after)

    blocks = [Threadblock(None, None, 0, (copy(at),)) for at in range(3)]
    blocks += [Threadblock(None, None, 0, (copy(3, (0, 0), (1, 0), (2, 0)), copy(4)))]
    blocks += [Threadblock(None, None, 0, (copy(5, (3, 0)),))]
    last = program.gpus[2]
    gpu = Gpu(2, 6, (*last.threadblocks, *(shifted(block, len(last.threadblocks)) for block in blocks)))
    program = replace(program, gpus=(*program.gpus[:2], gpu))
    (text,) = emit(Compiled(small("broadcast"), None, program, 1, None, False, True), "rccl").values()
    lines = text.splitlines()
    nops = [index for index, line in enumerate(lines) if 'type="nop"' in line]
    assert len(nops) == 2 and nops[1] == nops[0] + 1
    assert 's="2" type="cpy"' in lines[nops[1] + 1]
    assert 'hasdep="1"' in lines[nops[1] + 1]
    assert any('deps="2"' in line for line in lines)
    assert xml_program.read(text, root=0)[1] == replace(program, notes=())


def shifted(block: Threadblock, by: int) -> Threadblock:
    """The same threadblock on a rank where `by` others stand in front of what it waits for."""
    return replace(
        block,
        instructions=tuple(
            replace(one, after=tuple((number + by, at) for number, at in one.after)) for one in block.instructions
        ),
    )


# --- refusals, and collc's own form ---------------------------------------------------------------


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_collective_the_runtime_lacks_is_refused_by_name(runtime):
    flow = flow_of(fabrics.path(2), alltoallv([[0, 2], [1, 0]]), "direct")
    reason = Msccl(runtime).supports("alltoallv")
    assert reason is not None
    assert reason.startswith(f"{runtime} has no alltoallv; it serves ")
    assert all(name in reason for name in runtimes.load(runtime).collectives)
    with pytest.raises(UnsupportedError, match="has no alltoallv"):
        emit(Compiled(flow), runtime)
    assert Msccl(runtime).supports("allgather") is None


@pytest.mark.parametrize("name", ["gather", "scatter"])
def test_classic_has_neither_gather_nor_scatter(name):
    assert (Msccl("classic").supports(name) or "").startswith(f"classic has no {name}; it serves allgather, allreduce")


def test_json_keeps_the_flow_exactly():
    backend = registry.load("backend", "json")
    assert backend.supports("alltoallv") is None
    for flow in flows(fabrics.two_levels(), "allgather", "alltoallv", seed=4):
        ((name, text),) = backend.emit([Compiled(flow)]).items()
        assert name == f"{flow.problem.collective.name}-two-levels-8ranks.json"
        assert loads(text) == flow
        assert json.loads(text)["collc"]
        assert verify.check_text(text, None, name=name).ok()


def test_emitting_twice_gives_the_same_bytes():
    entry = compiled(small("allreduce", 4, fabrics.star(4)), "executor", instances=3)
    assert emit(entry, "executor") == emit(entry, "executor")


def test_what_was_not_lowered_cannot_be_written():
    with pytest.raises(TypeError, match="not lowered"):
        emit(Compiled(small("allreduce")), "executor")
