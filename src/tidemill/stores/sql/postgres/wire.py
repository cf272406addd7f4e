"""A connection of psycopg's with a second door: our own statements go straight to libpq, without a cursor.

A cursor costs the commonest statements more time than the server does. So each is prepared once for a connection, its
parameters come packed, and only rows are left to psycopg. Waiting is done here, on the socket: other threads run meanwhile,
and Ctrl-C is heard at once. What a statement means, and what becomes of its errors, is none of this room's business.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import psycopg
from psycopg import adapt
from psycopg.abc import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import RowFactory, tuple_row

from tidemill.stores.sql.driver import Row
from tidemill.stores.sql.postgres.statements import Statement
from tidemill.stores.waiting import meanwhile

_CANCEL_SECONDS = 5.0
_WELL = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class Connection(psycopg.Connection[Row]):
    """One session. Whoever uses it has it alone."""

    def __init__(self, pgconn: PGconn, row_factory: RowFactory[Row] = tuple_row) -> None:
        super().__init__(pgconn, row_factory)
        # What is prepared here: its name, and who reads its rows.
        self._ready: dict[bytes, tuple[bytes, Transformer]] = {}
        self._ear = _ear(pgconn.socket)

    def spoken(self) -> bool:
        """Whether the server has sent something unasked (its farewell, as a rule), or the connection is broken."""
        return self.pgconn.status != psycopg.pq.ConnStatus.OK or self._ear(0)

    def run(self, statement: Statement, parameters: Sequence[bytes | None], *, prepare: bool) -> list[Row]:
        """Run a statement with packed parameters, in the transaction that is open or in one of its own; its rows."""
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
        """Run several statements in one transaction of their own, sent at once; the rows of each."""
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
                self.close()  # whatever is still to come would be taken for an answer to something else
            raise
        except BaseException:
            self._give_up()
            raise
        return [
            self._rows(statement, reader, result)
            for (statement, _), (_, reader), result in zip(calls, ready, answers, strict=True)
        ]

    def run_each(
        self,
        statement: Statement,
        batches: Iterable[Sequence[bytes | None]],
        keep: Callable[[list[list[Row]]], bool],
    ) -> list[list[Row]]:
        """Run one statement for every batch, all in one transaction of their own; the rows of each.

        Each is sent as soon as it is there, so that the server works on one while the next is made. Where the making of one fails,
        or the rows are not to be kept, all of it is taken back.
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
                self.close()  # whatever is still to come would be taken for an answer to something else
            raise
        except BaseException:
            if pgconn.pipeline_status != PipelineStatus.OFF:
                self._give_up()
            raise
        return rows

    # Statements ahead ----------------------------------------------------------------------------------------------------

    def knows(self, statement: Statement) -> bool:
        """Whether it can be posted."""
        return statement.numbered in self._ready

    def learn(self, statement: Statement) -> None:
        """Prepare it, if it is not; while nothing is posted."""
        try:
            if not self.knows(statement):
                self._prepare(statement)
        except psycopg.Error:
            raise
        except BaseException:
            self._give_up()
            raise

    def post(self, statement: Statement, parameters: Sequence[bytes | None]) -> None:
        """Send a statement that is known, in a transaction of its own; ``collect`` tells what became of it, also if it could not be
        sent. Until all that was posted is collected, nothing else is done here.
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
        """Whether ``collect`` would not wait."""
        try:
            self.pgconn.consume_input()
            return not self.pgconn.is_busy()
        except psycopg.Error:
            return True

    def collect(self, statement: Statement, *, last: bool) -> list[Row]:
        """The rows of the oldest statement that was posted, waited for; ``last``: nothing else is under way."""
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
        """What the server says to the oldest statement, and that it is committed."""
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
        """End what was sent without a commit, and be ready for something else."""
        pgconn = self.pgconn
        pgconn.send_query_params(b"rollback", [])
        pgconn.pipeline_sync()
        self._answers()
        pgconn.exit_pipeline_mode()

    def _answers(self, most: int | None = None) -> list[PGresult]:
        """Wait for what the server says to all that was sent, until it says that this was all of it, and committed; or until so
        many answers are there, nothing being committed yet.
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
                continue  # one answer is over, another comes
            if result.status == ExecStatus.PIPELINE_SYNC:
                break
            if result.status in _WELL:
                answers.append(result)
                if len(answers) == most:
                    return answers
            elif most is not None:
                pgconn.pipeline_sync()  # what comes behind a failure is only said to be skipped
                wrong, most = result, None
            elif wrong is None:
                wrong = result
        if wrong is not None:
            pgconn.exit_pipeline_mode()
            raise error_from_result(wrong)
        return answers

    def _prepare(self, statement: Statement) -> tuple[bytes, Transformer]:
        name = b"tidemill_%d" % len(self._ready)
        self.pgconn.send_prepare(name, statement.numbered, statement.types)
        self._answer()
        made = self._ready[statement.numbered] = (name, self._reader(statement))
        return made

    def _reader(self, statement: Statement) -> Transformer:
        reader = adapt.Transformer(self)
        reader.set_loader_types(statement.answers, Format.BINARY)
        return reader

    def _answer(self) -> PGresult:
        """Wait for what the server says to what was sent last, to the end: rows come before the commit, and so may an error
        or the end of the connection after them. Either is raised.
        """
        pgconn = self.pgconn
        self._flush()
        first: PGresult | None = None
        while True:
            try:
                self._await_input()
            except psycopg.Error:
                if first is None or first.status in _WELL:
                    raise
                break  # the server has said why it leaves
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
            pgconn.consume_input()  # a server that cannot get rid of what it says listens to nothing more

    def _await_input(self) -> None:
        """Wait until the next answer is there, or its end."""
        pgconn, wait = self.pgconn, meanwhile.get()
        while pgconn.is_busy():
            if wait is None:
                self._ear(None)
            else:
                wait(pgconn.socket)
            pgconn.consume_input()

    def _give_up(self) -> None:
        """Somebody interrupted us. Whatever the server does now is stopped, and nobody uses this session again."""
        with contextlib.suppress(psycopg.Error):
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.cancel_safe(timeout=_CANCEL_SECONDS)
        self.close()


def readable(files: Sequence[int], seconds: float | None) -> bool:
    """Whether one of these has something to read, waiting so long for it; for ever without a number."""
    if not hasattr(select, "poll"):
        return bool(select.select(files, [], [], seconds)[0])
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def _until_room(file: int) -> None:
    """Wait until something can be written here, or read."""
    if not hasattr(select, "poll"):
        select.select([file], [file], [])
        return
    poll = select.poll()
    poll.register(file, select.POLLIN | select.POLLOUT)
    poll.poll()


def _ear(file: int) -> Callable[[float | None], Any]:
    """``readable`` for one file, asked again and again: milliseconds to wait, or None for ever."""
    if not hasattr(select, "poll"):
        return lambda wait: readable([file], wait if wait is None else wait / 1000)
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return poll.poll
