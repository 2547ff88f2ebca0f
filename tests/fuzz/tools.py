"""The calls of an agent: the real MCP server under the SDK's client, whose tools run the command line right here."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import IO
from unittest.mock import patch

# of the command line of a tool, what reads only; others are answered without being run
_READ = ("-", "--explain=")
_NOT_RUN = {"schema": "gpudoc.error.v1", "message": "this tool runs code", "hint": "nothing is run here"}


class _Here:
    """What a Popen is to a Call, of a command line that ran in this process."""

    def __init__(self, command: Sequence[str], *, stdin: IO[bytes], stdout: IO[bytes], **how: object) -> None:
        from gpudoc.cli import app

        if any(b"\0" in os.fsencode(word) for word in command):
            raise ValueError("embedded null byte")
        arguments = command[command.index("doctor") :] if "doctor" in command else []
        if len(arguments) > 1 and arguments[1].startswith(_READ):
            said = io.TextIOWrapper(stdout, "utf-8", write_through=True)
            with redirect_stdout(said), patch.object(sys, "stdin", io.TextIOWrapper(stdin, "utf-8")):
                self.returncode = int(app.run(list(arguments)))
                sys.stdin.detach()
            said.detach()
        else:
            stdout.write(json.dumps(_NOT_RUN).encode())
            self.returncode = 2


def call_tool(path: Path, mode: str) -> int:
    """Call the tool that the file names, with its arguments; of any other file, ask what the text shows."""
    import anyio
    import mcp

    from gpudoc.agents import call, server
    from gpudoc.render.console import print_lines

    codes: list[int] = []

    class Call(call.Call):
        def wait(self, seconds: float) -> bool:
            codes.append(self._process.returncode)
            return True

        def stop(self) -> None:
            """It has ended."""

    name, arguments = _asked(path.read_bytes())

    async def session() -> object:
        async with mcp.Client(server.build_server()) as client:
            return await client.call_tool(name, arguments)

    run_here = SimpleNamespace(Popen=_Here, DEVNULL=None)
    with patch.object(server, "Call", Call), patch.object(call, "subprocess", run_here):
        try:
            answer = anyio.run(session)
        except (mcp.MCPError, ValueError) as refused:
            print_lines(f"refused: {refused}", sys.stderr)
            return 2
    said = "".join(block.text for block in answer.content)
    if said == f"Error executing tool {name}":
        # what the SDK makes of an exception that no tool expected
        raise RuntimeError(said)
    if not codes:
        # refused before anything ran, in the SDK's words around the agent's own
        return 2
    # as an agent shows it that trusts what it was told
    sys.stdout.write(said)
    return codes[0]


def _asked(content: bytes) -> tuple[str, dict[str, object]]:
    try:
        asked = json.loads(content)
    except (ValueError, RecursionError):
        asked = None
    name, arguments = (asked.get("name"), asked.get("arguments")) if isinstance(asked, dict) else (None, None)
    # a name with half a character is one that the SDK's client cannot send
    if isinstance(name, str) and name.isprintable() and isinstance(arguments, dict):
        return name, arguments
    return "diagnose_text", {"text": content.decode("utf-8", "replace"), "full": bool(len(content) % 2)}
