"""The chain: rules in order, then the fallback, then whether the identity may use the group at all.

When no rule matches, ``routingFallback`` is taken if it is set and the identity may use it; else the first
group, in the order of the configuration, that the identity may use.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from queryflux.config.routers import (
    CompoundRouter,
    HeaderRouter,
    ProtocolBasedRouter,
    PythonRouter,
    QueryRegexRouter,
    Router,
    TagsRouter,
    UserGroupRouter,
)
from queryflux.model.errors import AccessDenied, ConfigError, QueryFluxError, Unavailable
from queryflux.model.identity import VerifiedIdentity
from queryflux.routing.request import RouteRequest, Rule, Unanswered
from queryflux.routing.rules.compound import CompoundRule
from queryflux.routing.rules.header import HeaderRule
from queryflux.routing.rules.protocol_based import ProtocolBasedRule
from queryflux.routing.rules.python_script import PythonRule
from queryflux.routing.rules.query_regex import QueryRegexRouting
from queryflux.routing.rules.tags import TagsRule
from queryflux.routing.rules.user_group import UserGroupRule
from queryflux.routing.trace import Trace
from queryflux.scripts.host import ScriptHost

MayUse = Callable[[VerifiedIdentity, Collection[str], Collection[str]], bool]
"""Identity, ``allowGroups``, ``allowUsers``: the auth room's ``may_use_group``."""


@dataclass(frozen=True, slots=True)
class GroupAccess:
    """What routing knows of a group."""

    allow_groups: frozenset[str] = frozenset()
    allow_users: frozenset[str] = frozenset()
    enabled: bool = True


@dataclass(slots=True)
class Route:
    """Where a query goes, and how that was found."""

    group: str
    trace: Trace


class RoutingDenied(AccessDenied):
    """A rule denies the query, or the identity may not use the group. ``trace`` says how it came to that."""

    def __init__(self, message: str, trace: Trace) -> None:
        super().__init__(message)
        self.trace = trace


