"""A psycopg connection that also runs prepared statements directly through libpq.

For the most frequent statements a cursor costs more time than the server does. So each statement is prepared once per connection,
its parameters arrive packed, and only the conversion of rows is left to psycopg. This module waits on the socket itself: other
threads can run, and Ctrl-C takes effect at once. Callers translate errors.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import psycopg
from psycopg import adapt
from psycopg.abc import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import RowFactory, tuple_row

from tidemill.stores.sql.driver import QueryCall, Row, T, Turns
from tidemill.stores.sql.postgres.statements import Statement
from tidemill.stores.wait_function import wait_function

_CANCEL_SECONDS = 5.0
_WELL = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class Connection(psycopg.Connection[Row]):
    """One session, used by one thread at a time."""

    def __init__(self, pgconn: PGconn, row_factory: RowFactory[Row] = tuple_row) -> None:
        super().__init__(pgconn, row_factory)
        # The prepared statements: name, and the reader of its rows.
        self._ready: dict[bytes, tuple[bytes, Transformer]] = {}
        self._numbers = count()  # of prepared statements; one that fails does not give its number back
        self._listener = _listener(pgconn.socket)

    def spoken(self) -> bool:
        """Whether the server has sent an unsolicited message (usually the end of the session), or the connection is broken."""
        return self.pgconn.status != psycopg.pq.ConnStatus.OK or self._listener(0)

    def run(self, statement: Statement, parameters: Sequence[bytes | None], *, prepare: bool) -> list[Row]:
        """Run a statement with packed parameters, in the open transaction or in its own. Returns its rows."""
        pgconn = self.pgconn
        try:
            if prepare:
                name, reader = self._ready.get(statement.numbered) or self._prepare(statement)
                pgconn.send_query_prepared(name, parameters, statement.formats, Format.BINARY)
            else:
                reader = self._reader(statement)
                pgconn.send_query_params(
                    statement.numbered, parameters, statement.types, statement.formats, Format.BINARY
                )
            result = self._answer()
        except psycopg.Error:
            raise
        except BaseException:
            self._give_up()
            raise
        return self._rows(statement, reader, result)

    def _rows(self, statement: Statement, reader: Transformer, result: PGresult) -> list[Row]:
        if not statement.gives or not result.ntuples:
            return []
        reader.set_pgresult(result, set_loaders=False)
        rows = reader.load_rows(0, result.ntuples, tuple)
        reader.set_pgresult(None, set_loaders=False)
        return rows

    def run_together(self, calls: Sequence[tuple[Statement, Sequence[bytes | None]]]) -> list[list[Row]]:
        """Run several statements in one transaction, sent together. Returns the rows of each."""
        pgconn = self.pgconn
        try:
            ready = [
                self._ready.get(statement.numbered) or self._prepare(statement) for statement, _ in calls
            ]
            pgconn.enter_pipeline_mode()
            for (name, _), (statement, parameters) in zip(ready, calls, strict=True):
                pgconn.send_query_prepared(name, parameters, statement.formats, Format.BINARY)
            pgconn.pipeline_sync()
            answers = self._answers()
            pgconn.exit_pipeline_mode()
        except psycopg.Error:
            if pgconn.pipeline_status != PipelineStatus.OFF:
                self.close()  # later answers would be taken for those of other statements
            raise
        except BaseException:
            self._give_up()
            raise
        return [
            self._rows(statement, reader, result)
            for (statement, _), (_, reader), result in zip(calls, ready, answers, strict=True)
        ]

    def run_turns(
        self, turns: Turns[T], pack: Callable[[QueryCall], tuple[Statement, Sequence[bytes | None]]]
    ) -> T:
        """Run turns of statements in one transaction. The commit is sent with the last turn, or after it."""
        pgconn = self.pgconn
        try:
            turn = next(turns)
            pgconn.enter_pipeline_mode()
            while True:
                rows = self._turn([pack(call) for call in turn.calls], commit=turn.last)
                try:
                    turn = turns.send(rows)
                except StopIteration as end:
                    if not turn.last:
                        self._turn([], commit=True)
                    value: T = end.value
                    return value
        except psycopg.Error:
            if pgconn.pipeline_status != PipelineStatus.OFF:
                self.close()  # later answers would be taken for those of other statements
            raise
        except Exception:
            if pgconn.pipeline_status != PipelineStatus.OFF:
                with contextlib.suppress(psycopg.Error):
                    self._take_back()
            raise
        except BaseException:
            self._give_up()
            raise

    def _turn(
        self, packed: Sequence[tuple[Statement, Sequence[bytes | None]]], *, commit: bool
    ) -> list[list[Row]]:
        """Send statements in the open pipeline, and wait for their rows; with ``commit``, also for the commit."""
        pgconn = self.pgconn
        names: list[bytes] = []
        kept: list[
            int
        ] = []  # places of the answers that have rows; the others report that a statement is prepared
        new: dict[bytes, bytes] = {}
        sent = 0
        for statement, parameters in packed:
            known = self._ready.get(statement.numbered)
            name = known[0] if known is not None else new.get(statement.numbered)
            if name is None:
                name = new[statement.numbered] = b"tidemill_%d" % next(self._numbers)
                pgconn.send_prepare(name, statement.numbered, statement.types)
                sent += 1
            pgconn.send_query_prepared(name, parameters, statement.formats, Format.BINARY)
            names.append(name)
            kept.append(sent)
            sent += 1
        if commit:
            pgconn.pipeline_sync()
            answers = self._answers()
            pgconn.exit_pipeline_mode()
        else:
            pgconn.send_flush_request()
            answers = self._answers(sent)
        for (statement, _), name in zip(packed, names, strict=True):
            if statement.numbered in new:
                self._ready.setdefault(statement.numbered, (name, self._reader(statement)))
        return [
            self._rows(statement, self._ready[statement.numbered][1], answers[place])
            for (statement, _), place in zip(packed, kept, strict=True)
        ]

    def run_each(
        self,
        statement: Statement,
        batches: Iterable[Sequence[bytes | None]],
        keep: Callable[[list[list[Row]]], bool],
    ) -> list[list[Row]]:
        """Run one statement for every batch in one transaction. Returns the rows of each.

        Each batch is sent as soon as it exists, so that the server works on one while the next is created. If creating one fails,
        or ``keep`` refuses the rows, the transaction is rolled back.
        """
        pgconn = self.pgconn
        try:
            name, reader = self._ready.get(statement.numbered) or self._prepare(statement)
            pgconn.enter_pipeline_mode()
            sent = 0
            try:
                for parameters in batches:
                    pgconn.send_query_prepared(name, parameters, statement.formats, Format.BINARY)
                    self._flush()
                    sent += 1
            except Exception:
                with contextlib.suppress(psycopg.Error):
                    self._take_back()
                raise
            pgconn.send_flush_request()
            rows = [self._rows(statement, reader, result) for result in self._answers(sent)]
            if keep(rows):
                pgconn.pipeline_sync()
                self._answers()
                pgconn.exit_pipeline_mode()
            else:
                self._take_back()
        except psycopg.Error:
            if pgconn.pipeline_status != PipelineStatus.OFF:
                self.close()  # later answers would be taken for those of other statements
            raise
        except BaseException:
            if pgconn.pipeline_status != PipelineStatus.OFF:
                self._give_up()
            raise
        return rows

    # Statements sent ahead -----------------------------------------------------------------------------------------------

    def knows(self, statement: Statement) -> bool:
        """Whether the statement is prepared and can be posted."""
        return statement.numbered in self._ready

    def learn(self, statement: Statement) -> None:
        """Prepare the statement if necessary; only while nothing is posted."""
        try:
            if not self.knows(statement):
                self._prepare(statement)
        except psycopg.Error:
            raise
        except BaseException:
            self._give_up()
            raise

    def post(self, statement: Statement, parameters: Sequence[bytes | None]) -> None:
        """Send a prepared statement in its own transaction; ``collect`` reports its outcome, also if it could not be sent.

        Until all posted statements are collected, the connection must not be used otherwise.
        """
        pgconn = self.pgconn
        try:
            if pgconn.pipeline_status == PipelineStatus.OFF:
                pgconn.enter_pipeline_mode()
            name, _ = self._ready[statement.numbered]
            pgconn.send_query_prepared(name, parameters, statement.formats, Format.BINARY)
            pgconn.pipeline_sync()
            self._flush()
        except psycopg.Error:
            self.close()
        except BaseException:
            self._give_up()
            raise

    def answered(self) -> bool:
        """Whether ``collect`` would return without waiting."""
        try:
            self.pgconn.consume_input()
            return not self.pgconn.is_busy()
        except psycopg.Error:
            return True

    def collect(self, statement: Statement, *, last: bool) -> list[Row]:
        """Wait for the rows of the oldest posted statement; ``last``: no other is in flight."""
        try:
            result = self._posted_answer()
            if last:
                self.pgconn.exit_pipeline_mode()
        except psycopg.Error:
            self.close()
            raise
        except BaseException:
            self._give_up()
            raise
        if result.status not in _WELL:
            raise error_from_result(result)
        return self._rows(statement, self._ready[statement.numbered][1], result)

    def _posted_answer(self) -> PGresult:
        """The answer to the oldest statement, after its commit."""
        pgconn = self.pgconn
        answer: PGresult | None = None
        while True:
            self._await_input()
            result = pgconn.get_result()
            if result is None:
                if pgconn.status != psycopg.pq.ConnStatus.OK:
                    raise psycopg.OperationalError("the connection ended before the server had answered")
            elif result.status == ExecStatus.PIPELINE_SYNC:
                if answer is None:
                    raise psycopg.OperationalError("the server gave no answer")
                return answer
            elif answer is None or answer.status in _WELL:
                answer = result

    def _take_back(self) -> None:
        """Roll back everything that was sent, and leave the connection usable."""
        pgconn = self.pgconn
        pgconn.send_query_params(b"rollback", [])
        pgconn.pipeline_sync()
        self._answers()
        pgconn.exit_pipeline_mode()

    def _answers(self, most: int | None = None) -> list[PGresult]:
        """Wait for the answers to everything that was sent and for the commit; with ``most``, only for that many answers,
        before the commit.
        """
        pgconn = self.pgconn
        self._flush()
        answers: list[PGresult] = []
        wrong: PGresult | None = None
        while True:
            self._await_input()
            result = pgconn.get_result()
            if result is None:
                if pgconn.status != psycopg.pq.ConnStatus.OK:
                    raise psycopg.OperationalError("the connection ended before the server had answered")
                continue  # the end of one answer; another follows
            if result.status == ExecStatus.PIPELINE_SYNC:
                break
            if result.status in _WELL:
                answers.append(result)
                if len(answers) == most:
                    return answers
            elif most is not None:
                pgconn.pipeline_sync()  # all answers after a failure only report that they were skipped
                wrong, most = result, None
            elif wrong is None:
                wrong = result
        if wrong is not None:
            pgconn.exit_pipeline_mode()
            raise error_from_result(wrong)
        return answers

    def _prepare(self, statement: Statement) -> tuple[bytes, Transformer]:
        name = b"tidemill_%d" % next(self._numbers)
        self.pgconn.send_prepare(name, statement.numbered, statement.types)
        self._answer()
        made = self._ready[statement.numbered] = (name, self._reader(statement))
        return made

    def _reader(self, statement: Statement) -> Transformer:
        reader = adapt.Transformer(self)
        reader.set_loader_types(statement.answers, Format.BINARY)
        return reader

    def _answer(self) -> PGresult:
        """Wait for the complete answer to the last statement. Rows precede the commit, so an error or the end of the
        connection may follow them; either is raised.
        """
        pgconn = self.pgconn
        if pgconn.flush():
            self._flush()
        first: PGresult | None = None
        while True:
            try:
                self._await_input()
            except psycopg.Error:
                if first is None or first.status in _WELL:
                    raise
                break  # the server has already reported why it closes the connection
            result = pgconn.get_result()
            if result is None:
                break
            if first is None or first.status in _WELL:
                first = result
        if first is None:
            raise psycopg.OperationalError("the server gave no answer")
        if first.status not in _WELL:
            raise error_from_result(first)
        return first

    def _flush(self) -> None:
        pgconn = self.pgconn
        while pgconn.flush():
            _until_room(pgconn.socket)
            pgconn.consume_input()  # a server whose output is blocked stops reading

    def _await_input(self) -> None:
        """Wait until the next answer, or its end, has arrived."""
        pgconn, wait = self.pgconn, wait_function.get()
        while pgconn.is_busy():
            if wait is None:
                self._listener(None)
            else:
                wait(pgconn.socket)
            pgconn.consume_input()

    def _give_up(self) -> None:
        """After an interrupt: cancel the running statement and close this session."""
        with contextlib.suppress(psycopg.Error):
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.cancel_safe(timeout=_CANCEL_SECONDS)
        self.close()


def readable(files: Sequence[int], seconds: float | None) -> bool:
    """Whether one of these files becomes readable within the time; None waits without a limit."""
    if not hasattr(select, "poll"):
        return bool(select.select(files, [], [], seconds)[0])
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def _until_room(file: int) -> None:
    """Wait until the file is writable or readable."""
    if not hasattr(select, "poll"):
        select.select([file], [file], [])
        return
    poll = select.poll()
    poll.register(file, select.POLLIN | select.POLLOUT)
    poll.poll()


def _listener(file: int) -> Callable[[float | None], Any]:
    """``readable`` for one file that is polled often: milliseconds to wait, or None without a limit."""
    if not hasattr(select, "poll"):
        return lambda wait: readable([file], wait if wait is None else wait / 1000)
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return poll.poll
