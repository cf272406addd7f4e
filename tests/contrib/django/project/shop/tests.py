"""Tests of the shop with Django's test runner."""

import contextlib
import io
import json
import re
import uuid
from datetime import timedelta
from unittest import mock
from urllib.parse import urlencode

from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import transaction
from django.test import AsyncClient, TestCase, TransactionTestCase
from django.utils import timezone

from shop import tasks
from shop.models import Order
from shop.standard import InvalidTask, TaskResultStatus, exceptions, signals, task_backends
from tidemill.contrib.django import app, views
from tidemill.contrib.django.models import ReadOnly, StoredJob
from tidemill.contrib.django.testing import TidemillTestCase, TidemillTestMixin


def drain():
    with app.testing() as testing:
        return testing.drain()


class CleanTestCase(TransactionTestCase):
    """Begins every test without jobs; Django's flush leaves tables of others alone."""

    def setUp(self):
        super().setUp()
        app.jobs.cancel(status=["pending", "scheduled", "review_needed"])
        app.jobs.delete(status=["completed", "failed", "cancelled"])


class Heard:
    """The signals of Django's standard while the block runs."""

    def __enter__(self):
        self.names = []
        for name in ("task_enqueued", "task_started", "task_finished"):
            getattr(signals, name).connect(self._hear, dispatch_uid=name)
        return self

    def _hear(self, signal, task_result, **_):
        name = next(
            n for n in ("task_enqueued", "task_started", "task_finished") if getattr(signals, n) is signal
        )
        self.names.append((name, task_result.status.value))

    def __exit__(self, *_):
        for name in ("task_enqueued", "task_started", "task_finished"):
            getattr(signals, name).disconnect(dispatch_uid=name)


