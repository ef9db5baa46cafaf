"""Any bytes are a snapshot or refused as one; any call of the worker API has an answer of the API's own."""

import asyncio
import contextlib
import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from queryflux.config.candidate import check_content
from queryflux.config.clusters import ClusterConfig
from queryflux.config.problems import ConfigProblems
from queryflux.config.process import ProcessConfig
from queryflux.config.snapshot import Snapshot, canonical_json, revision_of, revision_of_json
from queryflux.controlplane.config_calls import ConfigCalls
from queryflux.controlplane.publisher import Offer, SnapshotPublisher
from queryflux.controlplane.worker_app import WorkerApp
from queryflux.controlplane.worker_login import WorkerLogin
from queryflux.fleet.paths import CONFIG, CONFIG_WAIT
from queryflux.fleet.snapshot import ENVELOPE, Refusal, SnapshotRefused, build, read
from queryflux.model.secret import Secret
from tests.fuzz.test_admin_api import VALUES, mutated
from tests.kit.clock import ManualClock
from tests.kit.metrics import NoMetrics
from tests.kit.worker_requests import SECRET, call
from tests.rooms.config.reading import load

FULL = load(
    """
clusters:
  east: {engine: trino, endpoint: "https://t:1", auth: {type: basic, username: u, password: p}}
  files: {engine: duckDb, threads: 2}
clusterGroups: {bi: {members: [east, files], queryTimeoutSecs: 1.5, defaultTags: {a: null}}}
routers: [{type: userGroup, userToGroup: {ann: bi}}, {type: tags, rules: [{tags: {a: b}, targetGroup: bi}]}]
routingFallback: bi
auth: {provider: static, staticUsers: {users: {ann: {password: x, groups: [g]}}}}
"""
).snapshot
DATA = build(FULL, epoch="e", sequence=1, generated_at=1.0, confirmed_at=1.0)[1]
KEYS = st.sampled_from(
    ["revision", "epoch", "sequence", "generatedAt", "credentials", "schemaVersion", "signature"]
)


def refused_or_read(data: bytes) -> None:
    refusal: SnapshotRefused | None = None
    try:
        received = read(data)
    except SnapshotRefused as error:
        refusal = error
    if refusal is not None:
        assert refusal.reason in Refusal
        assert refusal.message
    else:
        assert revision_of_json(received.content) == received.revision
        assert received.data is data


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
@example(b"{")
@example(b'{"schemaVersion":1}')
@example(b"[" * 10_000)
@example(b'{"a":' * 10_000)
@example(b'{"schemaVersion":' + b"9" * 5000 + b"}")
@example(b'{"schemaVersion":1,"credentials":"embedded","revision":"0000000000000000","a":1e400}')
def test_any_bytes(data: bytes) -> None:
    refused_or_read(data)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(DATA)), st.binary(max_size=4), st.integers(0, 8))
def test_a_document_with_other_bytes_in_it(at: int, put: bytes, cut: int) -> None:
    refused_or_read(DATA[:at] + put + DATA[at + cut :])


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """One with other values in it, and the revision that comes of them."""
    document: dict[str, Any] = json.loads(DATA)
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            changed = draw(mutated(document))
            document = changed if isinstance(changed, dict) else document
        else:
            document[draw(KEYS | st.text(max_size=5))] = draw(VALUES)
    return document


@settings(max_examples=400, deadline=None)
@given(documents())
def test_an_honest_document_with_anything_in_it(document: dict[str, Any]) -> None:
    content = {key: value for key, value in document.items() if key not in ENVELOPE}
    with contextlib.suppress(ValueError):  # surrogates: it cannot be hashed here either
        document["revision"] = revision_of_json(content)
    data = json.dumps(document).encode()
    refused_or_read(data)
    try:
        received = read(data)
        candidate = check_content(received.content, ProcessConfig(), _fine, _fine)
    except (SnapshotRefused, ConfigProblems):
        return
    assert revision_of(candidate.snapshot)


def _fine(text: str) -> str | None:
    return None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(JSON, st.randoms())
def test_the_revision_survives_the_journey_and_the_order_of_keys(document: Any, chance: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            pairs = list(value.items())
            chance.shuffle(pairs)
            return {key: shuffled(item) for key, item in pairs}
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    travelled = json.loads(json.dumps(shuffled(document), ensure_ascii=chance.random() < 0.5))
    assert canonical_json(travelled) == canonical_json(document)


TARGETS = st.sampled_from([CONFIG, CONFIG_WAIT, "/worker/", "/worker/register", "/worker/config/wait/"])
QUERIES = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40) | st.sampled_from(
    ["revision=&timeoutSecs=0", "timeoutSecs=0&sequence=1", "timeoutSecs=0&revision=%00", "a=1&a=1"]
)
HEADERS = st.dictionaries(
    st.sampled_from(["If-None-Match", "Accept-Encoding", "Content-Encoding", "X-QueryFlux-Instance"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30),
)
METHODS = st.sampled_from(["GET", "HEAD", "POST", "OPTIONS", "get", ""])


@settings(max_examples=200, deadline=None)
@given(METHODS, TARGETS, QUERIES, HEADERS, st.binary(max_size=50), st.booleans())
def test_any_call_has_an_answer(
    method: str, path: str, query: str, headers: dict[str, str], data: bytes, known: bool
) -> None:
    async def ask() -> int:
        clock = ManualClock()
        publisher = SnapshotPublisher(clock=clock, metrics=NoMetrics(), build_secs=1, most_sends=1)
        publisher.offer(Offer(Snapshot(clusters={"a": ClusterConfig(engine="duckDb")}), "e", 1, 0))
        await publisher.built()
        publisher.begin_drain()  # so that no wait lasts
        app = WorkerApp(ConfigCalls(publisher).endpoints(), WorkerLogin([Secret(SECRET)], clock))
        reply = await call(app, method, f"{path}?{query}", headers, data, secret=SECRET if known else "wrong")
        await publisher.close()
        return reply.status

    status = asyncio.run(ask())
    assert status in ({200, 304, 400, 404, 405, 413, 415, 503} if known else {401})
