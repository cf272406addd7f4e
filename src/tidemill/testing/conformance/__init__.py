"""The store conformance suite: tests of the contract in ``tidemill.stores.base``.

To test a store, subclass ``StoreConformance`` in a pytest module and provide a fixture ``store`` that yields a new, migrated,
empty store for each test::

    import pytest
    from tidemill.testing.conformance import StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self, tmp_path):
            store = MyStore(tmp_path / "jobs")
            store.migrate()
            yield store
            store.close()

A test may close its store (closing twice must be harmless), and some tests use it from several threads. If several objects
can share a database, provide a second fixture, ``neighbour``, that yields another store on the database of ``store``. No test
is skipped or depends on the kind of store: a failing test names the law that the store breaks. No test sleeps; tests pass the
time as ``now``. While a store is being written, the parts can be run one by one: ``FlowConformance``, ``UniqueConformance``
and so on.
"""

from __future__ import annotations

import pkgutil

import pytest

# Assertions of the suite explain themselves, as those of test modules do.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from tidemill.testing.conformance.advances import AdvanceLaws, DueLaws  # noqa: E402
from tidemill.testing.conformance.advisory_locks import HeldLaws, HoldLaws  # noqa: E402
from tidemill.testing.conformance.archive import (  # noqa: E402
    ArchivableLaws,
    ArchiveSearchLaws,
    DocumentLaws,
    ForgetLaws,
    TierLaws,
)
from tidemill.testing.conformance.archive_control import EraseLaws, RestoreLaws  # noqa: E402
from tidemill.testing.conformance.archive_files import ArchiveFileLaws  # noqa: E402
from tidemill.testing.conformance.archived_flows import ArchivedFlowLaws  # noqa: E402
from tidemill.testing.conformance.backlogs import CrowdLaws  # noqa: E402
from tidemill.testing.conformance.blobs import BlobLaws  # noqa: E402
from tidemill.testing.conformance.cancel_requests import AskedLaws  # noqa: E402
from tidemill.testing.conformance.changes import ChangeLaws  # noqa: E402
from tidemill.testing.conformance.checkpoints import CheckpointFenceLaws, CheckpointLaws  # noqa: E402
from tidemill.testing.conformance.claims import ClaimLaws, ReportLaws, StartLaws, StepClaimLaws  # noqa: E402
from tidemill.testing.conformance.cluster import LeaseLaws, OrphanLaws, WorkerLaws  # noqa: E402
from tidemill.testing.conformance.control import CancelLaws, DeleteLaws, MoveLaws  # noqa: E402
from tidemill.testing.conformance.deals import DealLaws  # noqa: E402
from tidemill.testing.conformance.definitions import DefinitionLaws, DefinitionSwitchLaws  # noqa: E402
from tidemill.testing.conformance.depth_samples import DepthSampleLaws  # noqa: E402
from tidemill.testing.conformance.executions import BacklogLaws, LatelyLaws, TaskCrowdLaws  # noqa: E402
from tidemill.testing.conformance.failures import (  # noqa: E402
    ErrorMarkLaws,
    FailureGroupLaws,
    FailureMergeLaws,
)
from tidemill.testing.conformance.fences import FenceLaws  # noqa: E402
from tidemill.testing.conformance.finishes import ExecutionLaws, FinishLaws, StepLaws  # noqa: E402
from tidemill.testing.conformance.fires import ActiveJobLaws, FireLaws, PruneLaws  # noqa: E402
from tidemill.testing.conformance.flows import FlowLaws  # noqa: E402
from tidemill.testing.conformance.follow_ups import FollowingLaws  # noqa: E402
from tidemill.testing.conformance.handoffs import HeirLaws  # noqa: E402
from tidemill.testing.conformance.job_events import (  # noqa: E402
    AlertHistoryLaws,
    RecordedEventLaws,
    SubscriptionLaws,
)
from tidemill.testing.conformance.kept_rows import KeepLaws  # noqa: E402
from tidemill.testing.conformance.keys import KeyLaws  # noqa: E402
from tidemill.testing.conformance.lifecycle import EnqueueLaws, LaneLaws, MadeLaws, PromoteLaws  # noqa: E402
from tidemill.testing.conformance.limited_lanes import GateLaws, LabelLaws  # noqa: E402
from tidemill.testing.conformance.limits import LimitLaws, MoreLimitLaws, RoomLaws, UseLaws  # noqa: E402
from tidemill.testing.conformance.living_leases import LivingLeaseLaws  # noqa: E402
from tidemill.testing.conformance.log_searches import LogSearchLaws  # noqa: E402
from tidemill.testing.conformance.messages import (  # noqa: E402
    EventLaws,
    MailboxLaws,
    ReceiverLaws,
    TakeLaws,
)
from tidemill.testing.conformance.occurrences import OccurrenceLaws  # noqa: E402
from tidemill.testing.conformance.own_clock import OwnClockLaws  # noqa: E402
from tidemill.testing.conformance.payloads import PayloadLaws  # noqa: E402
from tidemill.testing.conformance.placements import PlacementLaws  # noqa: E402
from tidemill.testing.conformance.present_time import DepthLaws, HoldingLaws  # noqa: E402
from tidemill.testing.conformance.queries import FilterLaws, GetLaws, PageLaws, TenantLaws  # noqa: E402
from tidemill.testing.conformance.rates import (  # noqa: E402
    BreakerLaws,
    BucketLaws,
    ClockSetBackLaws,
    OwnTimeLimitLaws,
    RedateLaws,
    WindowLaws,
)
from tidemill.testing.conformance.records import AuditLaws, LogLaws  # noqa: E402
from tidemill.testing.conformance.releases import ReleaseLaws  # noqa: E402
from tidemill.testing.conformance.returns import GiveBackLaws, UndoneLimitLaws  # noqa: E402
from tidemill.testing.conformance.rollups import FoldLaws, RollupLaws  # noqa: E402
from tidemill.testing.conformance.rules import ForgetUseLaws, RuleLaws, WaitingDepthLaws  # noqa: E402
from tidemill.testing.conformance.schedules import ScheduleLaws  # noqa: E402
from tidemill.testing.conformance.seals import SealLaws  # noqa: E402
from tidemill.testing.conformance.searches import CountLaws, LogEndLaws, PageSizeLaws, SearchLaws  # noqa: E402
from tidemill.testing.conformance.sessions import SessionLaws  # noqa: E402
from tidemill.testing.conformance.settings import OrdersLaws, PauseLaws, SettingLaws  # noqa: E402
from tidemill.testing.conformance.stats import SeriesLaws, TallyLaws  # noqa: E402
from tidemill.testing.conformance.steps import StepRecordLaws  # noqa: E402
from tidemill.testing.conformance.streams import StreamLaws  # noqa: E402
from tidemill.testing.conformance.tasks import TaskRecordLaws  # noqa: E402
from tidemill.testing.conformance.threads import ThreadLaws  # noqa: E402
from tidemill.testing.conformance.transactions import TransactionLaws, WholeStoreLaws  # noqa: E402
from tidemill.testing.conformance.transfers import TransferLaws  # noqa: E402
from tidemill.testing.conformance.unique import UniqueLaws  # noqa: E402
from tidemill.testing.conformance.waits import ExpiredLaws, WaitingLaws  # noqa: E402
from tidemill.testing.conformance.wakeups import SignalLaws  # noqa: E402
from tidemill.testing.conformance.worker_requests import WorkerReportLaws, WorkerRequestLaws  # noqa: E402

