"""Transaction control in any spelling."""

import pytest

from queryflux.engines.control import Spoken, spoken


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("begin", Spoken("BEGIN")),
        (" -- a\n/* b */ BEGIN work ; ", Spoken("BEGIN")),
        ("START TRANSACTION", Spoken("BEGIN")),
        (
            "start transaction read  only,isolation level\nserializable",
            Spoken("BEGIN", ("READ ONLY", "ISOLATION LEVEL SERIALIZABLE")),
        ),
        ("begin work read write not deferrable", Spoken("BEGIN", ("READ WRITE",))),
        ("END", Spoken("COMMIT")),
        ("commit;", Spoken("COMMIT")),
        ("abort transaction", Spoken("ROLLBACK")),
        ("ROLLBACK", Spoken("ROLLBACK")),
    ],
)
def test_what_is_control(sql: str, expected: Spoken) -> None:
    assert spoken(sql) == expected


@pytest.mark.parametrize(
    "sql", ["", "SELECT 1", "start", "beginning", "commit prepared 'x'", "rollback to s", "begin; select 1"]
)
def test_what_is_not(sql: str) -> None:
    assert spoken(sql) is None


@pytest.mark.parametrize("repeated", ["/**/", " ", "/*", "--\n", "*/ /*"])
@pytest.mark.parametrize("first", ["", "begin", "begin read only", "commit"])
def test_a_long_text_takes_no_long_time(first: str, repeated: str) -> None:
    """Written carelessly, these would take years."""
    assert spoken(first + repeated * 50_000 + "x") is None
