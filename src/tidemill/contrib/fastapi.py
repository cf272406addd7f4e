"""FastAPI integration: lifespan, mounted dashboard, and the app as a dependency."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from tidemill.app import App
from tidemill.contrib.starlette import get_app, lifespan, mount

__all__ = ["TidemillDep", "get_app", "lifespan", "mount"]

TidemillDep = Annotated[App, Depends(get_app)]
"""The app of the site, as a parameter of a route: ``async def place(jobs: TidemillDep)``."""
