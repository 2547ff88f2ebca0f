"""The MCP server over stdio, with the SDK's own client and with bad ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import anyio
import psutil
import pytest

mcp = pytest.importorskip("mcp")
build_server = pytest.importorskip("gpudoc.agents.server").build_server
SERVER = mcp.StdioServerParameters(command=sys.executable, args=["-m", "gpudoc", "mcp"], env=dict(os.environ))
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
# it goes on for longer than any test
SLEEPER = "import time\ntime.sleep(600)\n"


def ask(*calls):
    """What the server answers to each (tool, arguments), in one session."""

    async def session():
        async with mcp.Client(SERVER) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(session)


def text_of(result):
    (block,) = result.content
    return block.text


def appears(script):
    """The id of the process that runs the script, once there is one."""
    for _ in range(3000):
        for process in psutil.process_iter(["cmdline"]):
            if (process.info["cmdline"] or [])[1:2] == [str(script)]:
                return process.pid
        time.sleep(0.01)
    raise AssertionError(f"{script} was not started")


def ends(pid):
    """Whether a process ends; the test's own timeout is the bound."""
    try:
        psutil.Process(pid).wait(60)
    except psutil.NoSuchProcess:
        return True
    return not psutil.pid_exists(pid)


def test_what_only_reads_is_marked_and_what_runs_says_so():
    async def listed():
        async with mcp.Client(build_server()) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in anyio.run(listed)}
    reads = {name for name, tool in tools.items() if tool.annotations.read_only_hint}
    assert reads == {"diagnose_text", "diagnose_machine", "watch_process", "explain_cause"}
    assert set(tools) - reads == {"plan_memory", "look_at_script", "tune_loader", "fix_script"}
    assert all("RUNS" in tools[name].description or "runs" in tools[name].description for name in set(tools) - reads)
    assert "context" not in json.dumps(tools["diagnose_text"].input_schema["properties"])


@pytest.mark.slow
def test_answers_are_short_redacted_and_whole_when_asked_for():
    log = f"/home/alice/secret-project/train.py\n{ECC}" + "step 1 loss 2.0\n" * 50
    short, whole, explained = ask(
        ("diagnose_text", {"text": log}),
        ("diagnose_text", {"text": log, "full": True}),
        ("explain_cause", {"cause": "gpu_ecc_error"}),
    )
    assert not short.is_error, text_of(short)
    assert len(text_of(short).encode()) <= 2000
    document = json.loads(text_of(short))
    assert document["schema"] == "gpudoc.doctor.v1"
    assert document["findings"][0]["id"] == "gpu_ecc_error"
    assert "skipped" in document["left_out"]
    assert {"skipped", "seconds"} <= json.loads(text_of(whole)).keys()
    assert "alice" not in text_of(short) + text_of(whole)
    assert json.loads(text_of(explained))["causes"][0]["id"] == "gpu_ecc_error"


@pytest.mark.slow
def test_errors_are_results_with_the_way_out():
    nobody, unknown, option, missing = ask(
        ("watch_process", {"pid": 2**22 + 1, "seconds": 1}),
        ("explain_cause", {"cause": "gpu_ecc_eror"}),
        ("explain_cause", {"cause": "--list"}),
        ("look_at_script", {"command": ["./no-such-program"], "budget": "5s"}),
    )
    assert all(result.is_error for result in (nobody, unknown, option, missing))
    assert json.loads(text_of(nobody))["schema"] == "gpudoc.error.v1"
    assert json.loads(text_of(unknown))["hint"] == "did you mean gpu_ecc_error?"
    assert "--list" not in text_of(missing)


@pytest.mark.parametrize(
    ("tool", "arguments", "because"),
    [
        ("plan_memory", {"model": "cfg\0.yaml", "target": "H100"}, "null byte"),
        ("diagnose_text", {"text": "half of a character: \ud800"}, "surrogates"),
        ("tune_loader", {"command": ["python", "x" * 200_000]}, "Argument list too long"),
    ],
)
def test_what_no_command_line_may_hold_is_refused_in_a_sentence(tool, arguments, because):
    async def session():
        async with mcp.Client(build_server()) as client:
            return await client.call_tool(tool, arguments)

    result = anyio.run(session)
    assert result.is_error
    assert "cannot be given these arguments" in text_of(result)
    assert because in text_of(result)


