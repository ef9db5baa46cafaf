"""Results without dictionaries: DuckDB's enums are some, and pyarrow's streams of batches that are made one
after the other carry none. Values go in their place, in columns, lists, structs and maps alike.
"""

import pyarrow as pa
import pyarrow.types as t


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that clients are told; the same one where it has no dictionaries."""
    fields = [field.with_type(plain_type(field.type)) for field in schema]
    return schema if fields == list(schema) else pa.schema(fields, schema.metadata)


def plain_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in ``schema``, which is the plain one of its own."""
    if batch.schema is schema or batch.schema.equals(schema):
        return batch
    columns = [_plain(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """A type with the values' own where it has dictionaries, at any depth."""
    if t.is_dictionary(kind):
        return plain_type(kind.value_type)
    if t.is_map(kind):
        return pa.map_(plain_type(kind.key_type), _plain_field(kind.item_field), kind.keys_sorted)
    if t.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    if t.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if t.is_large_list(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if t.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if t.is_union(kind):
        return pa.union([_plain_field(field) for field in kind], kind.mode, kind.type_codes)
    return kind


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def _plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if t.is_union(kind) and kind.mode == "sparse":
        parts = [_plain(array.field(n), field.type) for n, field in enumerate(kind)]
        names, codes = [field.name for field in kind], list(kind.type_codes)
        return pa.UnionArray.from_sparse(array.type_codes, parts, names, codes)
    return array.cast(kind)
