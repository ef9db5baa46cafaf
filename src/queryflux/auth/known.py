"""Users whom this process did not let in itself."""

from typing import Any

from queryflux.model.identity import VerifiedIdentity


def known_user(name: str) -> VerifiedIdentity:
    """Somebody whom another process has verified, for the end of a query of theirs: nothing is decided by
    what they may do."""
    return VerifiedIdentity(name)


def described(identity: VerifiedIdentity) -> dict[str, Any]:
    """An identity for a sibling process, which ``sibling_user`` makes it of again."""
    return {
        "user": identity.user,
        "groups": identity.groups,
        "roles": identity.roles,
        "authenticated": identity.authenticated,
    }


def sibling_user(about: dict[str, Any]) -> VerifiedIdentity:
    """Somebody whom a sibling process has verified just now, as its private channel says."""
    return VerifiedIdentity(
        about["user"], tuple(about["groups"]), tuple(about["roles"]), authenticated=about["authenticated"]
    )