class NoGroup(Unavailable):
    """The group is disabled, or there is none. ``trace`` says how it came to that."""

    def __init__(self, message: str, trace: Trace, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.trace = trace


class RuleFailed(Unavailable):
    """A rule that decides could not. ``trace`` says which and why."""

    def __init__(self, message: str, trace: Trace) -> None:
        super().__init__(message, hint="the operator finds the reason in the log and in the query's trace")
        self.trace = trace


class RouterChain:
    """A compiled chain; immutable, and cheap to ask. Rules remember nothing: equal requests go the same way.
    ``reads_text`` is False when no rule looks at the statement, so that all of a session's go one way.
    ``asks``: some rule has to be asked first (``ask``)."""

    def __init__(
        self,
        rules: Sequence[tuple[str, Rule]],
        fallback: str,
        groups: Mapping[str, GroupAccess],
        may_use: MayUse,
        *,
        reads_text: bool,
    ) -> None:
        self.reads_text = reads_text
        self.asks = any(isinstance(rule, PythonRule) for _, rule in rules)
        self._kinds = tuple(kind for kind, _ in rules)
        self._matches = tuple(rule.match for _, rule in rules)
        self._groups = dict(groups)
        self._order = tuple(dict.fromkeys([fallback, *groups] if fallback else groups))
        self._may_use = may_use

    def route(self, request: RouteRequest) -> Route:
        """The group for a request. Raises RoutingDenied, NoGroup, RuleFailed; Unanswered when the chain
        ``asks`` and was not let."""
        for index, match in enumerate(self._matches):
            hit = match(request)
            if hit is None:
                continue
            trace = Trace(self._kinds, index, hit, hit.group)
            if hit.failed is not None:
                trace.denied = hit.failed
                raise RuleFailed(f"the query cannot be routed: {hit.failed}", trace)
            if hit.group is None:
                raise _denied(trace, hit.denied or "")
            return self._checked(hit.group, request.identity, trace)
        return self._fall_back(request.identity)

    async def ask(self, request: RouteRequest) -> None:
        """Get the answers that ``route`` needs for this request, each when the walk comes to its rule."""
        answers = dict(request.answers)
        request.answers = answers
        while True:
            try:
                self.route(request)
            except Unanswered as wanted:
                answers[wanted.rule] = await wanted.rule.ask(request)
            except QueryFluxError:
                return  # whoever routes it meets the same
            else:
                return

    def _checked(self, group: str, identity: VerifiedIdentity, trace: Trace) -> Route:
        access = self._groups[group]
        if not self._may_use(identity, access.allow_groups, access.allow_users):
            raise _denied(trace, f"user {identity.user!r} may not use cluster group {group!r}")
        if not access.enabled:
            trace.denied = f"cluster group {group!r} is disabled"
            raise NoGroup(trace.denied, trace, hint="enable the group or route elsewhere")
        return Route(group, trace)

    def _fall_back(self, identity: VerifiedIdentity) -> Route:
        trace = Trace(self._kinds, used_fallback=True)
        for group in self._order:
            access = self._groups[group]
            if not self._may_use(identity, access.allow_groups, access.allow_users):
                trace.skipped += ((group, "not allowed"),)
            elif not access.enabled:
                trace.skipped += ((group, "disabled"),)
            else:
                trace.group = group
                return Route(group, trace)
        if any(reason == "disabled" for _, reason in trace.skipped) or not self._order:
            trace.denied = "no routing rule matched and no cluster group is enabled for this query"
            raise NoGroup(trace.denied, trace, hint="set routingFallback, or enable a group")
        raise _denied(
            trace, f"no routing rule matched and user {identity.user!r} may not use any cluster group"
        )


def _denied(trace: Trace, message: str) -> RoutingDenied:
    trace.denied = message
    return RoutingDenied(message, trace)


def compile_routing(
    routers: Sequence[Router],
    fallback: str,
    groups: Mapping[str, GroupAccess],
    *,
    may_use: MayUse,
    scripts: ScriptHost | None = None,
) -> RouterChain:
    """A chain from the configuration; ``groups`` in its order. ``scripts`` has those of its rules first, in
    their order. Raises ConfigError, naming the entry."""
    rules: list[tuple[str, Rule]] = []
    known, asked = frozenset(groups), 0
    for number, router in enumerate(routers):
        kind = str(router.__struct_config__.tag)
        try:
            if isinstance(router, PythonRouter) and scripts is not None:
                rules.append((kind, PythonRule(scripts, asked, known)))
                asked += 1
            else:
                rules.append((kind, _rule(router)))
        except ValueError as error:
            raise ConfigError(f"routers[{number}] ({kind}): {error}") from None
        for target in targets(router):
            if target not in groups:
                raise ConfigError(f"routers[{number}] ({kind}): there is no cluster group {target!r}")
    if fallback and fallback not in groups:
        raise ConfigError(f"routingFallback: there is no cluster group {fallback!r}")
    reads_text = not all(isinstance(router, BLIND) for router in routers)
    return RouterChain(rules, fallback, groups, may_use, reads_text=reads_text)


BLIND = ProtocolBasedRouter | HeaderRouter | UserGroupRouter | TagsRouter
"""Kinds of rules that never look at the statement."""


def _rule(router: Router) -> Rule:
    match router:
        case ProtocolBasedRouter():
            return ProtocolBasedRule(router)
        case HeaderRouter():
            return HeaderRule(router)
        case UserGroupRouter():
            return UserGroupRule(router)
        case QueryRegexRouter():
            return QueryRegexRouting(router)
        case TagsRouter():
            return TagsRule(router)
        case CompoundRouter():
            return CompoundRule(router)
        case _:
            raise ValueError("this kind of rule is not supported")


def targets(router: Router) -> list[str]:
    """Every group that a router can name."""
    match router:
        case ProtocolBasedRouter():
            return list(router.groups().values())
        case HeaderRouter():
            return list(router.header_value_to_group.values())
        case UserGroupRouter():
            return list(router.user_to_group.values())
        case QueryRegexRouter() | TagsRouter():
            return [rule.target_group for rule in router.rules if rule.target_group is not None]
        case CompoundRouter():
            return [router.target_group]
        case _:
            return []
