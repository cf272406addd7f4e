"""Settings of an app about alerts and notifications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tidemill.delivery.alert_duty import EVERY
from tidemill.domain.durations import read_duration
from tidemill.domain.notifications import DEFINITION, OF_TASK, OWNER, PERMANENT, QUESTION, NotificationRule
from tidemill.domain.outgoing_addresses import Network, read_networks
from tidemill.errors import BadSettings

if TYPE_CHECKING:
    from tidemill.delivery.channels import NotificationChannel, SmtpServer

_OWN = (OWNER, DEFINITION, OF_TASK, QUESTION)
_OF_JOBS = ("completed", "failed", "dead_lettered", "cancelled", "review_needed", "asked")


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """Channels, owners and rules of an app."""

    channels: Mapping[str, NotificationChannel] = field(default_factory=dict)
    owners: Mapping[str, NotificationChannel] = field(default_factory=dict)
    rules: tuple[NotificationRule, ...] = ()
    url: str | None = None  #: of the dashboard, for links
    networks: tuple[Network, ...] = ()
    alerts_every: timedelta | None = EVERY  #: None: alerts are not evaluated in the background

    @property
    def sends(self) -> bool:
        """Whether there is a recipient at all."""
        return bool(self.channels or self.owners)

    def channel(self, name: str) -> NotificationChannel | None:
        """The channel of a notification; ``owner:NAME`` is the address of an owner."""
        if name.startswith("owner:"):
            return self.owners.get(name.removeprefix("owner:"))
        return self.channels.get(name)

    def has(self, name: str) -> bool:
        """Whether there is a channel or an owner of this name."""
        return name in self.channels or name in self.owners

    def all_rules(self) -> tuple[NotificationRule, ...]:
        """The rules of the app, and those that need no rule: owners, definitions and questions."""
        if not self.sends:
            return ()
        rules = list(self.rules)
        targets = {target for rule in rules for target in rule.channels}
        if self.owners and OWNER not in targets:
            rules.append(NotificationRule(OWNER, on=PERMANENT, name="owners"))
        if DEFINITION not in targets:
            rules.append(NotificationRule(DEFINITION, on=_OF_JOBS, name=DEFINITIONS))
        if OF_TASK not in targets:
            rules.append(NotificationRule(OF_TASK, on=_OF_JOBS, name=TASKS))
        if QUESTION not in targets:
            rules.append(NotificationRule(QUESTION, on="asked", every=0, name="questions"))
        return tuple(rules)


DEFINITIONS = "definitions"
"""The name of the rule for the ``notifications`` of definitions."""

TASKS = "tasks"
"""The name of the rule for the channels of tasks (``notify``)."""


def read_delivery(settings: Mapping[str, Any]) -> DeliverySettings:
    """Validate the settings ``notify``, ``owners``, ``notifications``, ``smtp``, ``dashboard_url``, ``alerts`` and ``outgoing_networks``."""
    networks = read_networks(settings.get("outgoing_networks") or ())
    smtp = settings.get("smtp")
    server = None if smtp is None else _smtp(smtp)
    channels = _channels("notify", settings.get("notify"), server, networks)
    owners = _channels("owners", settings.get("owners"), server, networks)
    rules = tuple(settings.get("notifications") or ())
    for rule in rules:
        if not isinstance(rule, NotificationRule):
            raise BadSettings(
                f"notifications has {rule!r}; give NotificationRule('ops', on=['dead_lettered'])"
            )
        unknown = [name for name in rule.channels if name not in _OWN and name not in channels]
        if unknown:
            raise BadSettings(
                f"a notification rule sends to {unknown[0]!r}, which is no channel; App(notify=…) has "
                f"{', '.join(channels) or 'none'}"
            )
    names = [rule.name for rule in rules]
    if len(set(names)) < len(names):
        raise BadSettings("two notification rules have the same name; give each a name=")
    return DeliverySettings(
        channels,
        owners,
        rules,
        _url(settings.get("dashboard_url")),
        networks,
        _every(settings.get("alerts", True)),
    )


def _smtp(url: str) -> SmtpServer:
    from tidemill.delivery.channels import read_smtp

    return read_smtp(url)


def _channels(
    setting: str, given: Mapping[str, str] | None, smtp: SmtpServer | None, networks: Sequence[Network]
) -> dict[str, NotificationChannel]:
    channels: dict[str, NotificationChannel] = {}
    if not given:
        return channels
    # Few apps send notifications, and these modules take long to import.
    from tidemill.delivery.channels import read_channel

    for name, address in given.items():
        if not name or name.startswith(("@", "owner:")):
            raise BadSettings(f"{setting} has the name {name!r}; it must not begin with '@' or 'owner:'")
        channels[name] = read_channel(name, address, smtp, networks)
    return channels


def _url(given: object) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or not given.startswith(("http://", "https://")):
        raise BadSettings(f"dashboard_url is {given!r}; give a URL such as https://jobs.example.com")
    return given.rstrip("/")


def _every(given: Any) -> timedelta | None:
    if given is False:
        return None
    if given is True:
        return EVERY
    every = read_duration("alerts", given)
    if every < timedelta(seconds=1):
        raise BadSettings(f"alerts is {given!r}; give at least one second, or False")
    return every
