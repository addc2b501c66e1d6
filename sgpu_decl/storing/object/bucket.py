"""The bucket in which states lie, and errors in words. obstore is imported here, and only once a
state names a bucket."""

import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sgpu_decl.distribution import extra_command
from sgpu_decl.errors import SgpuError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.bucket_url import AZURE, GOOGLE, S3, BucketUrl
from sgpu_decl.storing.journal.lock_lease import elapsed
from sgpu_decl.storing.journal.port import StoreDown

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["Bucket", "BucketPlace"]

_ANSWER_SECONDS = 10.0
"""After so long without a byte, a request is given up."""
_CONTENT_SECONDS = 300.0
"""How long a request may take whose content is large."""
_SLOW_SECONDS = 3.0  # what fails sooner may be asked about
_LARGE = 1 << 20  # bytes
_RETRIES = 3
_AT_ONCE = 16  # requests
_CLOCK_SECONDS = 30.0
"""How long the time of the store is counted on from one answer."""
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
class BucketPlace:
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


class Bucket:
    """Objects of a folder in a bucket; paths are relative to it. Threads may share it.

    Every call may raise StoreDown or SgpuError, as those of a journal.
    """

    def __init__(self, place: BucketPlace) -> None:
        self.place = place
        self._stores: dict[bool, ObjectStore] = {}
        self._guard = threading.Lock()
        self._clock: tuple[datetime, float] | None = None

    @property
    def name(self) -> str:
        return self.place.shown

    def create(self, path: str, content: bytes) -> bool:
        """Add an object; false if there is one of that name, which stays."""
        with self._explained():
            from obstore.exceptions import AlreadyExistsError

            try:
                store = self._store(upload=len(content) > _LARGE)
                store.put(path, content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                # S3 also says so while another request for that name is under way.
                if self.written_at(path) is None:
                    raise
                return False
            return True

    def read(self, path: str) -> bytes | None:
        """The content of an object; None where it is not there."""
        with self._explained(), suppress(FileNotFoundError):
            return bytes(self._store().get(path).bytes())
        return None

    def read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        if len(paths) < 2:
            return [self.read(path) for path in paths]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return list(threads.map(self.read, paths))

    def written_at(self, path: str) -> datetime | None:
        """When an object was written, by the clock of the store; None where it is not there."""
        with self._explained(), suppress(FileNotFoundError):
            return self._store().head(path)["last_modified"].astimezone(UTC)
        return None

    def names(self, folder: str, *, after: str | None = None) -> Iterator[tuple[str, datetime]]:
        """The names in a folder in their order, and when each was written. `after` leaves out those
        up to a name."""
        store, offset = self._store(), None if after is None else f"{folder}/{after}"
        with self._explained(folder):
            for found in store.list(folder, offset=offset):
                for item in found:
                    name = item["path"].rpartition("/")[2]
                    yield name, item["last_modified"].astimezone(UTC)

    def folders(self, folder: str) -> list[str]:
        with self._explained(folder):
            found = self._store().list_with_delimiter(folder)["common_prefixes"]
            return sorted(path.rpartition("/")[2] for path in found)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; harmless where they are not there.

        Raises:
            SgpuError: this user may not delete anything (`compact_refused`).
        """

        def delete(path: str) -> None:
            with suppress(FileNotFoundError):
                store.delete(path)

        store = self._store()
        with self._explained(), ThreadPoolExecutor(_AT_ONCE) as threads:
            from obstore.exceptions import PermissionDeniedError

            try:
                list(threads.map(delete, paths))
            except PermissionDeniedError as error:
                raise SgpuError(
                    f"the user of the state in `{self.name}` may not delete anything there: "
                    f"{_words(error)}",
                    hint=f"let a user do it who may delete objects below `{self.place.url.text}`",
                    code="compact_refused",
                ) from error

    def now(self, folder: str) -> datetime:
        """The time of the store. It is asked with a new object in a folder, and counted on for a
        while from then; never more than has passed there. An object of a user who may not delete it
        stays."""
        if self._clock is not None:
            at, then = self._clock
            passed = elapsed() - then
            if passed < _CLOCK_SECONDS:
                return at + timedelta(seconds=passed)
        path = f"{folder}/{os.urandom(6).hex()}"
        self.create(path, b"\n")
        written = self.written_at(path)
        with suppress(SgpuError):
            self.delete([path])
        if written is None:
            raise StoreDown(f"`{self.name}` does not say its time", hint="try again")
        self.keep_time(written)
        return written

    def keep_time(self, at: datetime) -> None:
        """Learn the time of the store from what has just been written there."""
        self._clock = (at, elapsed())

    def require_conditions(self, path: str) -> None:
        """Check that the server adds an object only where its name is free. One that does not know
        the condition would let two machines launch the same run.

        Raises:
            SgpuError: it does not.
        """
        if self.create(path, b"\n") and self.create(path, b"\n"):
            raise SgpuError(
                f"the server of `{self.name}` writes over an object although it was told to add one"
                " only if there is none (If-None-Match): a shared state needs that",
                hint="nothing was recorded; upgrade the server, or name another one",
                code="state_unreachable",
            )

    def _store(self, *, upload: bool = False) -> "ObjectStore":
        """`upload` is for what may take long to send, while no byte comes back."""
        require_obstore()
        from obstore.exceptions import BaseError

        with self._guard:
            if upload not in self._stores:
                try:
                    self._stores[upload] = _opened(self.place, upload=upload)
                except BaseError as error:
                    raise SgpuError(
                        f"the login for `{self.name}` cannot be used: {_words(error)}",
                        hint=_LOGINS[self.place.url.scheme],
                        code="state_unreachable",
                    ) from error
            return self._stores[upload]

    @contextmanager
    def _explained(self, listed: str | None = None) -> Iterator[None]:
        """Say that it is the state which the store does not give. obstore tells only of a single
        object whether the store refuses it: where a folder could not be listed, one is asked for.
        """
        require_obstore()
        from obstore.exceptions import (
            AlreadyExistsError,
            BaseError,
            PermissionDeniedError,
            UnauthenticatedError,
        )

        url, began = self.place.url, elapsed()
        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise SgpuError(
                f"the shared state in `{self.name}` refuses this: {_words(error)}",
                hint=f"is this the right user? {_LOGINS[url.scheme]}. Who plans needs to list and "
                f"to read objects below `{url.text}`, and who applies to add some, too",
                code="state_unreachable",
            ) from error
        except FileNotFoundError as error:
            raise SgpuError(
                f"the shared state in `{self.name}` cannot be used: {_words(error)}",
                hint=f"does `{url.bucket}` exist there? sgpu makes none",
                code="state_unreachable",
            ) from error
        except AlreadyExistsError as error:
            raise StoreDown(
                f"the shared state in `{self.name}` is busy: {_words(error)}", hint="try again"
            ) from error
        except BaseError as error:
            if listed is not None and elapsed() - began < _SLOW_SECONDS:
                self.read(f"{listed}/none")
            raise StoreDown(
                f"the shared state in `{self.name}` cannot be reached: {_words(error)}",
                hint=f"is the server up, does `{url.bucket}` exist there, in that region, and does "
                f"it take your login? {_LOGINS[url.scheme]}",
            ) from error


def require_obstore() -> None:
    """Raises SgpuError where it is not installed."""
    try:
        import obstore  # noqa: F401
    except ImportError as error:
        raise SgpuError(
            "a state in an object store needs the package `obstore`, which is not installed",
            hint=f"install it with `{extra_command('object')}`",
            code="sdk_missing",
        ) from error


def _opened(place: BucketPlace, *, upload: bool) -> "ObjectStore":
    """The server is that of the place, whatever variables of the environment say: they have
    credentials alone."""
    from obstore.store import AzureStore, GCSStore, S3Store

    url, endpoint = place.url, place.endpoint
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
            "account_name": place.account,
            "endpoint": endpoint or f"https://{place.account}.blob.core.windows.net",
            "use_emulator": False,
        }
        return AzureStore(url.bucket, config=server, **options)
    region = place.region or next(
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
