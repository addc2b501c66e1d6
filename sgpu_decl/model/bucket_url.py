"""What the URL of a folder in an object store says: `s3://BUCKET/FOLDER`, `gs://`, `az://`."""

import re
from urllib.parse import urlsplit

from sgpu_decl.frozen_dataclass import dataclass

S3, GOOGLE, AZURE = "s3", "gs", "az"
SCHEMES = (S3, GOOGLE, AZURE)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_PART = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._=-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketUrl:
    """`folder` has no slash at its ends, and may be empty. A bucket of Azure is a container."""

    scheme: str
    bucket: str
    folder: str

    @property
    def text(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.folder}".rstrip("/")


def bucket_url(text: str) -> BucketUrl | None:
    """None if the text is no such URL, or has more than a bucket and a folder."""
    scheme, _, rest = text.partition("://")
    bucket, _, folder = rest.partition("/")
    folder = folder.rstrip("/")
    parts = folder.split("/") if folder else []
    if scheme not in SCHEMES or _BUCKET.fullmatch(bucket) is None:
        return None
    if not all(map(_PART.fullmatch, parts)):
        return None
    return BucketUrl(scheme=scheme, bucket=bucket, folder=folder)


def names_login(url: str) -> bool:
    """Whether a URL has a user, a password or a query, which may be a signature.

    Raises:
        ValueError: it is no URL.
    """
    split = urlsplit(url)
    return "@" in split.netloc or bool(split.query)
