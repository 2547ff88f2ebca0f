"""gpudoc for coding agents: its commands as the tools of an MCP server."""
