"""What must hold between the sections of a configuration, and inside an engine's or a user's settings.

Each check sees the configuration as far as it could be read, and complains where the key stands; whether a
name exists is asked of the file, so that a cluster with a mistake in it is not called missing as well.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from queryflux.config.problems import Path, one_of, show
from queryflux.config.root import RootConfig
from queryflux.config.routers import (
    CompoundRouter,
    HeaderRouter,
    ProtocolBasedRouter,
    QueryRegexCondition,
    QueryRegexRouter,
    QueryRegexRule,
    Router,
    TagsRouter,
    UserGroupRouter,
)
from queryflux.config.scripts import CheckScripts
from queryflux.config.variants import SEPARATOR, base_name, runtime_names
from queryflux.config.walk import Reading

Check = Callable[[str], str | None]
"""Says what is wrong with a text; None: nothing."""


@dataclass(frozen=True, slots=True)
class Context:
    """What checks look at, and where they complain."""

    config: RootConfig
    reading: Reading
    regex: Check
    """For the pattern of a rule."""
    password: Check
    """For the stored password of a static user."""
    file: Check
    """For a file that has to be readable."""
    folder: Check
    """For a folder that queries will need."""
    key_pair: Callable[[str, str], tuple[str, str] | None]
    """For a certificate's file and its key's: the key of the configuration to blame, and why; None: fine."""
    scripts: CheckScripts
    """For all scripts at once."""

    def names(self, section: str) -> dict[str, None]:
        """The names that a section of the file has, whether or not what they name could be read."""
        return self.names_under((section,))

    def names_under(self, base: Path) -> dict[str, None]:
        """The names that a mapping of the file has."""
        depth = len(base)
        return {
            name: None
            for path in self.reading.marks
            if len(path) == depth + 1 and path[:depth] == base and isinstance(name := path[depth], str)
        }

    def readable(self, path: Path, name: str | None) -> bool:
        """Whether the file can be read; complains when it cannot."""
        if name is not None and (reason := self.file(name)):
            self.reading.problem(path, f"cannot read {show(name, 200)}: {reason}")
            return False
        return True


def check_access_control(context: Context) -> None:
    """What is switched on has somebody to ask."""
    path: Path = ("accessControl", "enabled")
    settings = context.config.access_control
    on = settings is not None and settings.enabled and not settings.connections
    if on and path in context.reading.marks:
        message = "is on, and without connections nobody is asked: every table may be read"
        context.reading.warn(path, message, "set enabled: false")


def check_groups(context: Context) -> None:
    """There are groups; members exist, once each; names are usable."""
    clusters = context.names("clusters")
    members = _members(context)
    # What is misspelt at the root may be this very section: its owner is told of that alone.
    known = {(field,) for field in RootConfig.__struct_encode_fields__}
    misspelt = any(len(path) == 1 and path not in known for path in context.reading.broken)
    none = not context.names("clusterGroups") and not misspelt
    if none and context.config.queryflux.role != "worker":
        context.reading.warn(
            ("clusterGroups",), "there are no cluster groups: nothing can be queried", "add one"
        )
    for section in ("clusters", "clusterGroups"):
        for name in context.names(section):
            _name(context, (section, name), name)
    for name, group in context.config.cluster_groups.items():
        path: Path = ("clusterGroups", name, "members")
        seen: set[str] = set()
        for index, member in enumerate(group.members):
            here = context.reading.item_path(path, index)
            if member not in members and member in clusters:
                message = f"cluster {show(member)} has variants, and is none itself"
                named = [name for name in members if base_name(name) == member]
                context.reading.problem(here, message, f"list {' or '.join(named)}")
            elif member not in members and base_name(member) not in _unread(context):
                message = f"there is no cluster {show(member)}"
                context.reading.problem(here, message, one_of(member, members, "clusters"))
            elif member in seen:
                context.reading.problem(here, f"{member} is listed twice", "keep one")
            seen.add(member)
        if not group.members:
            context.reading.warn(path, "the group has no members; nothing can run there", "add a cluster")


def _name(context: Context, path: Path, name: str) -> None:
    if not name.strip():
        context.reading.problem(path, "a name must not be empty")
    elif SEPARATOR in name and not (context.reading.tolerant and path[0] == "clusters"):
        context.reading.problem(path, ":: is kept for the variants of a cluster", "choose another name")


def _members(context: Context) -> list[str]:
    """The names that groups may list."""
    return [*runtime_names(context.config.clusters), *_unread(context)]


def _unread(context: Context) -> list[str]:
    """Clusters of the file with a mistake in them: what variants they have is not known."""
    return [name for name in context.names("clusters") if name not in context.config.clusters]


def check_routing(context: Context) -> None:
    """Rules lead to groups that exist, and their patterns can be compiled."""
    routing = _Routing(context)
    for index, router in enumerate(context.config.routers):
        routing.router(router, context.reading.item_path(("routers",), index))
    fallback = context.config.routing_fallback
    if fallback:
        routing.group(("routingFallback",), fallback)
    elif not context.config.routers and context.config.cluster_groups:
        message = "there are no routers and no fallback: queries go to the first group their user may use"
        context.reading.warn(("routingFallback",), message, "set routingFallback to a group")


class _Routing:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._groups = context.names("clusterGroups")

    def group(self, path: Path, name: str) -> None:
        """Complain unless the group exists."""
        if name not in self._groups:
            message = f"there is no cluster group {show(name)}"
            self._context.reading.problem(path, message, one_of(name, self._groups, "groups"))

    def router(self, router: Router, path: Path) -> None:
        """One rule of the chain."""
        if isinstance(router, ProtocolBasedRouter):
            self._pairs(router.groups().items(), path)
        elif isinstance(router, HeaderRouter):
            self._pairs(router.header_value_to_group.items(), (*path, "headerValueToGroup"))
        elif isinstance(router, UserGroupRouter):
            self._pairs(router.user_to_group.items(), (*path, "userToGroup"))
        elif isinstance(router, QueryRegexRouter):
            for index, rule in enumerate(router.rules):
                self._rule(rule, self._item(path, "rules", index))
        elif isinstance(router, TagsRouter):
            for index, tags in enumerate(router.rules):
                here = self._item(path, "rules", index)
                self.group((*here, "targetGroup"), tags.target_group)
                if not tags.tags:
                    self._context.reading.problem((*here, "tags"), "a rule needs at least one tag")
        elif isinstance(router, CompoundRouter):
            self._compound(router, path)

    def _item(self, path: Path, key: str, index: int) -> Path:
        return self._context.reading.item_path((*path, key), index)

    def _pairs(self, pairs: Iterable[tuple[str, str]], path: Path) -> None:
        for key, name in pairs:
            self.group((*path, key), name)

    def _rule(self, rule: QueryRegexRule, path: Path) -> None:
        self._pattern(rule.regex, (*path, "regex"))
        if rule.target_group is not None:
            self.group((*path, "targetGroup"), rule.target_group)
        if any(self._context.reading.is_broken((*path, key)) for key in ("action", "targetGroup")):
            return
        if rule.action == "route" and rule.target_group is None:
            message = "a rule that routes needs a group"
            self._context.reading.problem((*path, "targetGroup"), message, "or set action: deny")
        elif rule.action == "deny" and rule.target_group is not None:
            message = "a rule that denies has no use for a group"
            self._context.reading.warn((*path, "targetGroup"), message, "remove it")
        if rule.action == "route" and rule.error is not None:
            self._context.reading.warn((*path, "error"), "only a rule that denies shows it", "remove it")

    def _compound(self, router: CompoundRouter, path: Path) -> None:
        self.group((*path, "targetGroup"), router.target_group)
        if not router.conditions and not self._written((*path, "conditions", 0)):
            self._context.reading.problem((*path, "conditions"), "a compound rule needs a condition")
        for index, condition in enumerate(router.conditions):
            if isinstance(condition, QueryRegexCondition):
                self._pattern(condition.regex, (*self._item(path, "conditions", index), "regex"))

    def _written(self, path: Path) -> bool:
        return path in self._context.reading.marks

    def _pattern(self, pattern: str, path: Path) -> None:
        if any(char < " " and char not in "\t\r\n" for char in pattern):
            message = f"has a control character, as a backslash in double quotes makes one: {show(pattern)}"
            hint = "use single quotes, or double the backslash"
            self._context.reading.warn(path, message, hint)
        if reason := self._context.regex(pattern):
            self._context.reading.problem(path, f"not a pattern: {reason}", "patterns are in RE2 syntax")


def check_names_of_users(context: Context) -> None:
    """With ``auth.provider: static``, access and routing name users and groups that somebody has."""
    auth = context.config.auth
    if auth.provider != "static":
        return
    users = context.names_under(("auth", "staticUsers", "users"))
    groups = {group for user in auth.static_users.users.values() for group in user.groups}
    for name, group in context.config.cluster_groups.items():
        path: Path = ("clusterGroups", name, "authorization")
        for index, user in enumerate(group.authorization.allow_users):
            _known_user(context, context.reading.item_path((*path, "allowUsers"), index), user, users)
        for index, wanted in enumerate(group.authorization.allow_groups):
            if wanted not in groups:
                here = context.reading.item_path((*path, "allowGroups"), index)
                hint = one_of(wanted, sorted(groups), "groups")
                context.reading.warn(here, f"no static user is in the group {show(wanted)}", hint)
    for index, router in enumerate(context.config.routers):
        here = context.reading.item_path(("routers",), index)
        if isinstance(router, UserGroupRouter):
            for user in router.user_to_group:
                _known_user(context, (*here, "userToGroup", user), user, users)


def _known_user(context: Context, path: Path, user: str, users: dict[str, None]) -> None:
    if user not in users:
        context.reading.warn(path, f"there is no static user {show(user)}", one_of(user, users, "users"))
