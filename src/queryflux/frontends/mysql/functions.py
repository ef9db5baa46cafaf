"""The functions and operators that preambles of drivers are made of (MySQL manual, chapter 14)."""

from collections.abc import Callable

from queryflux.wire.mysql.errors import ServerError

Part = str | int | None

LONGEST = 64 * 1024
"""Characters of a text that is worked out here; a longer one is error 1301."""
_TOO_LONG = 1301


def _check_length(length: int, function: str) -> None:
    if length > LONGEST:
        raise ServerError(_TOO_LONG, f"Result of {function}() was larger than {LONGEST} characters")


def _concat(*parts: Part) -> Part:
    if None in parts:
        return None
    texts = list(map(str, parts))
    _check_length(sum(map(len, texts)), "concat")
    return "".join(texts)


def _concat_ws(separator: Part, *parts: Part) -> Part:
    if separator is None:
        return None
    texts = [str(part) for part in parts if part is not None]
    _check_length(sum(map(len, texts)) + len(texts) * len(str(separator)), "concat_ws")
    return str(separator).join(texts)


def _replace(text: Part, old: Part, new: Part) -> Part:
    if text is None or old is None or new is None:
        return None
    if not str(old):
        return str(text)
    whole = str(text)
    _check_length(len(whole) + whole.count(str(old)) * len(str(new)), "replace")
    return whole.replace(str(old), str(new))


def _coalesce(*parts: Part) -> Part:
    return next((part for part in parts if part is not None), None)


def _upper(text: Part) -> Part:
    return None if text is None else str(text).upper()


def _lower(text: Part) -> Part:
    return None if text is None else str(text).lower()


def _trim(text: Part) -> Part:
    return None if text is None else str(text).strip(" ")


def _locate(wanted: Part, text: Part) -> Part:
    if wanted is None or text is None:
        return None
    return str(text).lower().find(str(wanted).lower()) + 1


def _find_in_set(wanted: Part, items: Part) -> Part:
    if wanted is None or items is None:
        return None
    names = str(items).lower().split(",")
    return names.index(str(wanted).lower()) + 1 if str(wanted).lower() in names else 0


def _number(part: Part) -> float:
    try:
        return float(part if part is not None else 0)
    except ValueError:
        return 0.0


def _if(condition: Part, yes: Part, no: Part) -> Part:
    return yes if _number(condition) else no


def _nullif(left: Part, right: Part) -> Part:
    return None if _equal(left, right) else left


def _order(left: Part, right: Part) -> int | None:
    """Less, equal or greater; as numbers when one of them is, else as text in any case."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        first, second = left.lower(), right.lower()
        return (first > second) - (first < second)
    low, high = _number(left), _number(right)
    return (low > high) - (low < high)


def _equal(left: Part, right: Part) -> Part:
    order = _order(left, right)
    return None if order is None else int(order == 0)


def _comparison(*wanted: int) -> Callable[[Part, Part], Part]:
    def compare(left: Part, right: Part) -> Part:
        order = _order(left, right)
        return None if order is None else int(order in wanted)

    return compare


def _or(left: Part, right: Part) -> Part:
    if _number(left) or _number(right):
        return 1
    return None if None in (left, right) else 0


def _and(left: Part, right: Part) -> Part:
    if (left is not None and not _number(left)) or (right is not None and not _number(right)):
        return 0
    return None if None in (left, right) else 1


FUNCTIONS: dict[str, Callable[..., Part]] = {
    "CONCAT": _concat,
    "CONCAT_WS": _concat_ws,
    "REPLACE": _replace,
    "IFNULL": _coalesce,
    "COALESCE": _coalesce,
    "UPPER": _upper,
    "LOWER": _lower,
    "TRIM": _trim,
    "LOCATE": _locate,
    "FIND_IN_SET": _find_in_set,
    "IF": _if,
    "NULLIF": _nullif,
    "OR": _or,
    "AND": _and,
    "=": _equal,
    "<>": _comparison(-1, 1),
    "!=": _comparison(-1, 1),
    "<": _comparison(-1),
    ">": _comparison(1),
    "<=": _comparison(-1, 0),
    ">=": _comparison(0, 1),
}
_MANY = 100
ARITY: dict[str, tuple[int, int]] = {
    "CONCAT": (1, _MANY),
    "CONCAT_WS": (2, _MANY),
    "REPLACE": (3, 3),
    "IFNULL": (2, 2),
    "COALESCE": (1, _MANY),
    "UPPER": (1, 1),
    "LOWER": (1, 1),
    "TRIM": (1, 1),
    "LOCATE": (2, 2),
    "FIND_IN_SET": (2, 2),
    "IF": (3, 3),
    "NULLIF": (2, 2),
}
"""How many arguments those take that are written as functions: at least, and at most."""
