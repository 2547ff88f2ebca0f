"""The process border: messages, and how a trial is started, limited, ended and judged."""
