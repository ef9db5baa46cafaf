"""Siblings in one loop, for doors that ask each other."""

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from queryflux.runtime.siblings import Siblings

SECRET = b"known to all of them"


@asynccontextmanager
async def siblings(*tags: str) -> AsyncIterator[list[Siblings]]:
    """Those of these tags, which answer. Nothing of them is left in their directory."""
    with tempfile.TemporaryDirectory(prefix="qf-") as folder:
        made = [Siblings(Path(folder), tag, SECRET) for tag in tags]
        for sibling in made:
            await sibling.start()
        try:
            yield made
        finally:
            for sibling in made:
                await sibling.close()
            assert os.listdir(folder) == []
