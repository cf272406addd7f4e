"""Roles of identities."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """The permissions of a key; each role includes the roles before it.

    >>> Role.ADMIN.allows(Role.OPERATOR), Role.VIEWER.allows(Role.OPERATOR)
    (True, False)
    """

    VIEWER = "viewer"  #: read, with secrets masked
    OPERATOR = "operator"  #: enqueue, cancel, retry, approve, pause
    ADMIN = "admin"  #: tasks, definitions, schedules, archive
    SUPER_ADMIN = "super_admin"  #: worker configuration, keys

    def allows(self, other: Role) -> bool:
        """Whether this role includes the other."""
        return _ORDER.index(self) >= _ORDER.index(other)


_ORDER = tuple(Role)
