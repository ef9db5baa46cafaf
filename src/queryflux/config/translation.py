"""``translation``: how a statement becomes one of the engine's dialect."""

from typing import Literal

from msgspec import Struct

from queryflux.config.kinds import Count


class TranslationConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """What happens to a statement whose client and engine write different dialects."""

    mode: Literal["bestEffort", "strict"] = "bestEffort"
    """`bestEffort`: what cannot be translated is forwarded as it is; `strict`: it is refused."""
    error_on_unsupported: bool = False
    """An older way to say `mode: strict`; false does not weaken a strict mode."""
    python_scripts: tuple[str, ...] = ()
    """Scripts that change translated SQL: `transform(sql, src, dst)`."""
    schema_resolution_timeout_ms: Count = 1500
    """Longest wait for the catalog's schemas."""

    @property
    def strict(self) -> bool:
        """Whether a statement that cannot be translated is refused."""
        return self.mode == "strict" or self.error_on_unsupported
