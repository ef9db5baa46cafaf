"""The engines that exist, by the key that ``clusters.<c>.engine`` gives. Each is imported when one is
configured."""

import importlib
from collections.abc import Callable
from typing import cast

from queryflux.config.clusters import ClusterConfig
from queryflux.engines.port import Engine
from queryflux.model.errors import ConfigError
from queryflux.runtime.clock import Clock

Build = Callable[[str, ClusterConfig, Clock], Engine]

ENGINES = {
    "duckDb": ("queryflux.engines.duckdb", "duckdb"),
    "trino": ("queryflux.engines.trino", ""),
    "postgres": ("queryflux.engines.postgres", ""),
}
"""Engine key to its module and the extra that installs what it needs."""


def build_engine(name: str, config: ClusterConfig, clock: Clock) -> Engine:
    """The adapter of one cluster. Raises ConfigError naming the cluster; touches no network."""
    module_name, extra = ENGINES[config.engine]
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"clusters.{name}: engine {config.engine!r} needs the package {error.name!r}",
            hint=f"pip install 'queryflux[{extra or 'all'}]'",
        ) from error
    return cast(Build, module.build)(name, config, clock)
