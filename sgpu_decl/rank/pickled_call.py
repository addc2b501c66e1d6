"""The call of a pickled function: `func.pkl` and `inputs.pkl` in the attempt folder.

Buffers of large arrays and tensors lie in `func.bin` and `inputs.bin`. Each rank maps them
copy-on-write: they are writable, and ranks share a page until one writes to it. Both pickles have
one memo, so an object that function and arguments hold is one object here too.

Before anything is unpickled, the Python minor version, cloudpickle's version, and a CRC-32 of each
stream are compared: bytecode of another Python, or a damaged pickle, could do anything. An
exception of imported or unpickled code keeps its traceback. One of the import or the unpickler
itself becomes a message. A rank that ends by `sys.exit`, with 0 too, has returned nothing: it fails
with the class `exit_code`.
"""

import mmap
import os
import pickle
import sys
from binascii import crc32
from collections import deque

from sgpu_decl.rank.attempt_folder import AttemptFolder, Replaced, UnusableSpec, write_file
from sgpu_decl.rank.caller_main import MainUnpickler, lend_names, spawned_name
from sgpu_decl.rank.output import pickler, write_output
from sgpu_decl.rank.user_entry import call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Any

    from sgpu_decl.rank.error_record import ErrorRecord
    from sgpu_decl.rank.secret_values import SecretValues

_LARGEST = 16 << 20  # bytes of an exception that is kept for the caller
_OURS = "sgpu_decl.rank."
_INSTEAD = {
    "async_generator": "return a list of what it yields",
    "coroutine": "await it",
    "generator": "return a list of what it yields",
}
_SEARCHED = 10_000  # parts of a value that are tried
_DEEPEST = 12  # steps into a value
_OWN_WAYS = {"__getstate__", "__reduce__", "__reduce_ex__"}  # they may leave attributes out


def make_call(
    folder: "AttemptFolder",
    spec: "Mapping[str, Any]",
    target: str,
    record: "Callable[[], ErrorRecord]",
    secrets: "Mapping[str, str]",
) -> None:
    """Load the function, call it and keep what it returns in the folder `target`.

    If the call fails, this process exits with the exit code of the failure.

    Args:
        spec: the `call` of the spec.
        record: returns the record for a failure.
    """
    try:
        _run(folder, spec, target, secrets)
    except Replaced:
        raise
    except SystemExit as error:
        _leave(error, spec["name"], record)
    except BaseException as error:  # noqa: BLE001 - whatever the user's code raises
        failure = record()
        ours = failure.fail(error)
        # An interrupt, raised where the call was made, would mean something else.
        if ours and isinstance(error, Exception) and type(error) is not UnusableSpec:
            _keep_exception(error, os.path.dirname(failure.path) + "/error.pkl", failure.secrets)
        sys.exit(1)


def main_name(path: str, spec_sha256: str, name: str) -> "Any":
    """Return what a name of the caller's `__main__` means, in a process that a rank of the attempt
    in the folder `path` has spawned.

    Raises:
        AttributeError: the function came without it.
    """

    def parts() -> "Iterator[dict[str, Any]]":
        spec = AttemptFolder(path, spec_sha256).read_spec()["entry"]["call"]
        pickles = _CallPickles(path)
        if spec is not None:
            yield from (pickles.names() for _ in pickles.load_all(spec))

    return spawned_name(name, parts)


def _run(
    folder: "AttemptFolder", spec: "Mapping[str, Any]", target: str, secrets: "Mapping[str, str]"
) -> None:
    name = f"`{spec['name']}`"
    _check_versions(name, spec)
    sys.path[1:1] = [place for place in spec["path"] if place not in sys.path]
    pickles = _CallPickles(folder.path)
    function, (args, named) = pickles.load_all(spec)
    names = pickles.names()
    pickles.forget()
    for parameter in spec["fill"]:
        named[parameter] = int(os.environ[parameter.upper()])
    if spec["group"]:
        _bring_up_group(name)
    with lend_names(names):
        value = call(function, args, named)
    del function, args, named  # a result may need the room
    _keep_result(folder, target, value, name, secrets)
    if spec["group"]:
        _take_down_group()


# ── the pickles ──────────────────────────────────────────────────────────────────────────────────


