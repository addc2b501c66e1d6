"""Numbers of bytes in words: the one way, which the agent has too."""

from sgpu_decl.agent.system.byte_size import size

__all__ = ["size"]