@pytest.mark.slow
def test_ten_megabytes_are_a_text_like_any_other():
    log = "step 1 loss 2.0 and some more words of a log that is long\n" * 175_000 + ECC
    assert len(log) > 10_000_000
    (answer,) = ask(("diagnose_text", {"text": log}))
    assert json.loads(text_of(answer))["findings"][0]["id"] == "gpu_ecc_error"
    assert len(text_of(answer).encode()) <= 2000


@pytest.mark.slow
def test_a_call_that_is_cancelled_ends_what_it_started_and_the_next_is_answered(tmp_path):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    script = {"command": [sys.executable, str(tmp_path / "sleeper.py")], "budget": "9m"}
    progress = []

    async def heard(done, total, message):
        progress.append((done, total, message))

    async def session():
        async with mcp.Client(SERVER) as client, anyio.create_task_group() as group:
            group.start_soon(lambda: client.call_tool("look_at_script", script, progress_callback=heard))
            pid = await anyio.to_thread.run_sync(appears, tmp_path / "sleeper.py")
            while not progress:
                await anyio.sleep(0.05)
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                assert await anyio.to_thread.run_sync(ends, pid)
                again = await client.call_tool("explain_cause", {"cause": "gpu_ecc_error"})
            assert not again.is_error

    anyio.run(session)
    assert progress[0][2] == "gpudoc tune"


class Raw:
    """A server that is spoken to line by line."""

    def __init__(self):
        command = [sys.executable, "-m", "gpudoc", "mcp"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def say(self, *lines):
        for line in lines:
            self.process.stdin.write((line if isinstance(line, str) else json.dumps(line)).encode() + b"\n")
        self.process.stdin.flush()

    def begin(self):
        who = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}
        self.say({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": who})
        self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self.answer(1)

    def answer(self, number):
        for line in self.process.stdout:
            if (said := json.loads(line)).get("id") == number:
                return said
        return None


@pytest.mark.slow
@pytest.mark.parametrize("how", ["closes its pipe", "kills the server"])
def test_nothing_is_left_running_when_the_client_goes_in_the_middle(tmp_path, how):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    raw = Raw()
    raw.begin()
    command = [sys.executable, str(tmp_path / "sleeper.py")]
    asked = {"name": "look_at_script", "arguments": {"command": command, "budget": "9m"}}
    raw.say({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": asked})
    pid = appears(tmp_path / "sleeper.py")
    below = psutil.Process(raw.process.pid).children(recursive=True)
    if how == "closes its pipe":
        raw.process.stdin.close()
    else:
        raw.process.kill()
    assert ends(pid)
    assert all(ends(process.pid) for process in below)
    raw.process.wait(60)


@pytest.mark.slow
def test_a_client_that_goes_in_the_middle_of_a_watch_leaves_the_job_and_no_sampler(tmp_path):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    job = subprocess.Popen([sys.executable, str(tmp_path / "sleeper.py")])
    try:
        raw = Raw()
        raw.begin()
        asked = {"name": "watch_process", "arguments": {"pid": job.pid, "seconds": 600}, "_meta": {"progressToken": 1}}
        raw.say({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": asked})
        # the watch is under way
        next(line for line in raw.process.stdout if b"notifications/progress" in line)
        below = psutil.Process(raw.process.pid).children(recursive=True)
        assert below
        raw.process.stdin.close()
        raw.process.wait(60)
        assert all(ends(process.pid) for process in below)
        assert job.poll() is None
    finally:
        job.kill()
        job.wait()


@pytest.mark.slow
def test_rubbish_is_refused_and_the_next_request_is_answered():
    raw = Raw()
    raw.say("this is no JSON", "[]", '{"jsonrpc": "2.0"}', "\x00\x01", "{" * 2000)
    assert raw.begin()["result"]["serverInfo"]["name"] == "gpudoc"
    raw.say({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "erase_disk", "arguments": {}}})
    said = raw.answer(3)
    assert "error" in said or said["result"]["isError"]
    wrong = {"name": "watch_process", "arguments": {"pid": "; rm -rf /", "seconds": -1}}
    raw.say({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": wrong})
    said = raw.answer(4)
    assert "error" in said or said["result"]["isError"]
    raw.process.stdin.close()
    assert raw.process.wait(60) == 0


def test_without_the_package_the_command_says_what_installs_it():
    code = "import sys; sys.modules['mcp'] = None\nfrom gpudoc.cli.app import run; sys.exit(run(['mcp']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install mcp" in done.stderr
