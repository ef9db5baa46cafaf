"""What one client may make us keep between its messages, in bytes: named statements, named portals, and rows
of suspended portals together.

The unnamed statement and portal are bounded by the length of a message and are not counted.
"""

from queryflux.wire.postgres.errors import PostgresError

HELD_BYTES = 64 * 1024 * 1024


class Budget:
    """``held`` bytes of ``limit`` are taken."""

    __slots__ = ("held", "limit")

    def __init__(self, limit: int = HELD_BYTES) -> None:
        self.limit = limit
        self.held = 0

    def take(self, size: int) -> None:
        """Raises PostgresError 53200 when that is more than there is."""
        if not self.fits(size):
            raise PostgresError(
                f"prepared statements, portals and rows not fetched yet of one session are limited to "
                f"{self.limit // 2**20} MiB",
                "53200",
                hint="close statements and portals that are not used any more; fetch a portal to its end "
                "before the next statement",
            )
        self.held += size

    def fits(self, size: int) -> bool:
        """Whether so much is left."""
        return self.held + size <= self.limit

    def give_back(self, size: int) -> None:
        """What was taken is not kept any more."""
        self.held -= size
