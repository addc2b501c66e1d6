"""`sgpu import`."""

from sgpu_decl.importing.foreign_tool import FieldTranslation
from sgpu_decl.importing.tool_import import ImportedFile, import_file
from sgpu_decl.importing.translation import Fate

__all__ = ["Fate", "FieldTranslation", "ImportedFile", "import_file"]
