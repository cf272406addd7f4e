"""The store conformance suite: every law of ``tidemill.stores.base``, as tests any store can run.

A store's author subclasses ``StoreConformance`` in a pytest module and provides a fixture ``store`` that yields a fresh,
migrated, empty store for each test::

    import pytest
    from tidemill.testing.conformance import StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self, tmp_path):
            store = MyStore(tmp_path / "jobs")
            store.migrate()
            yield store
            store.close()

A test may close the store it was given (closing twice is harmless), and some use it from several threads. Where several
objects can share a database, a second fixture, ``neighbour``, yields another one on the database of ``store``. Nothing is
skipped and nothing depends on the kind of store: where a test fails, the store breaks the law in the test's name. No
test sleeps; time is handed over as ``now``. The faces can also be run one by one while a store is being written:
``FlowConformance``, ``UniqueConformance`` and so on.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{face}"
        for face in (
            *(
                "advancing",
                "archive",
                "asked",
                "checkpoints",
                "claiming",
                "cluster",
                "control",
                "crowding",
                "definitions",
                "fencing",
                "finishing",
                "fires",
                "flow",
                "gates",
                "heirs",
                "holds",
                "insight",
                "keys",
                "kit",
                "limited",
                "limits",
                "own_clock",
                "payloads",
                "planned",
                "present",
            ),
            *(
                "queries",
                "rates",
                "records",
                "returning",
                "rules",
                "schedules",
                "searching",
                "settings",
                "signals",
                "threads",
                "transactions",
                "unique",
                "waiting",
            ),
        )
    )
)

from tidemill.testing.conformance.advancing import AdvanceLaws, DueLaws  # noqa: E402
from tidemill.testing.conformance.archive import ArchivableLaws, ArchiveSearchLaws, DocumentLaws, ForgetLaws  # noqa: E402
from tidemill.testing.conformance.asked import AskedLaws  # noqa: E402
from tidemill.testing.conformance.checkpoints import CheckpointFenceLaws, CheckpointLaws  # noqa: E402
from tidemill.testing.conformance.claiming import ClaimLaws, ReportLaws, StartLaws, StepClaimLaws  # noqa: E402
from tidemill.testing.conformance.cluster import LeaseLaws, OrphanLaws, WorkerLaws  # noqa: E402
from tidemill.testing.conformance.control import CancelLaws, DeleteLaws, MoveLaws  # noqa: E402
from tidemill.testing.conformance.crowding import CrowdLaws  # noqa: E402
from tidemill.testing.conformance.definitions import DefinitionLaws, DefinitionSwitchLaws  # noqa: E402
from tidemill.testing.conformance.doing import LatelyLaws, TaskCrowdLaws  # noqa: E402
from tidemill.testing.conformance.fencing import FenceLaws  # noqa: E402
from tidemill.testing.conformance.finishing import ExecutionLaws, FinishLaws, StepLaws  # noqa: E402
from tidemill.testing.conformance.fires import ActiveJobLaws, FireLaws, PruneLaws  # noqa: E402
from tidemill.testing.conformance.flow import EnqueueLaws, LaneLaws, MadeLaws, PromoteLaws  # noqa: E402
from tidemill.testing.conformance.gates import GateLaws, LabelLaws  # noqa: E402
from tidemill.testing.conformance.heirs import HeirLaws  # noqa: E402
from tidemill.testing.conformance.holds import HeldLaws, HoldLaws  # noqa: E402
from tidemill.testing.conformance.insight import SeriesLaws, TallyLaws, TroubleLaws  # noqa: E402
from tidemill.testing.conformance.keys import KeyLaws  # noqa: E402
from tidemill.testing.conformance.limits import LimitLaws, MoreLimitLaws, RoomLaws, UseLaws  # noqa: E402
from tidemill.testing.conformance.own_clock import OwnClockLaws  # noqa: E402
from tidemill.testing.conformance.payloads import PayloadLaws  # noqa: E402
from tidemill.testing.conformance.present import DepthLaws, HoldingLaws  # noqa: E402
from tidemill.testing.conformance.queries import FilterLaws, GetLaws, PageLaws, TenantLaws  # noqa: E402
from tidemill.testing.conformance.rates import BreakerLaws, BucketLaws, OwnTimeLimitLaws, WindowLaws  # noqa: E402
from tidemill.testing.conformance.records import AuditLaws, LogLaws  # noqa: E402
from tidemill.testing.conformance.returning import GiveBackLaws, UndoneLimitLaws  # noqa: E402
from tidemill.testing.conformance.rules import ForgetUseLaws, RuleLaws, WaitingDepthLaws  # noqa: E402
from tidemill.testing.conformance.schedules import ScheduleLaws  # noqa: E402
from tidemill.testing.conformance.searching import CountLaws, LogEndLaws, SearchLaws  # noqa: E402
from tidemill.testing.conformance.settings import OrdersLaws, PauseLaws, SettingLaws  # noqa: E402
from tidemill.testing.conformance.signals import SignalLaws  # noqa: E402
from tidemill.testing.conformance.threads import ThreadLaws  # noqa: E402
from tidemill.testing.conformance.transactions import TransactionLaws, WholeStoreLaws  # noqa: E402
from tidemill.testing.conformance.unique import UniqueLaws  # noqa: E402
from tidemill.testing.conformance.waiting import ExpiredLaws, WaitingLaws  # noqa: E402

__all__ = [
    "ArchiveConformance",
    "ClusterConformance",
    "ControlConformance",
    "FlowConformance",
    "InsightConformance",
    "KeysConformance",
    "LimitsConformance",
    "PlanningConformance",
    "QueriesConformance",
    "RecordsConformance",
    "SettingsConformance",
    "SignalsConformance",
    "StoreConformance",
    "TransactionsConformance",
    "UniqueConformance",
]


class FlowConformance(
    EnqueueLaws,
    MadeLaws,
    WaitingLaws,
    PromoteLaws,
    LaneLaws,
    ClaimLaws,
    StartLaws,
    ReportLaws,
    FinishLaws,
    ExecutionLaws,
    StepLaws,
    StepClaimLaws,
    FenceLaws,
    PayloadLaws,
    ThreadLaws,
):
    """A job's way, in every direction, by one thread and by many."""


