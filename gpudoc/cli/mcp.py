"""The `gpudoc mcp` command."""

from __future__ import annotations


def mcp() -> int:
    """Serve doctor, the plan and the loader's search to a coding agent, over stdin and stdout (MCP).

    Needs the package mcp: pip install ".[mcp]". What a tool answers is redacted, and short unless more is asked for.

    Example: gpudoc mcp | claude mcp add gpudoc -- gpudoc mcp
    """
    from importlib.util import find_spec

    from gpudoc.errors import GpudocError

    if find_spec("mcp") is None:
        raise GpudocError(
            "gpudoc mcp needs the package mcp, which is not installed in this Python", hint="pip install mcp"
        )
    from gpudoc.agents.server import serve

    serve()
    return 0
