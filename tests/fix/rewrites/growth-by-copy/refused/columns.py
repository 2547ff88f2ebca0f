# hot `rows = np.concatenate` 0.3; hot `flat = np.append` 0.3; hot `first = np.concatenate` 0.3 -> nothing
import numpy as np

rows, flat, first = np.zeros((4, 0)), np.zeros(0), np.zeros((0, 4))
for step in range(100):
    rows = np.concatenate([rows, np.ones((4, 1))], axis=1)
    # without an axis, append flattens
    flat = np.append(flat, np.ones((2, 2)))
    # new rows come first
    first = np.concatenate([np.ones((1, 4)), first])
