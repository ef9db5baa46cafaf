"""Which groups an identity may use, by the allow-lists of ``clusterGroups.<g>.authorization``."""

from collections.abc import Collection

from queryflux.model.identity import VerifiedIdentity


def may_use_group(
    identity: VerifiedIdentity, allow_groups: Collection[str], allow_users: Collection[str]
) -> bool:
    """True when both lists are empty, or when either names the user or one of the user's groups."""
    if not allow_groups and not allow_users:
        return True
    return identity.user in allow_users or any(group in allow_groups for group in identity.groups)
