"""Plans carried out: by threads that pass buffers, and by processes over MPI; every byte arrives once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import numpy
import pytest
from fast_cases import MACHINES, demand, h200

from collc.errors import InputError
from collc.fast import Machine, Plan, file, plan
from collc.fast.execute import Mailboxes, execute

MPIEXEC = Path(sys.executable).parent / "mpiexec"


def carried_out(made: Plan) -> None:
    """Each rank in a thread; what arrives is what was meant for it, block by block."""
    n, rng = made.machine.n_ranks, numpy.random.default_rng(3)
    blocks = {
        (a, b): rng.integers(0, 256, int(made.matrix[a, b]), dtype=numpy.uint8) for a in range(n) for b in range(n)
    }
    send = [numpy.concatenate([blocks[a, b] for b in range(n)]) for a in range(n)]
    wanted = [numpy.concatenate([blocks[a, b] for a in range(n)]) for b in range(n)]
    came = [~buffer for buffer in wanted]
    mail, failures = Mailboxes(), []

    def work(rank: int) -> None:
        try:
            execute(made, mail.of(rank), send[rank], came[rank])
        except Exception as error:
            failures.append((rank, error))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for rank in range(n):
        assert (came[rank] == wanted[rank]).all(), rank
    assert all(box.empty() for box in mail.boxes.values())


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("method", ["staged", "direct"])
def test_every_byte_arrives_once(name, method):
    machine = MACHINES[name]
    for seed in range(4):
        rng = numpy.random.default_rng(seed)
        matrix = (rng.random((machine.n_ranks,) * 2) ** 4 * (3000 if seed else 9)).astype(numpy.int64)
        matrix[rng.random(matrix.shape) < 0.4 * (seed % 2)] = 0
        carried_out(plan(matrix, machine, method=method))


def test_an_updated_plan_is_carried_out():
    matrix, machine = demand("zipf-expert", 2) // 512, h200(2)
    made = plan(matrix, machine)
    carried_out(made.update(matrix + numpy.arange(16)))


def test_staging_is_as_large_as_needed_and_no_larger():
    """The executor keeps what it holds in buffers of the stated size; a byte less in any is too little."""
    made = file.loads(file.dumps(plan(demand("zipf-cell", 2) // 512, h200(2), method="staged")))
    handed_in, passed_on = (sizes.copy() for sizes in made.staging)
    assert handed_in.any()
    assert passed_on.any()
    for sizes in (handed_in, passed_on):
        rank = int(sizes.argmax())
        sizes[rank] -= 2
        object.__setattr__(made, "staging", (handed_in, passed_on))
        with pytest.raises(InputError, match="more staging"):
            execute(
                made,
                Mailboxes().of(rank),
                numpy.zeros(made.matrix[rank].sum(), dtype=numpy.uint8),
                numpy.zeros(made.matrix[:, rank].sum(), dtype=numpy.uint8),
            )
        sizes[rank] += 2


def test_a_buffer_of_the_wrong_length_is_refused():
    made = plan(demand("balanced", 1) // 512, h200(1))
    with pytest.raises(InputError, match="send buffer"):
        execute(made, Mailboxes().of(0), numpy.zeros(3, dtype=numpy.uint8), numpy.zeros(3, dtype=numpy.uint8))


needs_mpi = pytest.mark.skipif(find_spec("mpi4py") is None or not MPIEXEC.exists(), reason="the extra mpi is not there")


def over_mpi(path: Path, ranks: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(MPIEXEC), "-n", str(ranks), sys.executable, "-m", "collc.fast", "run", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@needs_mpi
@pytest.mark.parametrize(
    ("machine", "form"),
    [
        (Machine.uniform(4, 2, nic=10, inner=100), "json"),
        (Machine.uniform(4, 4, nic=10, inner=64, is_mesh=True), "binary"),
    ],
    ids=["8 ranks", "16 ranks"],
)
def test_processes_move_every_byte(machine, form, tmp_path):
    n = machine.n_ranks
    matrix = demand("zipf-cell", 2)[:n, :n] // 16
    made = plan(matrix, machine, method="staged")
    assert made.n_stages >= 6
    path = tmp_path / "plan"
    path.write_bytes(file.dumps(made).encode() if form == "json" else file.dump_bytes(made))
    done = over_mpi(path, n)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{n} ranks, {made.n_stages} stages: all {matrix.sum()} bytes arrived\n"


@needs_mpi
def test_processes_notice_a_byte_that_does_not_arrive(tmp_path):
    """A piece that begins elsewhere brings some bytes twice and leaves others out; the run says so."""
    matrix = demand("zipf-cell", 2)[:4, :4] // 16
    document = json.loads(file.dumps(plan(matrix, Machine.uniform(2, 2, nic=10, inner=100), method="staged")))
    offsets = document["pieces"]["offset"]
    offsets[offsets.index(max(offsets))] = 0
    path = tmp_path / "plan"
    path.write_text(json.dumps(document))
    done = over_mpi(path, 4)
    assert done.returncode == 1
    assert "arrived wrong" in done.stderr