class StandardTests(CleanTestCase):
    """Promises of Django's task standard."""

    def test_a_task_runs_and_its_result_is_found_again(self):
        order = Order.objects.create(name="chair")
        result = tasks.ship.enqueue(order.pk, carrier="ship")
        self.assertEqual(
            (result.status, result.attempts, result.is_finished), (TaskResultStatus.READY, 0, False)
        )
        self.assertEqual((result.args, result.kwargs), ([order.pk], {"carrier": "ship"}))
        self.assertIsNotNone(result.enqueued_at)
        with self.assertRaises(ValueError):
            result.return_value  # noqa: B018
        drain()
        result.refresh()
        self.assertEqual(result.return_value, {"order": order.pk, "carrier": "ship"})
        self.assertEqual((result.status, result.attempts), (TaskResultStatus.SUCCESSFUL, 1))
        self.assertLessEqual(result.started_at, result.finished_at)
        self.assertEqual(result.started_at, result.last_attempted_at)
        found = tasks.ship.get_result(result.id)
        self.assertEqual(found.return_value, result.return_value)
        self.assertEqual(found.task, tasks.ship)
        order.refresh_from_db()
        self.assertEqual(order.state, "shipped by ship")

    def test_a_coroutine_runs_and_is_awaited(self):
        Order.objects.create(name="table")

        async def story():
            result = await tasks.notify.aenqueue(name="table")
            with app.testing() as testing:
                await testing.adrain()
            await result.arefresh()
            return result, await tasks.notify.aget_result(result.id)

        result, found = async_to_sync(story)()
        self.assertEqual(result.return_value, "table is placed")
        self.assertEqual((found.task.queue_name, found.task.priority), ("mail", 10))
        self.assertEqual(tasks.notify.module_path, "shop.tasks.notify")

    def test_using_changes_queue_priority_and_time(self):
        at = timezone.now() + timedelta(hours=1)
        result = tasks.ship.using(queue_name="night", priority=-50, run_after=at).enqueue(1)
        job = app.jobs.get(result.id)
        self.assertEqual((job.queue, job.priority, job.run_at, job.status), ("night", -50, at, "scheduled"))
        self.assertEqual(result.status, TaskResultStatus.READY)
        job.cancel()
        result.refresh()
        self.assertEqual((result.status, result.errors), (TaskResultStatus.FAILED, []))

    def test_a_failure_is_final_and_has_its_exception(self):
        result = tasks.fail.enqueue()
        with Heard() as heard, self.assertLogs(signals.__name__.rpartition(".")[0], "ERROR"):
            drain()
        self.assertEqual(heard.names, [("task_started", "RUNNING"), ("task_finished", "FAILED")])
        result.refresh()
        self.assertEqual((result.status, result.attempts), (TaskResultStatus.FAILED, 1))
        self.assertIs(result.errors[0].exception_class, LookupError)
        self.assertIn("nothing there", result.errors[0].traceback)
        with self.assertRaises(ValueError):
            result.return_value  # noqa: B018

    def test_a_value_that_is_no_json_fails_the_task(self):
        result = tasks.bad_value.enqueue()
        drain()
        result.refresh()
        self.assertIs(result.errors[0].exception_class, TypeError)

    def test_options_of_the_backend_give_more_attempts(self):
        result = tasks.flaky.enqueue(1)
        with Heard() as heard:
            drain()
            job = app.jobs.get(result.id)
            self.assertEqual((job.status, job.max_attempts), ("scheduled", 3))
            job.run_now()
            drain()
        started, finished = ("task_started", "RUNNING"), ("task_finished", "SUCCESSFUL")
        self.assertEqual(heard.names, [started, started, finished])
        result.refresh()
        self.assertEqual((result.return_value, result.attempts, len(result.errors)), (2, 2, 1))

    def test_the_context_has_the_running_result(self):
        result = tasks.inspect.enqueue("x")
        drain()
        result.refresh()
        self.assertEqual(result.return_value, [1, result.id, "RUNNING", "x"])

    def test_invalid_calls_are_refused(self):
        for wrong in (
            {"queue_name": "nowhere"},
            {"priority": 1000},
            {"run_after": timezone.now().replace(tzinfo=None)},
        ):
            with self.assertRaises(InvalidTask):
                tasks.flaky.using(**wrong)
        with self.assertRaises(TypeError):
            tasks.ship.enqueue(object())
        for id in (str(uuid.uuid4()), "nonsense"):
            with self.assertRaises(exceptions.TaskResultDoesNotExist):
                tasks.ship.get_result(id)
        with self.assertRaises(exceptions.TaskResultMismatch):
            tasks.ship.get_result(tasks.fail.enqueue().id)
        own = tasks.send.enqueue(to="ada")
        with self.assertRaises(exceptions.TaskResultDoesNotExist):
            tasks.ship.get_result(str(own.id))

    def test_the_backend_supports_everything(self):
        backend = task_backends["default"]
        for name in ("defer", "async_task", "get_result", "priority"):
            self.assertTrue(getattr(backend, f"supports_{name}"))
        self.assertEqual(list(backend.check()), [])


class TransactionTests(CleanTestCase):
    """Enqueues inside ``atomic()``."""

    def test_a_job_commits_with_its_transaction_and_is_announced_then(self):
        with Heard() as heard:
            with transaction.atomic():
                result = tasks.ship.enqueue(1)
                own = tasks.send.enqueue(to="ada")
                self.assertEqual(heard.names, [])
                with self.assertRaises(exceptions.TaskResultDoesNotExist):
                    tasks.ship.get_result(result.id)
            self.assertEqual(heard.names, [("task_enqueued", "READY")])
        self.assertEqual(tasks.ship.get_result(result.id).status, TaskResultStatus.READY)
        self.assertEqual(app.jobs.get(own.id).status, "pending")

    def test_a_rollback_removes_jobs_of_every_kind(self):
        before = app.jobs.count()
        with Heard() as heard, self.assertRaises(ZeroDivisionError), transaction.atomic():
            tasks.ship.enqueue(1)
            tasks.send.enqueue(to="ada")
            tasks.send.enqueue_many([{"to": "ada"}, {"to": "bob"}])
            raise ZeroDivisionError
        self.assertEqual((app.jobs.count(), heard.names), (before, []))

    def test_a_view_places_an_order_with_its_job(self):
        before = app.jobs.count()
        self.assertEqual(self.client.get("/orders/bad").status_code, 409)
        self.assertEqual((app.jobs.count(), Order.objects.count()), (before, 0))
        answer = self.client.get("/orders/chair")
        drain()
        self.assertEqual(tasks.ship.get_result(answer.json()["job"]).status, TaskResultStatus.SUCCESSFUL)
        self.assertEqual(Order.objects.get().state, "shipped by bike")


