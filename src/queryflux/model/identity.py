"""Who is asking. Only the auth room constructs a VerifiedIdentity (a test holds the tree to that)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VerifiedIdentity:
    """A client whose claim was checked as far as ``auth.provider`` checks it.

    ``authenticated`` is False only with ``auth.provider: none``, where the name is the client's own claim.
    """

    user: str
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    authenticated: bool = True
