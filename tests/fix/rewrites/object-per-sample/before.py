# hot `tokenizer = AutoTokenizer` 0.8
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import AutoTokenizer


class Texts(Dataset):
    def __init__(self, texts, name="gpt2"):
        self.texts = texts
        self.name = name

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        tokenizer = AutoTokenizer.from_pretrained(self.name)
        ids = tokenizer(self.texts[index], truncation=True)["input_ids"]
        return torch.tensor(ids[:8])


for batch in DataLoader(Texts(["one two three"] * 100), batch_size=4):
    batch.sum()
