"""DuckDB's errors in our words."""

import duckdb
import pytest

from queryflux.engines.duckdb.errors import translate
from queryflux.model.errors import EngineError

SQL = "SELECT a,\n  nope FROM t"
PROSE = 'Binder Error: Referenced column "nope" not found\n\nLINE 2:   nope FROM t\n          ^'
JSON = (
    'Binder Error: {"exception_type":"Binder","exception_message":"Referenced column \\"nope\\" not found'
    '\\n\\nLINE 2:   nope FROM t\\n          ^"%s}'
)


@pytest.mark.parametrize("text", [PROSE, JSON % "", JSON % ',"position":"12"'])
def test_the_picture_of_the_line_becomes_a_position(text: str) -> None:
    error = translate(duckdb.BinderException(text), SQL)
    assert isinstance(error, EngineError)
    assert (error.message, error.hint) == ('Referenced column "nope" not found', "")
    assert error.position == 12
