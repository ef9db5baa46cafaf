"""``scriptFile``: the text of the file takes the place of its name, so that it travels with the
configuration."""

from typing import Any

from queryflux.config.walk import Reading


def with_script_files(values: dict[str, Any], reading: Reading) -> None:
    """Read the files that routers name, in place in what the walk gave. A configuration that is not a file
    may name none: its reading refuses."""
    for index, router in enumerate(values.get("routers", [])):
        name = router.pop("scriptFile", None)
        if name is not None:
            path = (*reading.item_path(("routers",), index), "scriptFile")
            text = reading.file_text(name, path)
            router["script"] = router.get("script", "") if text is None else text
