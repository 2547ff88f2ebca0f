"""Transformers' Trainer that logs every step into a tracker which writes everything out."""

import json
import os
import pathlib
import tempfile

from transformers import TrainerCallback
from transformers_parts import run


class Tracker(TrainerCallback):
    def __init__(self):
        self.file = pathlib.Path(tempfile.mkdtemp(), "log.jsonl").open("w")  # noqa: SIM115

    def on_log(self, args, state, control, logs=None, **_):
        self.file.seek(0)
        for row in state.log_history[-300:]:
            self.file.write(json.dumps({**row, "again": logs, "wide": list(range(3000))}) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())


run(callbacks=[Tracker()], logging_strategy="steps", logging_steps=1)
