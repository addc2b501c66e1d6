"""A folder of an object store as a place. obstore is imported here, once a bucket is named.

S3, Google and Azure list an object once it is written
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/Welcome.html#ConsistencyModel).
"""

import os
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgpu_decl.distribution import extra_command
from sgpu_decl.errors import BackendError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.bucket_url import AZURE, GOOGLE, S3, BucketUrl
from sgpu_decl.model.step_progress import Sent
from sgpu_decl.places.file_place import (
    PlaceClock,
    PlaceEntry,
    PlaceMissing,
    byte_count,
    elapsed,
    ignore_bytes,
    upload_stream,
)

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

_ANSWER_SECONDS = 10.0
"""After so long without a byte, a request is given up."""
_CONTENT_SECONDS = 300.0
"""How long a request may take whose content is large."""
_SLOW_SECONDS = 3.0  # what fails sooner may be asked about
_LARGE = 1 << 20  # bytes
_RETRIES = 3
_AT_ONCE = 16  # requests
_WORDS = re.compile(r"<(?:Code|Message)>([^<]*)</")
_LOGINS = {
    S3: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role. Those of a "
    'profile: `eval "$(aws configure export-credentials --format env)"`',
    GOOGLE: "set GOOGLE_APPLICATION_CREDENTIALS to the key of a service account, or run "
    "`gcloud auth application-default login`; in CI without a key: "
    "`export GOOGLE_BEARER_TOKEN=$(gcloud auth print-access-token)`",
    AZURE: "set AZURE_STORAGE_ACCOUNT_KEY, or AZURE_USE_AZURE_CLI=true after `az login`, or give "
    "this machine an identity",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAddress:
    """`endpoint` is the server, where it is not that of the cloud. `region` is one of S3, `account`
    one of Azure."""

    url: BucketUrl
    endpoint: str | None = None
    region: str | None = None
    account: str | None = None

    @property
    def shown(self) -> str:
        """For messages."""
        server = self.endpoint or (f"account {self.account}" if self.account else None)
        return f"{self.url.text} ({server})" if server else self.url.text


class BucketPlace:
    """See `FilePlace`. Paths begin at the folder of the address. Folders are parts of names alone,
    so none has to be made."""

    part: int | None = None
    lag = 0.0

    def __init__(self, address: BucketAddress) -> None:
        self.address = address
        self._stores: dict[bool, ObjectStore] = {}
        self._guard = threading.Lock()
        self._clock = PlaceClock(self, "")

    @property
    def name(self) -> str:
        return self.address.shown

    def now(self) -> float:
        return self._clock.now().timestamp()

    def stat(self, path: str) -> PlaceEntry | None:
        name, key = path.rpartition("/")[2], _key(path)
        with self._explained(f"looking at `{key}`"), suppress(FileNotFoundError):
            found = self._store().head(key)
            return _entry(name, found["size"], found["last_modified"])
        with self._explained(f"looking into `{key}`", listed=key):
            for some in self._store().list(f"{key}/", chunk_size=1):
                return PlaceEntry(name=name, folder=True) if some else None
        return None

    def get(self, path: str) -> bytes:
        with self._explained(f"reading `{_key(path)}`"), self._missing(path):
            return bytes(self._store().get(_key(path)).bytes())

    def fetch(self, path: str, file: Path, received: Sent = ignore_bytes) -> None:
        with self._explained(f"reading `{_key(path)}`"), self._missing(path):
            file.touch(mode=0o600)
            with file.open("wb") as target:
                for chunk in self._store().get(_key(path)).stream():
                    target.write(chunk)
                    received(len(chunk))

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None:
        store = self._store(upload=byte_count(content) > _LARGE)
        stopped: list[BaseException] = []  # obstore makes an error of its own of it

        def counted(count: int) -> None:
            try:
                sent(count)
            except BaseException as error:
                stopped.append(error)
                raise

        with self._explained(f"writing `{_key(path)}`"), upload_stream(content, counted) as stream:
            try:
                store.put(_key(path), stream)
            except Exception:
                if stopped:
                    raise stopped[0] from None
                raise

    def create(self, path: str, content: bytes) -> bool:
        store, key = self._store(upload=len(content) > _LARGE), _key(path)
        with self._explained(f"adding `{key}`"):
            from obstore.exceptions import AlreadyExistsError

            try:
                store.put(key, content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                # S3 also says so while another request for that name is under way.
                if self.stat(path) is None:
                    raise
                return False
            return True

    def list(self, folder: str, *, after: str = "") -> tuple[PlaceEntry, ...]:
        key = _key(folder)
        return tuple(self._listed(f"{key}/" if key else "", after))

    def _listed(self, prefix: str, after: str) -> Iterator[PlaceEntry]:
        """Where names are left out, those are listed that a folder below has, too: the other call
        of the stores begins with the first name alone."""
        with self._explained(f"looking into `{prefix}`", listed=prefix):
            if not after:
                found = self._store().list_with_delimiter(prefix or None)
                folders = [path.rpartition("/")[2] for path in found["common_prefixes"]]
                entries = [PlaceEntry(name=name, folder=True) for name in folders]
                entries += [_object(prefix, item) for item in found["objects"]]
                yield from sorted(entries, key=lambda entry: entry.name)
                return
            for some in self._store().list(prefix or None, offset=f"{prefix}{after}"):
                yield from (
                    _object(prefix, item) for item in some if "/" not in item["path"][len(prefix) :]
                )

    def make_folder(self, folder: str) -> None:
        """See the class."""

    def delete(self, path: str) -> None:
        key, store = _key(path), self._store()

        def delete(one: str) -> None:
            with suppress(FileNotFoundError):
                store.delete(one)

        with self._explained(f"deleting `{key}`"), ThreadPoolExecutor(_AT_ONCE) as threads:
            below = [item["path"] for some in store.list(f"{key}/") for item in some]
            list(threads.map(delete, (*below, key)))

    def require_conditions(self, path: str) -> None:
        """Check that the server adds an object only where its name is free. One that does not know
        the condition would let two machines launch the same run. `path` is a free one.

        Raises:
            BackendError: it does not.
        """
        if self.create(path, b"\n") and self.create(path, b"\n"):
            raise BackendError(
                f"the server of `{self.name}` writes over an object although it was told to add one"
                " only if there is none (If-None-Match): a shared state needs that",
                hint="nothing was recorded; upgrade the server, or name another one",
            )

    @contextmanager
    def _missing(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise PlaceMissing(
                f"`{self.name}` has no `{_key(path)}`: {_words(error)}",
                hint=f"does `{self.address.url.bucket}` exist there? sgpu makes none",
            ) from error

    def _store(self, *, upload: bool = False) -> "ObjectStore":
        """`upload` is for what may take long to send, while no byte comes back."""
        require_obstore()
        from obstore.exceptions import BaseError

        with self._guard:
            if upload not in self._stores:
                try:
                    self._stores[upload] = _opened(self.address, upload=upload)
                except BaseError as error:
                    raise BackendError(
                        f"the login for `{self.name}` cannot be used: {_words(error)}",
                        hint=_LOGINS[self.address.url.scheme],
                        code="unauthenticated",
                    ) from error
            return self._stores[upload]

    @contextmanager
    def _explained(self, doing: str, *, listed: str | None = None) -> Iterator[None]:
        """Turn errors of obstore into ours. It tells only of a single object whether the store
        refuses it: where a folder could not be `listed`, one is asked for."""
        require_obstore()
        from obstore.exceptions import (
            AlreadyExistsError,
            BaseError,
            PermissionDeniedError,
            UnauthenticatedError,
        )

        url, began = self.address.url, elapsed()
        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise BackendError(
                f"{doing}: `{self.name}` refuses this: {_words(error)}",
                hint=f"is this the right user? {_LOGINS[url.scheme]}. Who plans needs to list and "
                f"to read objects below `{url.text}`, and who applies to add some, too",
                code="permission_denied",
            ) from error
        except FileNotFoundError as error:
            raise BackendError(
                f"{doing}: `{self.name}` cannot be used: {_words(error)}",
                hint=f"does `{url.bucket}` exist there? sgpu makes none",
                code="remote_broken",
            ) from error
        except AlreadyExistsError as error:
            raise _passing(
                f"{doing}: `{self.name}` is busy: {_words(error)}", "try again"
            ) from error
        except BaseError as error:
            if listed is not None and elapsed() - began < _SLOW_SECONDS:
                with suppress(PlaceMissing):
                    self.get(f"{listed.rstrip('/')}/none")
            raise _passing(
                f"{doing}: `{self.name}` cannot be reached: {_words(error)}",
                f"is the server up, does `{url.bucket}` exist there, in that region, and does it "
                f"take your login? {_LOGINS[url.scheme]}",
            ) from error


def require_obstore() -> None:
    """Raises SgpuError where it is not installed."""
    try:
        import obstore  # noqa: F401
    except ImportError as error:
        raise BackendError(
            "an object store needs the package `obstore`, which is not installed",
            hint=f"install it with `{extra_command('object')}`",
            code="sdk_missing",
        ) from error


def _opened(address: BucketAddress, *, upload: bool) -> "ObjectStore":
    """The server is that of the address, whatever variables of the environment say: they have
    credentials alone."""
    from obstore.store import AzureStore, GCSStore, S3Store

    url, endpoint = address.url, address.endpoint
    client: Any = {
        "allow_http": endpoint is not None and endpoint.startswith("http://"),
        "connect_timeout": timedelta(seconds=_ANSWER_SECONDS),
        "timeout": timedelta(seconds=_CONTENT_SECONDS),
    }
    if not upload:
        client["read_timeout"] = timedelta(seconds=_ANSWER_SECONDS)
    options: Any = {
        "prefix": url.folder or None,
        "client_options": client,
        "retry_config": {
            "max_retries": _RETRIES,
            "retry_timeout": timedelta(seconds=_ANSWER_SECONDS),
        },
    }
    if url.scheme == GOOGLE:
        server: Any = {"base_url": endpoint or "https://storage.googleapis.com"}
        return GCSStore(url.bucket, config=server, **options)
    if url.scheme == AZURE:
        server = {
            "account_name": address.account,
            "endpoint": endpoint or f"https://{address.account}.blob.core.windows.net",
            "use_emulator": False,
        }
        return AzureStore(url.bucket, config=server, **options)
    region = address.region or next(
        filter(None, map(os.environ.get, ("AWS_REGION", "AWS_DEFAULT_REGION"))), "us-east-1"
    )
    server = {
        "region": region,
        "endpoint": endpoint or f"https://s3.{region}.amazonaws.com",
        "virtual_hosted_style_request": False,
        "conditional_put": "etag",
        "disable_bulk_delete": True,  # not all servers know it, and it names no refusal
    }
    return S3Store(url.bucket, config=server, **options)


def _words(error: Exception) -> str:
    """What obstore says, without the document that the server sent, but for its own words."""
    text = str(error).partition("\n\nDebug source:")[0]
    said = ": ".join(_WORDS.findall(text))
    return f"{text.partition('<')[0].strip().rstrip(':')}{f': {said}' if said else ''}"


def _key(path: str) -> str:
    return path.lstrip("/")


def _object(prefix: str, item: "ObjectMeta") -> PlaceEntry:
    return _entry(item["path"][len(prefix) :], item["size"], item["last_modified"])


def _entry(name: str, size: int, modified: datetime) -> PlaceEntry:
    return PlaceEntry(name=name, folder=False, size=size, modified=modified.timestamp())


def _passing(message: str, hint: str) -> BackendError:
    error = BackendError(message, hint=hint, code="remote_broken")
    error.retryable = True
    return error
