"""The published JSON Schemas, and what the fields of a run file mean. For callers that need them at
once: what they are made of is imported with this module."""

from sgpu_decl.config.schemas import describe, documents, write

__all__ = ["describe", "documents", "write"]
