"""Any bytes are a SCRAM message or AuthenticationFailed; nothing else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queryflux.auth.scram import ScramKeys, ScramServer
from queryflux.auth.tokens import Tokens
from queryflux.auth.trust import TrustAuthenticator
from queryflux.model.errors import AuthenticationFailed
from queryflux.runtime.clock import SystemClock

KEYS = ScramKeys.derive("pw", b"salt", 1)
SOMEBODY = TrustAuthenticator(required=False, allow_plaintext=False, tokens=Tokens(SystemClock())).trust("x")


def server() -> ScramServer:
    return ScramServer(KEYS.salt, KEYS.iterations, lambda: KEYS, SOMEBODY)


@settings(max_examples=300)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_taken_or_refused(first: bytes, final: bytes) -> None:
    exchange = server()
    try:
        exchange.first(first)
    except AuthenticationFailed:
        pass
    else:
        with pytest.raises(AuthenticationFailed):
            exchange.final(final)
    begun = server()
    begun.first(b"n,,n=,r=abc")
    with pytest.raises(AuthenticationFailed):
        begun.final(final)


@given(st.text(max_size=200))
def test_any_text_is_a_verifier_or_refused(text: str) -> None:
    for stored in (text, "SCRAM-SHA-256$" + text):
        with pytest.raises(ValueError, match="SCRAM verifier"):
            ScramKeys.parse(stored)
