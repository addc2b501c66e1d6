"""Values that users write as text and that have one canonical text of their own."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


class Textual:
    """How pydantic takes such a type: `read` from what a user gives, `str` to the canonical text,
    `published` as its JSON Schema."""

    __slots__ = ()
    published: ClassVar[dict[str, Any]]

    @classmethod
    @abstractmethod
    def read(cls, value: object) -> Self:
        """Validate what a user or a caller gives.

        Raises:
            PydanticCustomError: it is none.
        """

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            cls.read, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        return dict(cls.published)
