"""`logs`: what the log files of ranks hold."""

from pydantic import Field

from sgpu_decl.config.block import Block, Flag


class Logs(Block):
    redact: Flag = Field(
        default=False,
        description="Whether values of `env.secrets` are masked in the log files too, in the "
        "standard streams of Python ranks. Where sgpu shows output, they are always masked.",
    )
