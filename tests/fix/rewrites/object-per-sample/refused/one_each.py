# hot `tokenizer = Auto` 0.8 -> refused: depends on `index`
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import AutoTokenizer


class Texts(Dataset):
    def __init__(self, texts, names):
        self.texts = texts
        self.names = names

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        tokenizer = AutoTokenizer.from_pretrained(self.names[index])
        return torch.tensor(tokenizer(self.texts[index])["input_ids"][:8])


for batch in DataLoader(Texts(["one two three"] * 100, ["gpt2"]), batch_size=4):
    batch.sum()