class UniqueConformance(UniqueLaws):
    """Unique keys."""


class ControlConformance(MoveLaws, CancelLaws, AskedLaws, DeleteLaws):
    """What people and duties do to jobs."""


class QueriesConformance(
    GetLaws, TenantLaws, FilterLaws, PageLaws, HeldLaws, ExpiredLaws, SearchLaws, CountLaws, LogEndLaws
):
    """Reading."""


class RecordsConformance(LogLaws, CheckpointLaws, CheckpointFenceLaws, AuditLaws):
    """Logs, checkpoints and the audit."""


class ClusterConformance(WorkerLaws, OrphanLaws, LeaseLaws, HoldLaws):
    """Workers, leases and holds."""


class SettingsConformance(SettingLaws, PauseLaws, OrdersLaws):
    """Settings and pauses."""


class KeysConformance(KeyLaws):
    """Keys."""


class ArchiveConformance(ArchivableLaws, DocumentLaws, ForgetLaws, ArchiveSearchLaws):
    """Tiers."""


class PlanningConformance(
    DefinitionLaws,
    DefinitionSwitchLaws,
    ScheduleLaws,
    DueLaws,
    AdvanceLaws,
    FireLaws,
    ActiveJobLaws,
    PruneLaws,
):
    """Definitions, schedules and fires."""


class InsightConformance(
    TallyLaws, SeriesLaws, TroubleLaws, DepthLaws, HoldingLaws, LatelyLaws, TaskCrowdLaws
):
    """What operators ask."""


class LimitsConformance(
    GateLaws,
    LabelLaws,
    LimitLaws,
    RoomLaws,
    MoreLimitLaws,
    GiveBackLaws,
    HeirLaws,
    UndoneLimitLaws,
    WindowLaws,
    BucketLaws,
    BreakerLaws,
    OwnTimeLimitLaws,
    RuleLaws,
    UseLaws,
    ForgetUseLaws,
    WaitingDepthLaws,
    CrowdLaws,
):
    """Limits: rules, gates, and what is counted, by one thread and by many."""


class TransactionsConformance(TransactionLaws, OwnClockLaws, WholeStoreLaws):
    """Transactions, the store's own clock, and the store as a whole."""


class SignalsConformance(SignalLaws):
    """Wake-ups."""


class StoreConformance(
    FlowConformance,
    UniqueConformance,
    ControlConformance,
    QueriesConformance,
    RecordsConformance,
    ClusterConformance,
    SettingsConformance,
    KeysConformance,
    ArchiveConformance,
    PlanningConformance,
    InsightConformance,
    LimitsConformance,
    TransactionsConformance,
    SignalsConformance,
):
    """Every law of the contract."""
