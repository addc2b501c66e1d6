"""`sgpu bundle render`."""

from sgpu_decl.bundles.bundle_folder import KEEP
from sgpu_decl.bundles.render import RenderedBundle, render

__all__ = ["KEEP", "RenderedBundle", "render"]
