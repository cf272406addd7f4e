"""Counting of limits in the transaction that claims or finishes jobs.

The domain computes the room. To avoid deadlocks, locks are taken in this order: names that are released (in their order, waiting),
names that are new (in their order, waiting), names that are wanted (not waiting: names that another transaction is counting are
skipped). A claim under a rate waits for all its names, in their order; its transaction contains no finishes that could already hold
names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from tidemill.domain.job import Claim
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.limits import (
    Rules,
    Use,
    count,
    fitting,
    gate_of,
    grant,
    is_rate,
    names_of,
    overfull,
    room,
    rule_of,
    spent,
    window_of,
)
from tidemill.stores.limits import Redated
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.driver import Row


class LimitCounts(SqlPart):
    """Base of the claims and finishes of jobs with limits."""

    def _claim_counted(
        self, request: ClaimRequest, now: datetime | None, back: Mapping[str, int] | None = None
    ) -> list[Claim]:
        """Claim as far as the limits have room, and count it; with ``back``, no more of each name than that."""
        if request.handoff and not back:
            return []
        names = sorted({name for lane in request.lanes for name in lane.limits})
        with self._db.transaction():
            self._db.run("open_uses", {"now": now, "names": names})
            # Rates are locked only briefly, and a worker that skipped them would give its free slot to another job.
            skips = not any(is_rate(rule_of(name, request.rules)) for name in names)
            rows = self._db.run("lock_uses", {"now": now, "names": names}, flags=("skips",) if skips else ())
            if not rows:  # other transactions are counting all of them
                return self._claim_within(request, {}, now)[0]
            # Read after locking, so that the finishes that made room precede it; the transaction's start may not.
            if request.dating is not None:
                request.dating()
            now = moment = self._time(now)
            uses = self._corrected(
                self._with_starts(rows, request.rules, [row[0] for row in rows], now), request.rules, moment
            )
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
        """Claim within these rooms; returns also how many were claimed of each name."""
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
        """Record the limits of claims that were counted against more limits than their own."""
        more = {lane.limits for lane in lanes if lane.limits != names_of(lane.gate)}
        labelled = [claim for claim in claims if claim.limits in more]
        if labelled:
            columns: dict[str, list[Any]] = {
                "id": [claim.id for claim in labelled],
                "limits": [gate_of(claim.limits or ()) for claim in labelled],
            }
            self._db.run("note_limits", None, columns)

    def _count(
        self,
        taken: Mapping[str, int],
        now: datetime | None,
        uses: Mapping[str, Use],
        rules: Rules,
        moment: datetime,
        *,
        held: bool = True,
    ) -> None:
        """Count this many new starts of each name, and with ``held`` also as held."""
        names = sorted(taken)
        ruled = {name: rule_of(name, rules) for name in names}
        columns: dict[str, list[Any]] = {
            "name": names,
            "jobs": [taken[name] if held else 0 for name in names],
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

    def _corrected(self, uses: dict[str, Use], rules: Rules, now: datetime) -> dict[str, Use]:
        """The use of these locked names, after moving starts in the future to now, because the clock was set back."""
        ahead = [name for name, use in uses.items() if use.ahead]
        if ahead:
            self._db.run("clamp_starts", {"now": now, "names": ahead})
        full = {
            name: until for name, use in uses.items() if (until := overfull(rule_of(name, rules), use, now))
        }
        if full:
            columns: dict[str, list[Any]] = {
                "name": list(full),
                "jobs": [0] * len(full),
                "full_until_at": list(full.values()),
            }
            self._db.run("count_uses", {"now": now}, columns)
        return {
            name: use._replace(
                begun=use.begun + use.ahead, ahead=0, full_until_at=full.get(name, use.full_until_at)
            )
            for name, use in uses.items()
        }

    def redate(
        self,
        claims: Sequence[Claim],
        rules: Rules,
        *,
        dating: Callable[[], object] | None = None,
        now: datetime | None = None,
    ) -> Redated:
        if not claims:
            return Redated(frozenset(), frozenset())
        rated = {
            claim.id: [name for name in set(claim.limits or ()) if is_rate(rule_of(name, rules))]
            for claim in claims
        }
        with self._db.transaction():
            # Jobs before names, in the same order as in a finish.
            rows = self._db.run("lock_held", {"ids": [claim.id for claim in claims]})
            claimed = {tuple(holder): claimed_at for *holder, claimed_at in rows}
            held = [claim for claim in claims if (claim.id, claim.token, claim.worker) in claimed]
            lost = frozenset(claim.id for claim in claims) - {claim.id for claim in held}
            counted = count(rated[claim.id] for claim in held)
            self._give_back(dict.fromkeys(counted, 0), now)  # locks the names, waiting if necessary
            if dating is not None:
                dating()
            moment = self._time(now)
            before: dict[tuple[str, datetime], int] = {}
            for claim in held:
                claimed_at = claimed[claim.id, claim.token, claim.worker]
                for name in rated[claim.id] if claimed_at <= moment else ():
                    if window_of(rule_of(name, rules)) is not None:
                        before[name, claimed_at] = before.get((name, claimed_at), 0) + 1
            if before:
                gone: dict[str, list[Any]] = {
                    "name": [name for name, _ in before],
                    "begun_at": [at for _, at in before],
                    "jobs": list(before.values()),
                }
                self._db.run("take_back_starts", None, gone)
            rows = self._db.run("lock_uses", {"now": moment, "names": sorted(counted)})
            uses = self._corrected(self._with_starts(rows, rules, sorted(counted), moment), rules, moment)
            rooms = {name: room(rule_of(name, rules), use, moment) for name, use in uses.items()}
            fits = fitting([rated[claim.id] for claim in held], rooms)
            kept = [claim for claim, able in zip(held, fits, strict=True) if able]
            if kept:
                self._count(count(rated[claim.id] for claim in kept), moment, uses, rules, moment, held=False)
                columns: dict[str, list[Any]] = {
                    "id": [claim.id for claim in kept],
                    "token": [claim.token for claim in kept],
                }
                self._db.run("redate", {"now": moment}, columns)
            return Redated(lost, frozenset(claim.id for claim in held) - {claim.id for claim in kept})

    def _give_back(self, counted: Mapping[str, int], now: datetime | None) -> None:
        """Release this many held slots of each name."""
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
        """The use of these names, with recent starts for rules that need them."""
        windows = {name: window for name in names if (window := window_of(rule_of(name, rules))) is not None}
        begun: dict[str, tuple[int, datetime | None, int]] = {}
        if windows:
            columns: dict[str, list[Any]] = {"name": list(windows), "window": list(windows.values())}
            begun = {
                row[0]: (row[1], row[2], row[3]) for row in self._db.run("starts", {"now": now}, columns)
            }
        stored = {row[0]: row for row in rows}
        uses: dict[str, Use] = {}
        for name in names:
            _, used, full_until_at, breaker, read_at = stored.get(name, (name, 0, None, None, None))
            jobs, oldest_at, ahead = begun.get(name, (0, None, 0))
            uses[name] = Use(name, used, jobs, full_until_at, oldest_at, breaker, read_at, ahead)
        return uses
