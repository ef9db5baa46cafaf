"""The SQLSTATE of each kind of error, for engines that give none (PostgreSQL manual, appendix A)."""

from queryflux.model.errors import EngineErrorKind as Kind

SQLSTATES: dict[Kind, str] = {
    Kind.SYNTAX: "42601",
    Kind.TABLE_NOT_FOUND: "42P01",
    Kind.COLUMN_NOT_FOUND: "42703",
    Kind.FUNCTION_NOT_FOUND: "42883",
    Kind.SCHEMA_NOT_FOUND: "3F000",
    Kind.ALREADY_EXISTS: "42P07",
    Kind.TYPE_MISMATCH: "42804",
    Kind.INVALID_VALUE: "22023",
    Kind.OUT_OF_RANGE: "22003",
    Kind.DIVISION_BY_ZERO: "22012",
    Kind.CONSTRAINT: "23000",
    Kind.SERIALIZATION: "40001",
    Kind.PERMISSION: "42501",
    Kind.READ_ONLY: "25006",
    Kind.RESOURCES: "53000",
    Kind.NOT_SUPPORTED: "0A000",
    Kind.OTHER: "",
}
