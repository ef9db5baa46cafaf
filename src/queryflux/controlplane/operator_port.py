"""All endpoints of the operator port put together: health, metrics, the admin API and its document."""

from starlette.applications import Starlette
from starlette.responses import Response

from queryflux.config.listeners import AdminApiConfig
from queryflux.config.store import ConfigStore
from queryflux.controlplane.app import operator_app
from queryflux.controlplane.config_api import ConfigApi
from queryflux.controlplane.config_service import ConfigService
from queryflux.controlplane.endpoints import Call, Endpoint, answer
from queryflux.controlplane.live import Live
from queryflux.controlplane.login import Login
from queryflux.controlplane.openapi import openapi
from queryflux.controlplane.operations_api import OperationsApi
from queryflux.controlplane.queries_service import QueriesService
from queryflux.controlplane.scripts_api import ScriptsApi
from queryflux.controlplane.scripts_service import ScriptLibrary
from queryflux.controlplane.setting_paths import SettingPaths
from queryflux.history.port import HistoryStore
from queryflux.runtime.clock import Clock


def operator_port(
    public: list[Endpoint],
    *,
    config: AdminApiConfig,
    service: ConfigService,
    store: ConfigStore,
    history: HistoryStore,
    live: Live,
    clock: Clock,
    version: str,
) -> Starlette:
    """The whole application; ``version`` is QueryFlux's. Raises ConfigError when the operator's password
    cannot be used."""
    login = Login(config, store, clock)
    queries = QueriesService(history, live, clock)
    edits = ConfigApi(service, live)
    endpoints = [
        *public,
        *edits.endpoints(),
        *SettingPaths(service, edits.headers).endpoints(),
        *ScriptsApi(ScriptLibrary(service), edits.headers).endpoints(),
        *OperationsApi(queries, live, login, durable=service.durable).endpoints(),
    ]

    async def document(call: Call) -> Response:
        return answer(openapi(endpoints, version))

    endpoints.append(Endpoint("GET", "/openapi.json", "This document.", document, public=True))
    return operator_app(endpoints, login.check, config.cors_allowed_origins, login.look)
