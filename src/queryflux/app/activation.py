"""From what is stored to what is used: the steps of a reload that know this process."""

import logging
from collections.abc import Callable

from queryflux.app.compile import THREAD, Compiled, compile_snapshot, discard
from queryflux.auth.hashes import check_password
from queryflux.auth.port import Authenticator
from queryflux.config.candidate import Candidate, check_content, check_document
from queryflux.config.problems import Problem, render_problems
from queryflux.config.process import ProcessConfig
from queryflux.config.snapshot import Snapshot
from queryflux.config.store import StoredConfig
from queryflux.controlplane.reload import Swap
from queryflux.fleet.snapshot import WorkerSnapshot
from queryflux.model.errors import NotConfigured
from queryflux.model.protocol import ClientProtocol
from queryflux.pipeline.generation import Generation
from queryflux.routing.regex import check_regex
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.threads import in_thread

log = logging.getLogger(__name__)


class Activation:
    """The configuration in use, and how another one comes in its place."""

    def __init__(
        self,
        process: ProcessConfig,
        file: Snapshot,
        clock: Clock,
        activate: Callable[[Generation], None],
        metrics: Metrics | None = None,
    ) -> None:
        """``activate`` hands a generation to the pipeline; scripts are counted in ``metrics``."""
        self._process = process
        self.checked_for = process
        """Whose doors a configuration is held to."""
        self._file = file
        self._clock = clock
        self._activate = activate
        self._metrics = metrics
        self._compiled: Compiled | None = None
        self._said: frozenset[str] = frozenset()

    @property
    def compiled(self) -> Compiled:
        """What is in use. Raises NotConfigured before anything is."""
        if self._compiled is None:
            raise NotConfigured("no configuration is active yet", hint="retry in a moment")
        return self._compiled

    def authenticator(self) -> Authenticator:
        """What doors ask who is there."""
        return self.compiled.auth

    async def prepare_file(self) -> Swap:
        """Make the file's own configuration ready, which was checked when it was read. Raises ConfigError."""
        return await self._prepare(self._file)

    async def prepare(self, stored: StoredConfig) -> Swap:
        """Check and compile what is stored, together with what only the file says. Raises ConfigError."""
        candidate, notes = await in_thread(THREAD, self._check, stored)
        swap = await self._prepare(candidate.snapshot)
        self._say(notes, candidate.warnings)
        return swap

    async def prepare_received(self, received: WorkerSnapshot) -> Swap:
        """Check and compile what a control plane made; its revision is the one that it came with. Raises
        ConfigError."""
        candidate = await in_thread(THREAD, self._check_received, received)
        swap = await self._prepare(candidate.snapshot, received.revision)
        self._say([], candidate.warnings)
        return swap

    def _check_received(self, received: WorkerSnapshot) -> Candidate:
        return check_content(received.content, self._process, check_regex, check_password)

    def _check(self, stored: StoredConfig) -> tuple[Candidate, list[str]]:
        document, notes = stored.document(self._file)
        return check_document(document, self.checked_for, check_regex, check_password), notes

    async def _prepare(self, snapshot: Snapshot, revision: str = "") -> Swap:
        compiled = await compile_snapshot(
            snapshot,
            self._clock,
            untagged_metrics=self._process.metrics.tags_deny_list,
            metrics=self._metrics,
            before=self._compiled,
        )
        try:
            await in_thread(THREAD, self._warm, compiled.generation)
        except BaseException:
            await discard(compiled, self._compiled)
            raise

        if revision:
            compiled.generation.revision = revision

        def swap() -> None:
            self._compiled = compiled
            self._activate(compiled.generation)

        return swap

    def _warm(self, generation: Generation) -> None:
        """Load what every statement of some door will need: its dialect, where no cluster speaks it. One
        whose doors all have an engine of their own stays small."""
        engines = [cluster.engine for cluster in generation.clusters.values()]
        spoken = {engine.native_protocol for engine in engines}
        dialects = {engine.dialect for engine in engines}
        foreign = [
            ClientProtocol(name)
            for name, listener in self._process.frontends.named().items()
            if listener.enabled and ClientProtocol(name) not in spoken
        ]
        generation.translator.warm({(protocol.dialect, to) for protocol in foreign for to in dialects})

    def _say(self, notes: list[str], warnings: tuple[Problem, ...]) -> None:
        """Warnings that the configuration before did not have."""
        lines = [*notes, *(render_problems([warning]) for warning in warnings)]
        for line in lines:
            if line not in self._said:
                log.warning("configuration: %s", line)
        self._said = frozenset(lines)
