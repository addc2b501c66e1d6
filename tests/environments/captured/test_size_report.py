from collections.abc import Sequence

from sgpu_decl.content.manifest import File, Manifest, Python
from sgpu_decl.environments.captured.size_report import largest, over_limit

SITE = "lib/python3.11/site-packages"
GIB = 1 << 30


def _manifest(sizes: dict[str, int], packages: Sequence[str]) -> Manifest:
    files = tuple(File(path, "f", size, "0" * 64) for path, size in sorted(sizes.items()))
    python = Python("cpython", "3.11.7", "cpython-311-x86_64-linux-gnu", "linux-x86_64", "glibc-2")
    return Manifest(python, (SITE,), tuple((name, "1") for name in packages), files)


MANY = _manifest(
    {
        f"{SITE}/torch/__init__.py": 1,
        f"{SITE}/torch/lib/libtorch.so": 3 * GIB,
        f"{SITE}/nvidia/cublas/lib/x.so": 2 * GIB,
        f"{SITE}/nvidia/cudnn/lib/x.so": GIB,
        f"{SITE}/scikit_learn.libs/x.so": 5,
        f"{SITE}/six.py": 7,
        "bin/uv": 40,
    },
    ["torch", "nvidia-cublas-cu12", "nvidia-cudnn-cu12", "scikit-learn", "uv", "six"],
)


def test_the_largest_packages_are_named_as_they_are_installed() -> None:
    assert largest(MANY, 6) == (
        ("torch", 3 * GIB + 1),
        ("nvidia-cublas-cu12", 2 * GIB),
        ("nvidia-cudnn-cu12", GIB),
        ("uv", 40),
        ("six.py", 7),
        ("scikit-learn", 5),
    )


def test_what_is_over_the_limit_is_said_with_what_makes_it_so() -> None:
    assert over_limit(MANY, MANY.size) is None
    found = over_limit(MANY, 5 * GIB)
    assert found.code == "environment_too_large"
    assert "6.4 GB" in found.summary
    assert "5.4 GB" in found.summary
    assert "`torch` 3.2 GB, `nvidia-cublas-cu12` 2.1 GB" in found.hint
