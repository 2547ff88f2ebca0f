"""The MCP server: the tools of an agent, the command of each, and answers that are short unless `full` is set.

Every tool calls gpudoc's command line with --json in a separate process, so its answer is redacted in the same way; an
agent that cancels a call or disconnects ends that process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import anyio
import anyio.to_thread
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

import gpudoc
from gpudoc.agents.answer import shorten
from gpudoc.agents.call import Call
from gpudoc.control_characters import to_json

_TICK_S = 0.5
_ABOUT = """\
Find out why PyTorch training on GPUs fails to start, runs out of memory or is slow. Start with diagnose_text for an
error or a log, diagnose_machine if torch does not see the GPU, or watch_process for a running job that is slow. The
first finding is the most likely root cause. `run` holds commands to propose to the user; commands that need root or
interrupt work are marked.
Documents have JSON Schemas under docs/schemas, by their field `schema`."""
Full = Annotated[bool, Field(description="The whole document instead of at most 2 KB of it.")]
Budget = Annotated[str, Field(description="Time limit, for example 3m.", pattern=r"^\d{1,4}[smh]$")]
Script = Annotated[list[str], Field(description='The command as a list, such as ["python", "train.py"].', min_length=1)]


async def diagnose_text(
    text: Annotated[
        str, Field(description="An error, a log, or the output of nvidia-smi, collect_env or dmesg, in any mixture.")
    ],
    context: Context,
    full: Full = False,
) -> CallToolResult:
    """Name the root cause of what a program printed, and how to mend it. Reads the text alone; runs nothing of it."""
    return await _answer(context, ["doctor", "-"], full, text=text)


async def diagnose_machine(
    context: Context,
    quick: Annotated[bool, Field(description="Do not import torch; read its build from files.")] = False,
    full: Full = False,
) -> CallToolResult:
    """Examine this machine: driver, GPUs, PyTorch, containers, memory. It imports torch in a separate process."""
    return await _answer(context, ["doctor", *(["--quick"] if quick else [])], full)


async def watch_process(
    pid: Annotated[int, Field(ge=1, description="The process id of the training job.")],
    context: Context,
    seconds: Annotated[float, Field(ge=1, le=600, description="How many seconds to watch.")] = 20.0,
    full: Full = False,
) -> CallToolResult:
    """Watch a training job that runs, without stopping it: where its time goes, and the line that costs it."""
    return await _answer(context, ["doctor", f"--pid={pid}", f"--seconds={seconds:g}"], full, seconds=seconds)


async def explain_cause(
    cause: Annotated[str, Field(description="The id of a finding, such as cpu_only_torch.", pattern=r"^\w{1,60}$")],
    context: Context,
    full: Full = False,
) -> CallToolResult:
    """Explain one cause of the catalogue: what it means, why it matters, how it is mended, and who says so."""
    return await _answer(context, ["doctor", f"--explain={cause}"], full)


async def plan_memory(
    model: Annotated[str, Field(description="A cfg.yaml of gpudoc, or quickstart or images.", min_length=1)],
    target: Annotated[
        str, Field(description="A GPU or a memory size, such as H100 or 24GiB; separate several with commas.")
    ],
    context: Context,
    full: Full = False,
) -> CallToolResult:
    """Predict whether training fits a GPU that is not here. Imports the model's code and runs a step without data."""
    return await _answer(context, ["tune", f"--model={model}", f"--target={target}"], full)


async def look_at_script(
    command: Script, context: Context, budget: Budget = "3m", full: Full = False
) -> CallToolResult:
    """RUNS a training script for some steps and ends it: its loaders, its step, and how long it waits for data."""
    asked = ["tune", "--only=look", f"--budget={budget}"]
    return await _answer(context, asked, full, command=command)


async def tune_loader(command: Script, context: Context, budget: Budget = "5m", full: Full = False) -> CallToolResult:
    """RUNS a training script several times with other settings of its data loader, for the fastest; keeps a profile."""
    asked = ["tune", "--only=loader", f"--budget={budget}"]
    return await _answer(context, asked, full, command=command)


async def fix_script(command: Script, context: Context, budget: Budget = "5m", full: Full = False) -> CallToolResult:
    """RUNS a training script several times without traces: a small change as a diff, with its proof. Writes nothing."""
    return await _answer(context, ["fix", f"--budget={budget}"], full, command=command)


_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
TOOLS = (
    (diagnose_text, _READS),
    (diagnose_machine, _READS),
    (watch_process, _READS),
    (explain_cause, _READS),
    (plan_memory, _RUNS),
    (look_at_script, _RUNS),
    (tune_loader, _RUNS),
    (fix_script, _RUNS),
)


def build_server() -> MCPServer:
    """The server with its tools."""
    server = MCPServer("gpudoc", instructions=_ABOUT, version=gpudoc.__version__, log_level="ERROR")
    for tool, hints in TOOLS:
        server.add_tool(tool, annotations=hints, structured_output=False)
    return server


def serve() -> None:
    """Answer on stdin and stdout until the client disconnects."""
    anyio.run(build_server().run_stdio_async)


async def _answer(
    context: Context,
    asked: Sequence[str],
    full: bool,
    *,
    text: str = "",
    seconds: float | None = None,
    command: Sequence[str] = (),
) -> CallToolResult:
    """The document of a command as JSON; gpudoc.error.v1, marked as an error, if it fails."""
    try:
        call = Call([*asked, "--json", *(["--", *command] if command else [])], text)
    except (OSError, ValueError) as problem:
        # a NUL, half a character, or too long for a command line
        raise ToolError(f"gpudoc {asked[0]} cannot be given these arguments: {problem}") from problem
    began = time.monotonic()
    try:
        while not await anyio.to_thread.run_sync(call.wait, _TICK_S):
            await context.report_progress(time.monotonic() - began, seconds, f"gpudoc {asked[0]}")
    finally:
        # runs even if the agent has cancelled the call or disconnected
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(call.stop)
    answer = call.answer()
    said = to_json(answer.document if full or answer.failed else shorten(answer.document), indent=None)
    return CallToolResult(content=[TextContent(type="text", text=said)], is_error=answer.failed)
