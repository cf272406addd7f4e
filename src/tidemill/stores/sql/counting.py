"""Counting limits with claims and ends, in the transaction that claims or ends. How much room there is, is the domain's arithmetic.

Locks, in this order, so that nobody waits in a circle: names that are given back (in their order, waiting), names that are new (in
their order, waiting), names that are wanted (not waiting: what another counts just now is left out).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from tidemill.domain.job import Claim
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.limits import Rules, Use, gate_of, grant, names_of, room, rule_of, spent, window_of
from tidemill.stores.sql.driver import Row
from tidemill.stores.sql.face import Face


class Counting(Face):
    """What claims and ends of jobs with limits have in common."""

    def _claim_counted(
        self, request: ClaimRequest, now: datetime | None, back: Mapping[str, int] | None = None
    ) -> list[Claim]:
        """Claim as far as the limits have room, and count it; of each no more than is given ``back``, where that is said."""
        if request.inherits and not back:
            return []
        names = sorted({name for lane in request.lanes for name in lane.limits})
        with self._db.transaction():
            self._db.run("open_uses", {"now": now, "names": names})
            rows = self._db.run("lock_uses", {"now": now, "names": names})
            if not rows:  # all of it is being counted by others
                return self._claim_within(request, {}, now)[0]
            # Read after they are locked: the ends that made room lie before it, which the transaction's begin need not do.
            now = moment = self._time(now)
            uses = self._with_starts(rows, request.rules, [row[0] for row in rows], now)
            rooms = {name: room(rule_of(name, request.rules), use, moment) for name, use in uses.items()}
            if back is not None:
                rooms = {name: min(left, back.get(name, 0)) for name, left in rooms.items()}
            claims, taken = self._claim_within(request, rooms, now)
            if taken:
                self._count(taken, now, uses, request.rules, moment)
            return claims

    def _claim_within(
        self, request: ClaimRequest, rooms: dict[str, int], now: datetime | None
    ) -> tuple[list[Claim], dict[str, int]]:
        """Claim within these rooms; and how many were taken of each name."""
        lanes: Sequence[Lane] = request.lanes
        claims: list[Claim] = []
        taken: dict[str, int] = {}
        while lanes and len(claims) < request.limit:
            granted, lanes = grant(lanes, rooms, request.limit - len(claims))
            if not granted:
                break
            asked = request._replace(lanes=granted, limit=request.limit - len(claims))
            behind = {(*lane.key[:3], names_of(lane.gate)): lane for lane in granted}
            labelled: list[Claim] = []
            for claim in self._claim_plain(asked, now):
                lane = behind[claim.queue, claim.tenant, claim.priority, claim.limits or ()]
                for name in set(lane.limits):
                    rooms[name] -= 1
                    taken[name] = taken.get(name, 0) + 1
                labelled.append(claim._replace(limits=lane.limits) if lane.limits else claim)
            claims += labelled
            self._note_more(labelled, granted)
        return claims, taken

    def _claim_plain(self, request: ClaimRequest, now: datetime | None) -> list[Claim]:
        raise NotImplementedError

    def _note_more(self, claims: Sequence[Claim], lanes: Collection[Lane]) -> None:
        """Write down the limits of those that were counted against more than they themselves name."""
        more = {lane.limits for lane in lanes if lane.limits != names_of(lane.gate)}
        found = [claim for claim in claims if claim.limits in more]
        if found:
            columns: dict[str, list[Any]] = {
                "id": [claim.id for claim in found],
                "limits": [gate_of(claim.limits or ()) for claim in found],
            }
            self._db.run("note_limits", None, columns)

    def _count(
        self,
        taken: Mapping[str, int],
        now: datetime | None,
        uses: Mapping[str, Use],
        rules: Rules,
        moment: datetime,
    ) -> None:
        names = sorted(taken)
        ruled = {name: rule_of(name, rules) for name in names}
        columns: dict[str, list[Any]] = {
            "name": names,
            "jobs": [taken[name] for name in names],
            "full_until_at": [spent(ruled[name], uses[name], taken[name], moment) for name in names],
        }
        self._db.run("count_uses", {"now": now}, columns)
        windows = {name: window for name in names if (window := window_of(ruled[name])) is not None}
        if windows:
            begun: dict[str, list[Any]] = {
                "name": list(windows),
                "jobs": [taken[name] for name in windows],
                "window": list(windows.values()),
            }
            self._db.run("note_starts", {"now": now}, begun)

    def _give_back(self, counted: Mapping[str, int], now: datetime | None) -> None:
        """So many of each name are held no more."""
        if counted:
            names = sorted(counted)
            columns: dict[str, list[Any]] = {
                "name": names,
                "jobs": [-counted[name] for name in names],
                "full_until_at": [None] * len(names),
            }
            self._db.run("count_uses", {"now": now}, columns)

    def _with_starts(
        self, rows: Sequence[Row], rules: Rules, names: Sequence[str], now: datetime | None
    ) -> dict[str, Use]:
        """What is used of these names, with what began lately where a rule looks at that."""
        windows = {name: window for name in names if (window := window_of(rule_of(name, rules))) is not None}
        begun: dict[str, tuple[int, datetime | None]] = {}
        if windows:
            columns: dict[str, list[Any]] = {"name": list(windows), "window": list(windows.values())}
            begun = {name: (jobs, at) for name, jobs, at in self._db.run("starts", {"now": now}, columns)}
        stored = {row[0]: row for row in rows}
        found: dict[str, Use] = {}
        for name in names:
            _, used, full_until_at, breaker, read_at = stored.get(name, (name, 0, None, None, None))
            jobs, oldest_at = begun.get(name, (0, None))
            found[name] = Use(name, used, jobs, full_until_at, oldest_at, breaker, read_at)
        return found
