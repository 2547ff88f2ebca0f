"""The process border: what is asked and answered, how a trial is started, limited, ended and judged."""
