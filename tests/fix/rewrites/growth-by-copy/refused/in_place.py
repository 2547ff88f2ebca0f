# hot `self.states = np.conc` 0.3 -> refused: line 13 changes `self.states` in place
import numpy as np


class Replay:
    def __init__(self, width):
        self.states = np.zeros((0, width), dtype=np.float32)

    def add(self, state):
        self.states = np.concatenate([self.states, state[None]])

    def forget(self, row):
        self.states[row] = 0