class OwnTransactionTests(TestCase):
    """A plain ``TestCase``: every enqueue is part of the test's transaction."""

    def test_a_job_of_the_test_is_visible_in_its_transaction_only(self):
        result = tasks.ship.enqueue(1)
        with self.assertRaises(exceptions.TaskResultDoesNotExist):
            result.refresh()
        self.assertTrue(StoredJob.objects.filter(pk=result.id).exists())


class IsolatedTests(TidemillTestCase):
    """Jobs in memory, run in the test's transaction."""

    def test_jobs_run_in_the_transaction_of_the_test(self):
        order = Order.objects.create(name="chair")
        result = tasks.ship.enqueue(order.pk)
        self.assertEqual(len(self.jobs.enqueued(tasks.ship)), 1)
        self.assertEqual(self.jobs.drain(raise_errors=True).completed, 1)
        result.refresh()
        order.refresh_from_db()
        self.assertEqual((order.state, result.status), ("shipped by post", TaskResultStatus.SUCCESSFUL))

    def test_a_rolled_back_block_leaves_no_job(self):
        kept = tasks.send.enqueue(to="ada")
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            tasks.ship.enqueue(1)
            raise ZeroDivisionError
        self.assertEqual([job.id for job in self.jobs.enqueued()], [kept.id])
        self.assertEqual(self.jobs.drain().processed, 1)

    def test_every_test_begins_without_jobs(self):
        self.assertEqual(app.jobs.count(), 0)
        schedules = self.jobs.testing
        schedules.drain()
        schedules.advance("1d")
        self.assertEqual(self.jobs.drain().completed, 1)


class MixinTests(TidemillTestMixin, TransactionTestCase):
    """The same with real commits."""

    def test_a_commit_keeps_the_job(self):
        with transaction.atomic():
            tasks.send.enqueue(to="ada")
        self.assertEqual(len(self.jobs.enqueued("mail.send")), 1)


class CommandTests(CleanTestCase):
    """Commands and checks."""

    def test_commands_work_on_the_project(self):
        tasks.send.enqueue(to="ada")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            call_command("tidemill", "jobs", "list", "--json")
        self.assertEqual([job["task"] for job in json.loads(out.getvalue())["items"]], ["mail.send"])

    def test_models_and_migrations_agree(self):
        call_command("makemigrations", "--check", "--dry-run", stdout=io.StringIO())
        call_command("check", "--database", "default", stdout=io.StringIO())

    def test_a_second_migrate_applies_nothing(self):
        out = io.StringIO()
        call_command("migrate", stdout=out)
        self.assertNotIn("Tidemill: applied", out.getvalue())


