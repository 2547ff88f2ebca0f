# hot `pattern = re.compile` 0.5 -> refused: `self.words` is not set in `__init__` alone
import re, torch
from torch.utils.data import Dataset
class D(Dataset):
    def __init__(self, words): self.words = words
    def __getitem__(self, i):
        pattern = re.compile(self.words)
        self.words = self.words + "x"
        return len(pattern.findall("abc"))
