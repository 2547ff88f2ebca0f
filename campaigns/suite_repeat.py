"""Does a test that starts processes ever fail? Each is repeated, in an order drawn by seed, and every run is kept.

    python campaigns/suite_repeat.py --results rows.jsonl [--times 50] [--seed 0] [--minutes 60] [--busy 2]
        [--marks "not slow and not gpu and not standin"] [--record records/DATE-suite-repeat.md] [FOLDER]

Round 0 runs every test that --marks allows and notes, by Python's audit events, which of them start a process; a test
counts too when a fixture that it uses started one. Each further round runs those once, as one pytest process with two
workers that take a file at a time: files in a drawn order, and the tests of each file too.

A row is appended to --results as each test ends. The same command goes on after the rows that are there: Ctrl+C,
SIGTERM and the end of --minutes let the tests that run end and begin no other one; the fixtures are taken down. What a
SIGKILL cuts off is run again. `--times 0 --record FILE.md` only writes the table of what is there.
"""

import argparse
import collections
import contextlib
import json
import multiprocessing.util
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "benchmarks"))
from in_parts import ROOT, Parts

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
# pytest's exit status: all passed, some failed, stopped, no test was there
EXPECTED = {0, 1, 2, 5}
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(1_000_000))"
PLAN = "GPUDOC_SUITE_REPEAT"


class Worker:
    """In each of pytest's processes: chooses and orders the tests, and tells which of them start a process."""

    def __init__(self, plan):
        self.place = plan
        self.plan = json.loads(plan.read_text())
        self.num_started = 0
        self.starting_fixtures = set()
        # xdist gives the test that a worker died of to the next worker, again and again
        rows = Parts(pathlib.Path(self.plan["results"])).rows
        self.done = {row["test"] for row in rows if row["round"] == self.plan["round"]}
        if self.plan["tests"] is None:
            sys.addaudithook(self._count)
            # multiprocessing's "spawn" and "forkserver" raise no event
            original = multiprocessing.util.spawnv_passfds
            multiprocessing.util.spawnv_passfds = lambda *words: self._count("os.fork", ()) or original(*words)

    def _count(self, event, arguments):
        self.num_started += event in STARTS

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        if (tests := self.plan["tests"]) is None:
            known = set(self.plan["known"])
            items[:] = [item for item in items if item.nodeid not in known]
        else:
            by_name = {item.nodeid: item for item in items}
            items[:] = [by_name[test] for test in tests if test in by_name]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item):
        """True, as if it had been run, where it was, and once the plan is gone, or who made it: begin nothing more."""
        is_wanted = self.place.exists() and pathlib.Path(f"/proc/{self.plan['pid']}").exists()
        if item.nodeid in self.done or not is_wanted:
            return True
        item.suite_repeat_before = self.num_started
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        before = self.num_started
        try:
            return (yield)
        finally:
            if self.num_started > before:
                self.starting_fixtures.add((fixturedef.baseid, fixturedef.argname))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        if call.when == "teardown" and self.plan["tests"] is None:
            used = {(one.baseid, name) for name, all_ in item._fixtureinfo.name2fixturedefs.items() for one in all_}
            starts = self.num_started > item.suite_repeat_before or bool(used & self.starting_fixtures)
            item.user_properties.append(("starts", starts))


class Controller:
    """In the pytest process that hears of every test: one row as each ends."""

    def __init__(self, plan):
        self.parts = Parts(pathlib.Path(plan["results"]))
        self.about = {"round": plan["round"], "busy": plan["busy"]}
        self.reports = collections.defaultdict(list)

    def pytest_runtest_logreport(self, report):
        self.reports[report.nodeid].append(report)
        # a worker that died tells of its test in one report of another kind
        if report.when in ("setup", "call"):
            return
        reports = self.reports.pop(report.nodeid)
        row = {"test": report.nodeid, **self.about, "seconds": round(sum(one.duration for one in reports), 3)}
        outcomes = {one.outcome for one in reports}
        row["outcome"] = next(outcome for outcome in ("failed", "skipped", "passed") if outcome in outcomes)
        if failed := [one for one in reports if one.failed]:
            crash = getattr(failed[0].longrepr, "reprcrash", None)
            text = f"{failed[0].when}: {failed[0].longreprtext}"
            row["last"] = crash.message.splitlines()[0] if crash and crash.message else text.splitlines()[-1]
            row["text"] = "\n".join([text, *(f"{name}\n{said}" for name, said in failed[0].sections)])[-20_000:]
        # one that ended its worker could not tell
        self.parts.add(**row, **(dict(report.user_properties) if report.when == "teardown" else {"starts": True}))


def pytest_configure(config):
    """This file is pytest's plugin too."""
    if place := os.environ.get(PLAN):
        plan = pathlib.Path(place)
        config.pluginmanager.register(Worker(plan))
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Controller(json.loads(plan.read_text())))


def be_pytest(words):
    """Without PYTHONPATH, which the tests' own processes would inherit; xdist hands sys.path on."""
    sys.path.insert(0, str(ROOT))
    sys.exit(pytest.main(["-p", "suite_repeat", "-p", "no:cacheprovider", "-q", "--tb=no", "-rN", *words]))


def drawn(tests, seed):
    """The tests file by file, the files and the tests of each in an order drawn by seed."""
    by_file = collections.defaultdict(list)
    for test in sorted(tests):
        by_file[test.split("::")[0]].append(test)
    dice = random.Random(seed)
    files = [dice.sample(several, len(several)) for several in by_file.values()]
    return [test for several in dice.sample(files, len(files)) for test in several]


