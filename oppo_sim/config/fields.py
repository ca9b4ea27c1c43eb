"""What every table of a scenario has in common: frozen, strictly typed, unknown keys refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from oppo_sim.config.bounds import (
    MOST,
    MOST_COUNT,
    MOST_DEVICES,
    MOST_ROLLOUTS,
    MOST_SEED,
    MOST_TOKENS,
)
from oppo_sim.config.errors import nearest

T = TypeVar("T")

Count = Annotated[int, Field(ge=1, le=MOST_COUNT)]
Natural = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
Rollouts = Annotated[int, Field(ge=1, le=MOST_ROLLOUTS)]
Beyond = Annotated[int, Field(ge=0, le=MOST_ROLLOUTS)]  # rollouts, beyond the batch
Devices = Annotated[int, Field(ge=1, le=MOST_DEVICES)]
Seed = Annotated[int, Field(ge=0, le=MOST_SEED)]
Number = Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
Seconds = NotNegative
Positive = Annotated[float, Field(gt=0, le=MOST, allow_inf_nan=False)]
AtLeastOne = Annotated[float, Field(ge=1, le=MOST, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Listed = Annotated[tuple[T, ...], BeforeValidator(_tuple)]
Host = Literal["reward", "reference", "critic"]


class Table(BaseModel):
    """A table of a TOML file."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _know_keys(cls, table: Any) -> Any:
        if isinstance(table, Mapping):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in table:
                if key not in known and key not in cls.model_fields:
                    problem = f"unknown key {key!r}; {cls._hint(str(key), table[key], known)}"
                    raise PydanticCustomError("unknown_key", "{problem}", {"problem": problem})
        return table

    @classmethod
    def _hint(cls, key: str, value: object, known: list[str]) -> str:
        """The end of the error about an unknown key."""
        return nearest(key, known)

    def given(self) -> dict[str, Any]:
        """What was set, so that the rest keeps the defaults of whoever takes it."""
        return {name: getattr(self, name) for name in self.model_fields_set}