def _check_versions(name: str, spec: "Mapping[str, Any]") -> None:
    """Refuse what was pickled for another Python: its bytecode could do anything here."""
    own = "{}.{}".format(*sys.version_info[:2])
    if spec["python"] != own:
        raise UnusableSpec(
            f"{name} comes from Python {spec['python']}, and ranks have Python {own}"
            f" (`{sys.executable}`): give them the same one"
        )
    version = spec["cloudpickle"]
    if version is None:
        return
    remedy = f"`pip install cloudpickle=={version}` in the environment of the ranks"
    try:
        import cloudpickle
    except ModuleNotFoundError as error:
        if error.name != "cloudpickle":
            raise
        raise UnusableSpec(
            f"{name} was pickled by cloudpickle {version}, and ranks have none: {remedy}"
        ) from None
    if cloudpickle.__version__.split(".")[:2] != version.split(".")[:2]:
        raise UnusableSpec(
            f"{name} was pickled by cloudpickle {version}, and ranks have cloudpickle"
            f" {cloudpickle.__version__}: {remedy}"
        )


class _CallPickles:
    """The pickles of a call, read by one unpickler as one file. The second goes on from the memo of
    the first, so that an object which both hold is one object here too."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._stream: mmap.mmap | None = None
        self._buffers: deque[memoryview] = deque()
        self._unpickler: MainUnpickler | None = None

    def read(self, size: int) -> bytes:
        return self._stream.read(size) if self._stream is not None else b""

    def readline(self) -> bytes:
        return self._stream.readline() if self._stream is not None else b""

    def load(self, name: str, crc: int, places: "Sequence[tuple[int, int]]", what: str) -> "Any":
        """Return what `name`.pkl holds, with its buffers in `name`.bin.

        They are mapped copy-on-write: a page is read when it is touched first, and ranks share it
        until one of them writes to it.
        """
        path = f"{self._folder}/{name}"
        try:
            self._stream = stream = _mapped(path + ".pkl", mmap.ACCESS_READ)
            used = any(length for _, length in places)
            data = memoryview(_mapped(path + ".bin", mmap.ACCESS_COPY) if used else bytearray())
        except (FileNotFoundError, ValueError):  # mmap's error for a file without a byte
            raise _damaged(path) from None
        if crc32(stream) != crc or any(start + length > len(data) for start, length in places):
            raise _damaged(path)
        self._buffers.extend(data[start : start + length] for start, length in places)
        if self._unpickler is None:
            self._unpickler = MainUnpickler(self, buffers=iter(self._buffers.popleft, None))
        try:
            return self._unpickler.load()
        except (ModuleNotFoundError, AttributeError, pickle.UnpicklingError) as error:
            if _raised_further_in(error.__traceback__):
                raise
            raise UnusableSpec(f"{what} cannot be loaded: {_what_is_missing(error)}") from None

    def load_all(self, spec: "Mapping[str, Any]") -> "Iterator[Any]":
        """Yield the function, and then its arguments."""
        name = f"`{spec['name']}`"
        yield self.load("func", spec["function_crc"], spec["function_buffers"], name)
        what = f"the arguments of {name}"
        yield self.load("inputs", spec["inputs_crc"], spec["inputs_buffers"], what)

    def names(self) -> "dict[str, Any]":
        """What the caller's `__main__` has of all that was loaded, by name."""
        return self._unpickler.names() if self._unpickler is not None else {}

    def forget(self) -> None:
        """Drop the memo, which holds all that was loaded: function and arguments are then freed
        once the call is over, in order. A file that only a cycle holds may lose what it has not
        written (https://github.com/python/cpython/issues/62052)."""
        self._unpickler = None


def _mapped(path: str, access: int) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=access)


def _damaged(path: str) -> UnusableSpec:
    folder, _, name = path.rpartition("/")
    return UnusableSpec(f"`{name}` in `{folder}` is missing or damaged: make the call again")


def _raised_further_in(trace: "TracebackType | None") -> bool:
    """Whether the imported or unpickled code raised this, not the import or the unpickler
    itself."""
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", ""))
        if not name.startswith(_OURS) and name.partition(".")[0] not in (
            "importlib",
            "cloudpickle",
        ):
            return True
        trace = trace.tb_next
    return False


def _what_is_missing(error: Exception) -> str:
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return f"{error}: ranks have other code, or another version of a package"
    package = error.name.partition(".")[0]
    if package in sys.modules:
        return f"`{package}` has no module `{error.name}` here: ranks have another version of it"
    return (
        f"ranks have no module `{error.name}`: install it in their environment, or make it a module"
        " of the project"
    )


# ── the process group ────────────────────────────────────────────────────────────────────────────


def _bring_up_group(name: str) -> None:
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UnusableSpec(
            f"{name} is called in a process group, and ranks have no torch: install it in their"
            " environment"
        ) from None
    import torch.distributed

    if torch.distributed.is_initialized():
        return  # a module of the user's did it
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl" if cuda else "gloo")