def run_round(options, number, rows, until):
    """One pytest process for what this round has no row of; the plan's file is there while a test may begin."""
    done = {row["test"] for row in rows if row["round"] == number}
    tests, files = None, options.places
    if number:
        wanted = {row["test"] for row in rows if row.get("starts")} - done
        wanted = [test for test in wanted if test.startswith(tuple(options.places))]
        tests = [test for test in drawn(wanted, f"{options.seed} {number}") if (ROOT / test.split("::")[0]).exists()]
        if not tests:
            return
        files = list(dict.fromkeys(test.split("::")[0] for test in tests))
    plan = {"tests": tests, "known": sorted(done), "round": number, "busy": options.busy}
    with tempfile.TemporaryDirectory(prefix="gpudoc-suite-") as folder:
        place = pathlib.Path(folder) / "plan.json"
        place.write_text(json.dumps({**plan, "results": str(options.results.resolve()), "pid": os.getpid()}))
        command = [sys.executable, __file__, "--be-pytest", "-n", str(options.workers), "--dist", "loadfile"]
        command += ["--no-loadscope-reorder", f"--timeout={options.timeout}", "-m", options.marks, *files]
        environment = {**os.environ, PLAN: str(place)}
        # a session of its own: Ctrl+C on the terminal is for this process, the tests that run may end
        with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as tests_run:
            try:
                tests_run.wait(max(0.0, until - time.monotonic()))
            except (subprocess.TimeoutExpired, KeyboardInterrupt) as why:
                place.unlink()
                print("\nno test begins any more; waiting for those that run", flush=True)
                with contextlib.suppress(KeyboardInterrupt):
                    tests_run.wait()
                if tests_run.poll() is None:
                    os.killpg(tests_run.pid, signal.SIGTERM)
                if isinstance(why, KeyboardInterrupt):
                    raise
    if tests_run.returncode not in EXPECTED:
        raise SystemExit(f"pytest ended with status {tests_run.returncode} in round {number}; what it said is above")


def table(parts, command):
    """The record: how often each was run, what failed, and what that cost."""
    first = [row for row in parts.rows if row["round"] == 0]
    names = {row["test"] for row in parts.rows if row.get("starts")}
    rows = [row for row in parts.rows if row["test"] in names]
    times = collections.Counter(row["test"] for row in rows)
    failed = [row for row in parts.rows if row["outcome"] == "failed"]
    counts = sorted(times.values()) or [0]
    loads = [row["load"] for row in parts.rows] or [0.0]
    seconds = sum(row["seconds"] for row in parts.rows)
    busy = ", ".join(sorted({str(row["busy"]) for row in parts.rows}))
    what = (
        f"Of {len(first)} tests {len(names)} start processes. Each was run {counts[0]} times at least, "
        f"{statistics.median(counts):g} times by the median: {len(rows)} runs. Of all {len(parts.rows)} runs, those of "
        f"round 0 included, {len(failed)} failed. They took {seconds / 3600:.2f} hours of a worker; busy loops beside "
        f"them: {busy}; load {statistics.median(loads):.1f} by the median."
    )
    lines = [
        f"# Tests that start processes, repeated, {time.strftime('%Y-%m-%d')}",
        "",
        f"`{command}`; {parts.about()}.",
        "",
        what,
        "",
        "| test that failed | runs | failed | with | round, load |",
        "|---|---|---|---|---|",
    ]
    for test, count in collections.Counter(row["test"] for row in failed).most_common():
        own = [row for row in failed if row["test"] == test]
        said = " / ".join(dict.fromkeys(row["last"][:160].replace("|", "\\|") for row in own))
        when = "; ".join(f"{row['round']}, {row['load']}" for row in own[:8])
        lines.append(f"| `{test}` | {times[test] or 1} | {count} | `{said}` | {when} |")
    return "\n".join([*lines, *(() if failed else ("| none | | | | |",))]) + "\n"


def parsed():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("places", nargs="*", default=["tests"], help="only tests below these, from the root on")
    options.add_argument("--results", type=pathlib.Path, required=True, help="JSON lines; goes on after what is there")
    options.add_argument("--times", type=int, default=50, help="how often each test is run, the first round included")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--minutes", type=float, default=600.0, help="begin no test after so long")
    options.add_argument("--busy", type=int, default=0, help="so many busy loops beside the tests")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--timeout", type=int, default=600, help="seconds that a test may take: pytest-timeout's")
    options.add_argument("--marks", default="not gpu and not standin", help="pytest's -m")
    options.add_argument("--record", type=pathlib.Path, help="write all rows as a table")
    return options.parse_args()


def main():
    options = parsed()
    until = time.monotonic() + 60 * options.minutes
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.ExitStack() as stack:
        for _ in range(options.busy):
            # ends by itself, however this process ends
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]))
            stack.callback(loop.kill)
        with contextlib.suppress(KeyboardInterrupt):
            for number in range(options.times):
                if time.monotonic() < until:
                    run_round(options, number, Parts(options.results).rows, until)
    text = table(Parts(options.results), " ".join(["python", "campaigns/suite_repeat.py", *sys.argv[1:]]))
    print(text)
    if options.record:
        options.record.write_text(text, "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--be-pytest"]:
        be_pytest(sys.argv[2:])
    main()
