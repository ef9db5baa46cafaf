"""The whole file."""

from collections.abc import Mapping

from msgspec import Struct, field

from queryflux.config.auth import AuthConfig, AuthorizationConfig
from queryflux.config.catalog import CatalogProvider, NullCatalog
from queryflux.config.clusters import ClusterConfig
from queryflux.config.groups import ClusterGroupConfig
from queryflux.config.policy import AccessControlConfig, GuardrailsConfig
from queryflux.config.process import ProcessConfig
from queryflux.config.routers import Router
from queryflux.config.scripts import ScriptConfig
from queryflux.config.translation import TranslationConfig


class RootConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """A configuration file."""

    queryflux: ProcessConfig = ProcessConfig()
    """Settings of this process."""
    clusters: Mapping[str, ClusterConfig] = field(default_factory=dict)
    """Engines by name."""
    cluster_groups: Mapping[str, ClusterGroupConfig] = field(default_factory=dict)
    """Groups by name."""
    routers: tuple[Router, ...] = ()
    """Rules that choose a group, in order."""
    routing_fallback: str = ""
    """Group of queries that no rule matches; empty, or not for the user: the first group that is."""
    translation: TranslationConfig = TranslationConfig()
    """How statements are translated."""
    scripts: Mapping[str, ScriptConfig] = field(default_factory=dict)
    """Users' Python by name."""
    catalog_provider: CatalogProvider = NullCatalog()
    """Where table schemas come from."""
    auth: AuthConfig = AuthConfig()
    """Who is asking."""
    authorization: AuthorizationConfig = AuthorizationConfig()
    """Who may use which group."""
    guardrails: GuardrailsConfig | None = None
    """Rules over translated SQL; absent: none."""
    access_control: AccessControlConfig | None = None
    """What a user may see; absent: everything."""
