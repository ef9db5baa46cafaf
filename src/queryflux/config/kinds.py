"""The kinds of scalar that the configuration is made of."""

from typing import Annotated

from msgspec import Meta

Port = Annotated[int, Meta(ge=0, le=65535)]
"""A TCP port; 0 asks the system for a free one."""

Count = Annotated[int, Meta(ge=0, le=2_147_483_647)]
"""How many; 0 is allowed."""

AtLeastOne = Annotated[int, Meta(ge=1, le=2_147_483_647)]
"""How many; 0 is not."""

Bytes = Annotated[int, Meta(ge=1, le=1 << 40)]
"""A size in bytes."""

Seconds = Annotated[float, Meta(ge=0, le=1e9)]
"""A length of time in seconds; fractions are allowed."""

Percent = Annotated[int, Meta(ge=1, le=100)]
"""A whole percentage."""
