# hot `rows = np.concatenate` 0.3 -> refused: `grown` is a name of this file already
import numpy as np

rows, grown = np.zeros((0, 4)), 0
for step in range(100):
    rows = np.concatenate([rows, np.ones((1, 4))])
    grown += 1