class AdminTests(CleanTestCase):
    """The admin and the dashboard."""

    def setUp(self):
        super().setUp()
        self.ann = User.objects.create_superuser("ann", password="ann")
        self.client.force_login(self.ann)

    def act(self, name, *ids):
        data = {"action": name, "_selected_action": [str(id) for id in ids]}
        return self.client.post("/admin/tidemill/storedjob/", data, follow=True)

    def test_jobs_are_listed_filtered_and_shown(self):
        done = tasks.fail.enqueue()
        drain()
        waiting = tasks.send.enqueue(to="ada")
        page = self.client.get("/admin/tidemill/storedjob/?state__exact=failed")
        self.assertContains(page, done.id)
        self.assertNotContains(page, str(waiting.id))
        self.assertContains(self.client.get("/admin/tidemill/storedjob/?q=mail.send"), str(waiting.id))
        page = self.client.get(f"/admin/tidemill/storedjob/{done.id}/change/")
        self.assertContains(page, "LookupError")
        self.assertNotContains(page, "_save")
        self.assertEqual(self.client.get("/admin/tidemill/storedjob/add/").status_code, 403)

    def test_actions_retry_cancel_and_approve(self):
        failed, waiting, asked = (
            tasks.fail.enqueue(),
            tasks.send.enqueue(to="ada"),
            tasks.judge.enqueue(word="x"),
        )
        waiting.reschedule("1h")
        drain()
        self.assertContains(self.act("retry", failed.id), "1 job retried")
        self.assertEqual(app.jobs.get(failed.id).status, "pending")
        self.assertContains(self.act("approve", asked.id), "1 job approved")
        self.assertEqual(app.jobs.get(asked.id).status, "completed")
        self.assertContains(self.act("cancel", waiting.id), "1 job cancelled")
        self.assertEqual(app.jobs.get(waiting.id).status, "cancelled")
        self.assertContains(self.act("approve", waiting.id), 'class="error"')

    def test_actions_need_the_permission(self):
        viewer = User.objects.create_user("bob", is_staff=True)
        viewer.user_permissions.add(Permission.objects.get(codename="view_storedjob"))
        self.client.force_login(viewer)
        job = tasks.send.enqueue(to="ada")
        self.act("cancel", job.id)
        self.assertEqual(app.jobs.get(job.id).status, "pending")
        viewer.user_permissions.add(Permission.objects.get(codename="operate_storedjob"))
        self.assertContains(self.act("cancel", job.id), "1 job cancelled")

    def test_the_model_cannot_change_jobs(self):
        tasks.send.enqueue(to="ada")
        record = StoredJob.objects.filter(created_at__lte=timezone.now() + timedelta(minutes=5)).first()
        with self.assertRaises(ReadOnly):
            record.save()
        with self.assertRaises(ReadOnly):
            record.delete()

    def test_the_dashboard_is_for_staff(self):
        job = tasks.send.enqueue(to="ada")
        self.assertContains(self.client.get("/jobs/"), "mail")
        self.assertContains(self.client.get(f"/jobs/jobs/{job.id}"), "mail.send")
        listed = self.client.get("/jobs/api/jobs").json()["items"]
        self.assertIn(str(job.id), [item["id"] for item in listed])
        self.assertEqual(self.client.get("/jobs/live").status_code, 204)
        self.client.logout()
        self.assertEqual(self.client.get("/jobs/workers").url, "/admin/login/?next=/jobs/workers")
        self.assertEqual(self.client.get("/jobs/api/jobs").status_code, 403)

    def test_every_process_of_a_server_accepts_the_forms_of_the_others(self):
        job = tasks.send.enqueue(to="ada")
        page = self.client.get(f"/jobs/jobs/{job.id}").text
        token = re.search(r'name="csrf" content="(\w+)"', page)[1]
        with mock.patch.object(views, "SITE", views.SiteThread()):
            form = urlencode({"csrf": token, "reason": "no"})
            kind = "application/x-www-form-urlencoded"
            answer = self.client.post(f"/jobs/jobs/{job.id}/cancel", form, kind)
        self.assertEqual((answer.status_code, app.jobs.get(job.id).status), (303, "cancelled"))

    def test_the_api_takes_changes_from_this_site_only(self):
        body = {"task": "mail.send", "args": {"to": "ada"}}
        made = self.client.post("/jobs/api/jobs", body, "application/json")
        self.assertEqual(made.status_code, 201)
        for header in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            answer = self.client.post("/jobs/api/jobs", body, "application/json", headers=header)
            self.assertEqual(answer.status_code, 403)
        self.client.force_login(User.objects.create_user("bob", is_staff=True))
        self.assertEqual(self.client.post("/jobs/api/jobs", body, "application/json").status_code, 403)

    def test_the_dashboard_streams_under_asgi(self):
        async def story():
            client = AsyncClient()
            await client.aforce_login(self.ann)
            answer = await client.get("/jobs/live")
            stream = aiter(answer.streaming_content)
            first = await anext(stream)
            await stream.aclose()
            return answer.headers["content-type"], first

        kind, first = async_to_sync(story)()
        self.assertTrue(kind.startswith("text/event-stream"))
        self.assertTrue(first.startswith(b"retry:"))
