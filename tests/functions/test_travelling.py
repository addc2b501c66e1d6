"""What a call takes along is there what it was here: wrappers, and memory that is shared."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgpu_decl import distributed
from sgpu_decl.errors import InvalidInput

Tensor = Any  # torch is imported where it is used

WRAPPED = """
import functools, typing
from sgpu_decl import distributed

Id = typing.NewType("Id", int)
T = typing.ParamSpec("T")

class Missing:
    def __reduce__(self):
        return "MISSING"

MISSING = Missing()

@functools.cache
def fib(n: Id) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)

@functools.lru_cache(maxsize=7, typed=True)
def few(f: typing.Callable[T, int]):
    return few.note, few.cache_parameters()

few.note = "kept"

@functools.singledispatch
def kind(value):
    return "any"

@kind.register
def _(value: int):
    return "int"

@kind.register
def _(value: list):
    return [kind(one) for one in value]

class Table:
    @functools.cached_property
    def rows(self):
        return [1, 2]

    @functools.lru_cache
    def row(self, n):
        return self.rows[n]

@distributed(gpus=1, gpu_type="CPU")
@functools.lru_cache
def train():
    table = Table()
    assert fib.__wrapped__.__globals__["fib"] is fib and fib.cache_info().currsize == 0
    return [fib(30), *few(len), kind([1, "a"]), table.row(1), table.rows is table.rows]

@distributed(gpus=1, gpu_type="CPU")
def refused(default=MISSING):
    pass

fib(9)
print(*train.distributed())
try:
    refused.plan()
except Exception as error:
    print(error)
