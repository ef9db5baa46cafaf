"""``${VAR}`` and ``${VAR:-default}`` in the scalars of a file; ``$${`` writes a literal ``${``."""

import re
from collections.abc import Mapping

_PLACEHOLDER = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")


class SubstitutionError(ValueError):
    """A placeholder that cannot be replaced. The message names the variable, never a value."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def substitute(text: str, environ: Mapping[str, str]) -> str:
    """``text`` with its placeholders replaced, once: what a variable holds is not looked at again. A default
    applies when the variable is unset or empty. Raises SubstitutionError."""
    if "${" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        literal, name, default = match.groups()
        if literal:
            return "${"
        if not name:
            raise SubstitutionError(
                "${ begins a variable, ${NAME} or ${NAME:-default}", "write $${ for a literal ${"
            )
        value = environ.get(name)
        if default is not None:
            return value or default
        if value is None:
            raise SubstitutionError(
                f"the environment variable {name} is not set", f"set it, or write ${{{name}:-default}}"
            )
        return value

    replaced = _PLACEHOLDER.sub(replace, text)
    try:
        replaced.encode()
    except UnicodeEncodeError:
        raise SubstitutionError("the environment gives bytes that are not UTF-8", "set it anew") from None
    return replaced
