"""Jinja environment of the dashboard, with autoescaping."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tidemill.dashboard import formats
from tidemill.dashboard.compiled_templates import CompiledTemplates
from tidemill.dashboard.files import files
from tidemill.dashboard.job_filter import FAILED
from tidemill.domain.states import ENDED, JobState

if TYPE_CHECKING:
    from tidemill.dashboard.page_request import PageRequest


@functools.cache
def _environment() -> Environment:
    """The environment of every site in this process: compiling the templates takes half a second."""
    environment = Environment(
        loader=PackageLoader("tidemill.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        bytecode_cache=CompiledTemplates(),
        # All templates stay in memory.
        cache_size=-1,
    )
    environment.filters.update(formats.FILTERS)
    environment.globals.update(
        states=list(JobState),
        ended_states=ENDED,
        failed_states=FAILED,
        version_of=lambda name: files()[name].version,
    )
    return environment


class Views:
    """The pages of all templates. They escape every value, and an undefined name is an error."""

    def __init__(self) -> None:
        self._environment = _environment()

    def load_all(self) -> None:
        """Load all templates, so that no page waits for the compilation of its template."""
        for name in self._environment.list_templates(extensions=["html"]):
            self._environment.get_template(name)

    def render(self, template: str, request: PageRequest, values: Mapping[str, Any]) -> str:
        """Render a template."""
        context = {**request.globals, **values}
        csrf = Markup('<input type="hidden" name="csrf" value="{}">').format(context["csrf"])
        context["csrf_field"] = lambda: csrf
        context["layout"] = "parts/live.html" if request.is_live else "base.html"
        return self._environment.get_template(template).render(context)
