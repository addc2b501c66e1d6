"""`presets`: what a target adds to the names, tags and schedules of everything in it."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from sgpu_decl.config.block import Block, Flag
from sgpu_decl.config.other_tool_keys import PRESET_KEYS
from sgpu_decl.config.run import TagName
from sgpu_decl.model.target import USER
from sgpu_decl.text.shape import OtherToolKey


class Presets(Block):
    """What is the same for all runs and jobs of a target. Their own fields win."""

    other_tools: ClassVar[Mapping[str, OtherToolKey]] = PRESET_KEYS

    name_prefix: str | None = Field(
        None,
        description="What the names of jobs in the workspace begin with. "
        f"`{USER}` in it stands for who applies. With `mode: development` it must hold that, and "
        f"the default is `[dev {USER}] `.",
    )
    tags: dict[TagName, str] = Field({}, description="Tags of all runs and jobs.")
    paused: Flag | None = Field(
        None, description="Whether schedules and triggers of jobs are suspended."
    )
