"""Templates: found once, escaped always, and given the words that every page uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tidemill.dashboard import formats
from tidemill.dashboard.files import files
from tidemill.dashboard.job_filter import FAILED
from tidemill.domain.states import ENDED, JobState

if TYPE_CHECKING:
    from tidemill.dashboard.visit import Visit


class Views:
    """The environment of all templates. Every value is escaped; a name that is not given is an error, not a blank."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("tidemill.dashboard", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(formats.FILTERS)
        self._environment.globals.update(
            states=list(JobState),
            ended_states=ENDED,
            failed_states=FAILED,
            version_of=lambda name: files()[name].version,
        )

    def render(self, template: str, visit: Visit, facts: Mapping[str, Any]) -> str:
        """The page as text."""
        known = {**visit.globals, **facts}
        csrf = Markup('<input type="hidden" name="csrf" value="{}">').format(known["csrf"])
        known["csrf_field"] = lambda: csrf
        return self._environment.get_template(template).render(known)
