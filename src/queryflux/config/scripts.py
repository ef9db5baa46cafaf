"""``scripts``: users' Python. A stored script has a name; those in rules and in ``translation`` have none."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from queryflux.config.routers import PythonRouter, Router

if TYPE_CHECKING:
    from queryflux.config.problems import Path
    from queryflux.config.translation import TranslationConfig

ScriptKind = Literal["translation_fixup", "routing", "guard"]

FUNCTIONS: Mapping[ScriptKind, tuple[str, int]] = {
    "translation_fixup": ("transform", 3),
    "routing": ("route", 2),
    "guard": ("check", 1),
}
"""The function that a script of each kind defines, and how many arguments it takes."""


class ScriptConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """A script that has a name."""

    kind: ScriptKind
    """What it is for, and so which function it defines: `transform`, `route` or `check`."""
    body: str
    """The script itself."""
    description: str = ""
    """What it does, for people."""


class Script(NamedTuple):
    """What is compiled."""

    kind: ScriptKind
    body: str

    @property
    def function(self) -> str:
        """The function that it must define."""
        return FUNCTIONS[self.kind][0]

    @property
    def arguments(self) -> int:
        """How many arguments it is called with."""
        return FUNCTIONS[self.kind][1]


CheckScripts = Callable[[Sequence[Script]], Sequence[str]]
"""Says for each script what is wrong with it; empty: nothing."""


def scripts_of(
    routers: Sequence[Router], translation: "TranslationConfig", scripts: Mapping[str, ScriptConfig]
) -> "list[tuple[Path, Script]]":
    """Every script of a configuration with the place where its text stands."""
    found: list[tuple[Path, Script]] = [
        (("routers", index, "script"), Script("routing", router.script))
        for index, router in enumerate(routers)
        if isinstance(router, PythonRouter)
    ]
    found += [
        (("translation", "pythonScripts", index), Script("translation_fixup", body))
        for index, body in enumerate(translation.python_scripts)
    ]
    found += [(("scripts", name, "body"), Script(one.kind, one.body)) for name, one in scripts.items()]
    return found