"""


def test_wrapped_functions_of_a_script_travel(project: Path) -> None:
    script = project / "wrapped.py"
    script.write_text(WRAPPED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    value, said = done.stdout.splitlines()
    assert value == ("[832040, 'kept', {'maxsize': 7, 'typed': True}, ['int', 'any'], 2, True]")
    assert "the default of `default` holds a `__main__.Missing`" in said
    assert "sends it by its name, `MISSING`, and ranks do not have the script" in said


def test_arrays_that_share_memory_share_it_in_ranks(project: Path) -> None:
    matrix = np.zeros((300, 300))
    row, column, backwards = matrix[1], matrix[:, 2], matrix[1, ::-1]
    alone = np.arange(20)[::2]
    frozen = matrix[1, :4].view()
    frozen.flags.writeable = False

    @distributed(gpus=1, gpu_type="CPU")
    def train(given: np.ndarray, again: np.ndarray, rows: list[np.ndarray]) -> list[object]:
        given[1, 2] = 5
        assert (again is given, matrix is given) == (True, True)
        assert not frozen.flags.writeable
        rows[7][2] = 3
        return [row[2], column[1], column[7], backwards[297], frozen[2], int(alone.sum())]

    assert train.distributed(matrix, matrix, list(matrix)) == [[5.0, 5.0, 3.0, 5.0, 5.0, 90]]
    assert not matrix.any()
    folder = project / ".sgpu" / "default" / "runs" / "train" / "1"
    kept = [(folder / name).stat().st_size for name in ("func.bin", "func.pkl", "inputs.pkl")]
    assert kept[0] == matrix.nbytes
    assert sum(kept[1:]) < 50_000
    assert not (folder / "inputs.bin").exists()


def test_columns_of_a_matrix_have_nothing_in_common(project: Path) -> None:
    matrix = np.zeros((1_000, 1_000))

    @distributed(gpus=1, gpu_type="CPU")
    def train(first: np.ndarray, second: np.ndarray) -> float:
        return float(first.sum() + second.sum())

    assert train.distributed(matrix[:, 0], matrix[:, 1]) == [0.0]
    folder = project / ".sgpu" / "default" / "runs" / "train" / "1"
    assert sum(path.stat().st_size for path in folder.glob("inputs.*")) < 20_000


def test_arrays_of_a_result_share_memory_too() -> None:
    @distributed(gpus=1, gpu_type="CPU")
    def train() -> object:
        whole = np.zeros(100_000)
        return {"whole": whole, "part": whole[5:10], "small": np.ones(2)}

    (found,) = train.distributed()
    found["whole"][7] = 4
    assert list(found["part"]) == [0, 0, 4, 0, 0]
    assert list(found["small"]) == [1, 1]


@pytest.mark.expensive
@pytest.mark.torch
def test_tensors_are_mapped_and_stay_what_they_are(project: Path) -> None:
    torch = pytest.importorskip("torch")
    large = torch.arange(100_000, dtype=torch.float32)
    model = torch.nn.Sequential(torch.nn.Linear(200, 200), torch.nn.Linear(200, 200))
    model[1].weight = model[0].weight
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    kinds = {
        "bfloat16": torch.ones(3, dtype=torch.bfloat16),
        "float8": torch.ones(3).to(torch.float8_e4m3fn),
        "conjugate": torch.full((3,), 1j).conj(),
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "expanded": torch.ones(1).expand(4, 4),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(3),
        "learnt": torch.ones(3, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "sparse": torch.eye(3).to_sparse(),
        "quantised": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        "nowhere": torch.ones(3, device="meta"),
    }

    def looks(found: dict[str, Tensor]) -> list[str]:
        return [
            f"{name} {one} {type(one)} {one.dtype} {one.layout} {one.requires_grad} {one.shape} "
            f"{one.is_conj()} {one.stride() if one.layout is torch.strided else None}"
            for name, one in found.items()
        ]

    @distributed(gpus=1, gpu_type="CPU")
    def train(given: Tensor, part: Tensor, array: np.ndarray) -> Any:
        address = given.data_ptr()
        for line in open("/proc/self/maps"):  # noqa: SIM115
            low, _, high = line.split(" ")[0].partition("-")
            if int(low, 16) <= address < int(high, 16):
                mapped = line.split("/")[-1].strip()
        given[7] = -1
        assert given is large
        assert model[0].weight is model[1].weight
        assert optimiser.param_groups[0]["params"][0] is model[0].weight
        shared = [float(part[2]), float(array[7]), float(large[7])]
        result = {"whole": given, "part": given[5:10], "model": model.state_dict()}
        return mapped, shared, looks(kinds), result

    ((mapped, shared, seen, result),) = train.distributed(large, large[5:10], large.numpy())
    assert mapped == "func.bin"
    assert shared == [-1.0, -1.0, -1.0]
    assert large[7] == 7
    assert seen == looks(kinds)
    folder = project / ".sgpu" / "default" / "runs" / "train" / "1"
    weights = 200 * 200 * 4
    assert (folder / "func.bin").stat().st_size == large.nbytes + weights
    assert (folder / "ranks" / "0" / "output.pkl").stat().st_size < large.nbytes + weights + 20_000
    result["whole"][6] = 9
    assert result["part"].tolist() == [5.0, 9.0, -1.0, 8.0, 9.0]
    tied = [result["model"][f"{number}.weight"].data_ptr() for number in (0, 1)]
    assert tied[0] == tied[1]


@pytest.mark.expensive
@pytest.mark.torch
def test_tensors_whose_memory_cannot_be_sent_are_refused_in_words() -> None:
    torch = pytest.importorskip("torch")

    def refused(model: object) -> str:
        @distributed(gpus=1, gpu_type="CPU")
        def train() -> object:
            return model

        with pytest.raises(InvalidInput) as caught:
            train.plan()
        return str(caught.value)

    elsewhere = torch.ones(3, device="meta").untyped_storage()
    said = "it is on `meta`, and ranks have devices of their own: send what `.cpu()` gives"
    assert said in refused({"a": elsewhere})
    if torch.backends.mkldnn.is_available():
        opaque = {"model": [torch.ones(3).to_mkldnn()]}
        assert "`model['model'][0]` holds a `torch.Tensor`" in refused(opaque)


@pytest.mark.expensive
@pytest.mark.torch
def test_a_compiled_function_of_the_caller_travels() -> None:
    torch = pytest.importorskip("torch")

    @torch.compile(backend="eager")  # type: ignore[untyped-decorator]
    def double(x: Tensor) -> Tensor:
        return x * 2

    @distributed(gpus=1, gpu_type="CPU")
    def train() -> float:
        return float(double(torch.ones(())))

    assert train.distributed() == [2.0]


@pytest.mark.expensive
@pytest.mark.torch
def test_a_tensor_on_a_gpu_is_refused_with_the_way_to_send_it() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    model = torch.nn.Linear(3, 3).cuda()

    @distributed(gpus=1, gpu_type="CPU")
    def train() -> object:
        return model

    with pytest.raises(InvalidInput, match=r"on `cuda:0`.* send what `\.cpu\(\)` gives"):
        train.plan()