__all__ = [
    "ArchiveConformance",
    "BlobsConformance",
    "ClusterConformance",
    "ControlConformance",
    "EventsConformance",
    "FlowConformance",
    "InsightConformance",
    "KeysConformance",
    "LimitsConformance",
    "MessagesConformance",
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
    DealLaws,
    FlowLaws,
    ArchivedFlowLaws,
    FollowingLaws,
    KeepLaws,
    FenceLaws,
    PayloadLaws,
    ThreadLaws,
):
    """The life cycle of a job, with one thread and with many."""


class UniqueConformance(UniqueLaws):
    """Unique keys."""


class ControlConformance(MoveLaws, ChangeLaws, CancelLaws, AskedLaws, DeleteLaws):
    """Operator and duty actions on jobs."""


class QueriesConformance(
    GetLaws,
    TenantLaws,
    FilterLaws,
    PageLaws,
    HeldLaws,
    ExpiredLaws,
    SearchLaws,
    CountLaws,
    PageSizeLaws,
    LogEndLaws,
):
    """Queries of jobs."""


class RecordsConformance(
    LogLaws, LogSearchLaws, CheckpointLaws, CheckpointFenceLaws, StepRecordLaws, StreamLaws, AuditLaws
):
    """Logs, checkpoints, records of steps, streams and the audit."""