def _take_down_group() -> None:
    import torch.distributed

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


# ── the result ───────────────────────────────────────────────────────────────────────────────────


def _keep_result(
    folder: "AttemptFolder", target: str, value: object, name: str, secrets: "Mapping[str, str]"
) -> None:
    try:
        write_output(folder, target, value, secrets)
    except OSError:
        raise
    except Exception as error:
        if _picklable(value):
            raise
        path, part = _culprit(value)
        kind = _type_name(part)
        where = f"a `{kind}`" if path == "result" else f"`{path}`, which is a `{kind}`"
        text = f"{name} returned a value that cannot be pickled: {where} ({error})"
        instead = _INSTEAD.get(kind)
        raise TypeError(text + (f"; {instead}" if instead else "")) from None


def _keep_exception(error: Exception, path: str, secrets: "SecretValues") -> None:
    """Write the exception for the caller, in a form that can be loaded again; never fail.

    If the class takes other arguments than it passes to its base, the exception cannot be pickled
    as it is, but its parts can. Attributes that cannot be pickled are named in its notes.
    """
    forms: tuple[tuple[Callable[[], object], Callable[[Any], object]], ...] = (
        (lambda: error, lambda again: again),
        (lambda: (type(error), error.args, error.__dict__), lambda again: _put_together(*again)),
        (lambda: (type(error), error.args, _portable(error)), lambda again: _put_together(*again)),
    )
    for form, restored in forms:
        try:
            data: bytes = pickler().dumps(form(), protocol=5)
            again = restored(pickle.loads(data))
            whole = type(again) is type(error) and str(again) == str(error)
            if whole and not secrets.names_in_bytes(data) and len(data) <= _LARGEST:
                write_file(path, lambda file: file.write(data))  # noqa: B023 - called at once
                return
        except BaseException:  # noqa: BLE001, S112 - whatever the user's classes do
            continue


def _portable(error: Exception) -> dict[str, object]:
    """Return the attributes that can be pickled, with a note on those that cannot."""
    attributes = {name: value for name, value in error.__dict__.items() if _picklable(value)}
    others = ", ".join(f"`{name}`" for name in error.__dict__ if name not in attributes)
    notes = attributes.get("__notes__", ())
    attributes["__notes__"] = [*notes, f"{others} cannot be pickled and stayed behind"]
    return attributes


def _put_together(
    kind: type[Exception], args: tuple[object, ...], state: "Mapping[str, object]"
) -> Exception:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def _leave(error: SystemExit, name: str, record: "Callable[[], ErrorRecord]") -> None:
    """Exit with the code of `sys.exit`, but not with 0: the caller waits for a result."""
    code = 0 if error.code is None else error.code
    if type(code) is not int:
        print(code, file=sys.stderr)  # as Python does
    text = f"`{name}` called `sys.exit({code!r:.200})` and returned nothing"
    record().fail(SystemExit(text).with_traceback(error.__traceback__))
    sys.exit((code if type(code) is int else 1) & 255 or 1)


class _Nowhere:
    def write(self, data: bytes) -> int:
        return len(data)


def _picklable(value: object) -> bool:
    try:
        pickler().dump(value, _Nowhere(), protocol=5)
    except Exception:  # noqa: BLE001 - whatever the user's classes raise
        return False
    return True


def _culprit(value: object) -> tuple[str, object]:
    """Return the path and the value of the innermost part of a result that cannot be pickled."""
    path, seen, remaining = "result", {id(value)}, _SEARCHED
    for _ in range(_DEEPEST):
        for where, part in _parts(value):
            remaining -= 1
            if remaining < 0:
                return path, value
            if id(part) not in seen and not _picklable(part):
                path, value = path + where, part
                seen.add(id(part))
                break
        else:
            break
    return path, value


def _parts(value: object) -> "Iterator[tuple[str, object]]":
    if isinstance(value, dict):
        for key, part in value.items():
            yield (f'["{key}"]' if type(key) is str else f"[{key!r:.50}]"), part
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            yield f"[{index}]", part
    elif not any(_OWN_WAYS & vars(kind).keys() for kind in type(value).__mro__[:-1]):
        for name, part in getattr(value, "__dict__", {}).items():
            yield f".{name}", part


def _type_name(value: object) -> str:
    kind = type(value)
    prefix = "" if kind.__module__ in ("builtins", "__main__") else kind.__module__ + "."
    return prefix + kind.__qualname__
