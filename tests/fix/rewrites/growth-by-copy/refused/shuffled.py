# hot `rows = np.concatenate` 0.3 -> refused: line 8 changes `rows` in place
import numpy as np

rows = np.zeros((0, 4))
for step in range(100):
    rows = np.concatenate([rows, np.ones((1, 4))])
    loss = rows.sum()
    np.random.shuffle(rows)
