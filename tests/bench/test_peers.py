"""Tests of the list of peers and of the benchmarks page."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from bench.peers import chart, figures, install, page, record
from bench.peers.__main__ import DOCS, NOTES, RAW
from bench.peers.listing import ENVIRONMENTS, OURS, PEERS, USUAL, Peer, Promise
from bench.peers.redis import Keys, Link, RedisError, RedisServer, running_redis
from bench.peers.sides import PROGRAMS, command
from tests.servers.processes import ServiceMissing
from tests.servers.restartable import find_redis

ROOT = Path(__file__).resolve().parents[2]


def promise(**given: str) -> dict[str, str]:
    return {"history": "yes", "result": "no", "worker_dies": "runs again", "durable": "a crash", **given}


def side(store: str, *, ours: bool = False) -> dict[str, Any]:
    words = {"concurrency": 10, "settings": "", "packages": ["it 1.0"], "promise": promise()}
    return {"store": store, "ours": ours, **words}


def rates(*values: float | None) -> list[dict[str, float] | None]:
    return [None if it is None else {"rate": it, "others": 0.0} for it in values]


@pytest.fixture
def results() -> dict[str, Any]:
    """Return two rounds of a small comparison; ``slow`` failed once, ``broken`` always."""
    return {
        "conditions": {
            "date": "2030-01-02 03:04 UTC",
            "commit": "abc123",
            "machine": {"cpu": "a processor", "cores": 2, "memory_gb": 8.0, "system": "Linux 6"},
            "versions": {"Python": "3.11", "Node": None},
            "postgres": "stock",
            "redis": "none",
        },
        "rounds": 2,
        "quick": False,
        "sizes": {"jobs": 20_000, "finished": 1_000_000, "pending": 200_000},
        "sides": {
            "tidemill": side("postgres", ours=True),
            "tidemill-sqlite": side("sqlite", ours=True),
            "quick": side("redis"),
            "slow": side("postgres"),
            "broken": side("postgres"),
        },
        "left_out": ["gone: not installed"],
        "failures": [],
        "workloads": {
            "w3": {
                "yardstick": rates(100.0, 200.0),
                "tidemill": rates(60.0, 120.0),
                "tidemill -c 10": rates(30.0, 60.0),
                "slow": rates(None, 40.0),
                "broken": rates(None, None),
                "yardstick-sqlite": rates(50.0, 50.0),
                "tidemill-sqlite": rates(25.0, 25.0),
                "quick": rates(80.0, 110.0),
            },
            "w5": {
                "tidemill": [{"call_p50": 1.0, "p50": 0.5}, {"call_p50": 3.0, "p50": 2.5}],
                "slow": [{"call_p50": 4.0}, {"call_p50": 4.0}],
            },
            "w14": {
                "tidemill": [{"call_p50": 1.5, "busy": 0.7}, {"call_p50": 2.5, "busy": 0.7}],
                "slow": [{"call_p50": 4.0, "busy": 0.5}, {"call_p50": 4.0, "busy": 0.5}],
            },
            "w9": {
                "tidemill, 8 ms": [{"share": 0.9, "rate": 225.0}, {"share": 0.7, "rate": 175.0}],
                "slow, 8 ms": [{"share": 0.4, "rate": 100.0}, None],
                "slow, 50 ms": [{"share": 0.6, "rate": 24.0}, None],
                "broken, 8 ms": [None, None],
            },
            "w8": {
                "tidemill, empty": rates(50.0, 50.0),
                "tidemill, finished": rates(40.0, 50.0),
                "slow, empty": rates(10.0, 10.0),
            },
        },
    }


# The listing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", PEERS.values(), ids=list(PEERS))
def test_every_peer_has_complete_details(peer: Peer) -> None:
    assert peer.left
    assert peer.concurrency > 0
    assert all(vars(peer.promise).values())
    environment = ENVIRONMENTS[peer.environment]
    pins = r"[\w-]+@\d[\w.]*" if environment.node else r"[\w-]+==\d[\w.]*"
    assert [package for package in environment.packages if not re.fullmatch(pins, package)] == []
    assert environment.node == peer.program.endswith(".mjs")
    assert set(peer.works) <= {"spin", "block", "await"}
    assert peer.history is None or ("%(count)s" in peer.history and peer.store == "postgres")


@pytest.mark.parametrize("peer", PEERS.values(), ids=list(PEERS))
def test_every_program_exists_and_supports_bulk_as_listed(peer: Peer) -> None:
    if peer.program.endswith(".mjs"):
        source = (PROGRAMS / peer.program).read_text()
        assert peer.bulk == ("pushMany:" in source)
        assert {word for word in ("setup", "open", "close", "push", "worker") if word not in source} == set()
    else:
        tree = ast.parse((PROGRAMS / f"{peer.program}.py").read_text())
        (program,) = [it for it in tree.body if isinstance(it, ast.ClassDef) and it.name == "Peer"]
        methods = {it.name for it in program.body if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef))}
        assert {"push", "worker"} <= methods
        assert peer.bulk == ("push_many" in methods)


def test_every_program_and_every_environment_is_listed() -> None:
    listed = {peer.program.removesuffix(".mjs") for peer in PEERS.values()}
    assert {path.stem for path in PROGRAMS.glob("*.*")} - {"harness"} == listed
    assert {peer.environment for peer in PEERS.values()} == set(ENVIRONMENTS)
    assert set(USUAL) <= set(PEERS)
    assert all(isinstance(it, Promise) for it in OURS.values())


def test_a_program_handles_its_modes() -> None:
    for peer in PEERS.values():
        if peer.mode:
            file = PROGRAMS / (peer.program if peer.program.endswith(".mjs") else f"{peer.program}.py")
            assert f'"{peer.mode}"' in file.read_text(), peer.name


def test_a_program_does_the_listed_work() -> None:
    for peer in PEERS.values():
        source = (
            PROGRAMS / (peer.program if peer.program.endswith(".mjs") else f"{peer.program}.py")
        ).read_text()
        assert ("harness.working_body" in source) == bool({"spin", "block"} & set(peer.works)), peer.name
        assert ("harness.waiting_body" in source) == ("await" in peer.works), peer.name


# Installing -------------------------------------------------------------------------------------------------------------


def test_an_environment_is_ready_with_exactly_its_packages(tmp_path: Path) -> None:
    environment = ENVIRONMENTS["rq"]
    assert not install.ready(environment, tmp_path)
    stamp = tmp_path / "rq" / install.STAMP
    stamp.parent.mkdir()
    stamp.write_text("\n".join(environment.packages))
    assert install.ready(environment, tmp_path)
    stamp.write_text("rq==1.0")
    assert not install.ready(environment, tmp_path)


def test_a_failed_installation_is_reported_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    (failure,) = install.install_all([ENVIRONMENTS["node-bullmq"]], tmp_path)
    assert "needs npm" in failure
    assert "node-bullmq: not installed" in capsys.readouterr().err
    assert not install.ready(ENVIRONMENTS["node-bullmq"], tmp_path)


def test_two_modes_of_one_peer_share_an_environment(tmp_path: Path) -> None:
    names = ["huey-redis", "huey-sqlite", "graphile-worker"]
    assert [it.name for it in install.wanted(names)] == ["huey", "node-graphile-worker"]
    with pytest.raises(install.NotInstalled, match="unknown peer 'sidekiq'"):
        install.wanted(["sidekiq"])
    assert command(PEERS["huey-redis"], tmp_path)[1:] == ["-m", "bench.peers.drive", "huey"]
    assert command(PEERS["bullmq"], tmp_path) == ["node", str(PROGRAMS / "bullmq.mjs")]


def test_the_harness_needs_only_the_standard_library() -> None:
    program = "import bench.peers.drive, bench.peers.harness"
    words = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {program}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Figures ----------------------------------------------------------------------------------------------------------------


def test_the_systems_of_a_workload_are_sorted_with_ratios(results: dict[str, Any]) -> None:
    ordered = figures.rows(results, "w3")
    assert [row.name for row in ordered[:4]] == ["yardstick", "quick", "tidemill", "yardstick-sqlite"]
    rows = {row.name: row for row in ordered}
    assert "broken" not in rows
    ours = rows["tidemill"]
    assert (ours.value, ours.low, ours.high) == (90.0, 60.0, 120.0)
    assert ours.to_peer == pytest.approx((60 / 80 + 120 / 110) / 2)
    assert ours.to_stick == pytest.approx(0.6)
    assert ours.spread == pytest.approx(30 / 90)
    assert rows["tidemill-sqlite"].to_stick == pytest.approx(0.5)
    assert rows["quick"].to_stick is None
    assert rows["yardstick"].to_stick is None


def test_lower_latency_is_better(results: dict[str, Any]) -> None:
    assert [row.name for row in figures.rows(results, "w5")] == ["tidemill", "slow"]
    assert figures.first(results, "w5")
    assert not figures.first(results, "w3")


def test_the_summary_compares_on_the_same_store_and_on_any(results: dict[str, Any]) -> None:
    drain = figures.glances(results)[0]
    assert (drain.what, drain.ours, drain.same, drain.any) == ("w3", 90.0, "slow", "quick")
    assert drain.to_same == pytest.approx(3.0)
    (small,) = figures.glances(results, "tidemill-sqlite")
    assert (small.same, small.to_same) == (None, None)


def test_scale_is_relative_to_the_empty_drain(results: dict[str, Any]) -> None:
    assert figures.scales(results) == [
        ("tidemill", [50.0, 45.0, None], [0.9, None]),
        ("slow", [10.0, None, None], [None, None]),
    ]


def test_a_workload_with_variants_is_compared_by_its_headline(results: dict[str, Any]) -> None:
    assert figures.shares(results, "w9") == [
        ("tidemill", [None, pytest.approx(0.8), None], [None, 200.0, None]),
        ("slow", [None, 0.4, 0.6], [None, 100.0, 24.0]),
        ("broken", [None, None, None], [None, None, None]),
    ]
    assert figures.first(results, "w9")
    (glance,) = [it for it in figures.glances(results) if it.what == "w9"]
    assert glance.same == "slow"
    assert glance.ours == pytest.approx(0.8)
    assert glance.to_same == pytest.approx(2.25)


# The page ---------------------------------------------------------------------------------------------------------------


def test_the_page_contains_conditions_figures_guarantees_and_omissions(results: dict[str, Any]) -> None:
    text = page.page(results, {"w3": "Because of this.", "about": "First words."})
    assert "**Median of 2 rounds**, 2030-01-02 03:04 UTC, commit `abc123`, 2 cores." in text
    assert "| **tidemill** | PostgreSQL | 90 | 33% | 0.92 | 0.60 |" in text
    assert "| *yardstick* |" in text
    assert "Failed in every round: broken." in text
    assert "![W3: drain, one worker](benchmarks/w3.svg)" in text
    assert text.index("First words.") < text.index("## At a glance") < text.index("Because of this.")
    assert "| slow | PostgreSQL | yes | no | runs again | a crash |" in text
    assert "- gone: not installed" in text
    assert "| **tidemill** | 50 | 45 | – | 90% | – |" in text
    assert "| **tidemill** | PostgreSQL | – | 80% | – | – | 200 | – |" in text
    assert "for W1 to W4 and W9 to W11 above 1 is better, for W5, W7 and W14 below 1." in text
    assert "| **tidemill** | PostgreSQL | 2.00 | 25% | 0.50 | – | – | – | 70% |" in text
    assert "Do not quote" not in text
    assert "Do not quote" in page.page({**results, "quick": True, "rounds": 1}, {})


def test_every_line_of_a_table_has_the_same_number_of_cells(results: dict[str, Any]) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", page.page(results, {}), re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_notes_are_read_by_heading_and_missing_ones_are_reported(results: dict[str, Any]) -> None:
    notes = page.read_notes("<!-- ## w1 -->\n## about\n\n## w3\n\nWords\non it.\n")
    assert notes == {"w3": "Words\non it."}
    assert page.unexplained(results, {}) == ["w3"]
    assert page.unexplained(results, notes) == []


def test_texts_are_updated_without_measuring(results: dict[str, Any]) -> None:
    results["sides"]["pg-boss"] = {**side("postgres"), "settings": "old"}
    sides = record.reworded(results)["sides"]
    assert sides["pg-boss"]["promise"]["history"] == PEERS["pg-boss"].promise.history
    assert sides["pg-boss"]["settings"] == PEERS["pg-boss"].settings
    assert sides["tidemill"]["promise"]["durable"] == OURS["postgres"].durable
    assert sides["slow"] == results["sides"]["slow"]


def test_an_error_contains_no_path_of_the_machine() -> None:
    assert record.plain("rq: /srv/a/b.py failed\nmore") == "rq: … failed"


def test_a_chart_is_an_svg_with_a_bar_for_each_row() -> None:
    rows = [chart.Bar("ours & all", 200.0, 100.0, 300.0, "ours"), chart.Bar("other", 0.0, 0.0, 0.0)]
    drawn = ElementTree.fromstring(chart.bars("A <title>", "jobs/s", rows))
    name = "{http://www.w3.org/2000/svg}"
    widths = [float(it.attrib["width"]) for it in drawn.iter(f"{name}rect") if it.get("class") != "page"]
    room = chart.WIDTH - chart.LABELS - chart.VALUES - chart.MARGIN
    assert widths == [pytest.approx(room * 2 / 3, abs=0.1), 0.0]
    assert len(list(drawn.iter(f"{name}path"))) == 1
    texts = [it.text for it in drawn.iter(f"{name}text")]
    assert {"A <title>", "ours & all", "200", "0"} <= set(texts)
    assert "prefers-color-scheme:dark" in (drawn.findtext(f"{name}style") or "")


def test_charts_are_small(results: dict[str, Any]) -> None:
    assert set(page.pictures(results)) == {"w3.svg", "w5.svg"}
    assert all(len(picture) < 8_000 for picture in page.pictures(results).values())


def test_the_stored_page_matches_its_figures_and_notes() -> None:
    results = json.loads(RAW.read_text(encoding="utf-8"))
    notes = page.read_notes(NOTES.read_text(encoding="utf-8"))
    assert (DOCS / "benchmarks.md").read_text(encoding="utf-8") == page.page(results, notes)
    for name, picture in page.pictures(results).items():
        assert (RAW.parent / name).read_text(encoding="utf-8") == picture
    assert page.unexplained(results, notes) == []


# Redis ------------------------------------------------------------------------------------------------------------------


def test_the_error_without_redis_includes_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(ServiceMissing, match="apt install redis-server"):
        find_redis()


@pytest.mark.skipif(
    not (shutil.which("redis-server") or shutil.which("valkey-server")),
    reason="needs redis-server or valkey-server",
)
def test_a_private_redis_gives_each_peer_its_own_database() -> None:
    with running_redis() as url:
        server = RedisServer(url)
        assert server.version
        one, two = server.database(), server.database()
        assert isinstance(one, Keys)
        link = Link(one.words["BENCH_URL"])
        link.do("rpush", "jobs", "a", "b")
        count = "return redis.call('llen', 'jobs')"
        assert (one.left(count), two.left(count)) == (2, 0)
        with pytest.raises(RedisError, match="unknown command"):
            link.do("nonsense")
        one.keep("full")
        assert not one.bring("full")
        one.fresh()
        one.keep("empty")
        link.do("set", "more", "1")
        one.settle()
        assert one.bring("empty")
        assert link.do("dbsize") == 0
        link.close()
        one.drop()
        two.drop()
    with pytest.raises(OSError, match="refused"):
        Link(url)