class ClusterConformance(
    WorkerLaws, OrphanLaws, LeaseLaws, LivingLeaseLaws, HoldLaws, PlacementLaws, TransferLaws
):
    """Workers, leases, holds, placements of tenants, and transfers of their jobs."""


class SettingsConformance(SettingLaws, PauseLaws, OrdersLaws):
    """Settings and pauses."""


class KeysConformance(KeyLaws, SealLaws, SessionLaws):
    """API keys."""


class BlobsConformance(BlobLaws):
    """Large arguments and results."""


class ArchiveConformance(
    ArchivableLaws,
    DocumentLaws,
    ForgetLaws,
    ArchiveSearchLaws,
    TierLaws,
    ArchiveFileLaws,
    RestoreLaws,
    EraseLaws,
):
    """Archive tiers."""


class PlanningConformance(
    DefinitionLaws,
    DefinitionSwitchLaws,
    ScheduleLaws,
    DueLaws,
    AdvanceLaws,
    FireLaws,
    ActiveJobLaws,
    PruneLaws,
    ReleaseLaws,
    TaskRecordLaws,
    OccurrenceLaws,
):
    """Definitions, schedules, fires, occurrences and release records."""


class InsightConformance(
    TallyLaws,
    SeriesLaws,
    RollupLaws,
    DepthSampleLaws,
    WorkerReportLaws,
    WorkerRequestLaws,
    FoldLaws,
    FailureGroupLaws,
    FailureMergeLaws,
    ErrorMarkLaws,
    DepthLaws,
    HoldingLaws,
    LatelyLaws,
    TaskCrowdLaws,
    BacklogLaws,
):
    """Statistics for operators."""


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
    RedateLaws,
    ClockSetBackLaws,
    BreakerLaws,
    OwnTimeLimitLaws,
    RuleLaws,
    UseLaws,
    ForgetUseLaws,
    WaitingDepthLaws,
    CrowdLaws,
):
    """Limits: rules, limit sets and counters, with one thread and with many."""


class TransactionsConformance(TransactionLaws, OwnClockLaws, WholeStoreLaws):
    """Transactions, the store's own clock, and the store as a whole."""


class SignalsConformance(SignalLaws):
    """Wake-ups."""


class MessagesConformance(MailboxLaws, TakeLaws, ReceiverLaws, EventLaws):
    """Signals to jobs, and events."""


class EventsConformance(RecordedEventLaws, SubscriptionLaws, AlertHistoryLaws):
    """Recorded events, and the history of alerts."""


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
    BlobsConformance,
    PlanningConformance,
    InsightConformance,
    LimitsConformance,
    TransactionsConformance,
    SignalsConformance,
    MessagesConformance,
    EventsConformance,
):
    """Every law of the contract."""
