# hot `tokenizer = BertTokenizerFast` 0.8
from torch.utils.data import DataLoader
from transformers import BertTokenizerFast

NAME = "bert-base-uncased"


_tokenizer = BertTokenizerFast.from_pretrained(NAME)


def collate(texts):
    tokenizer = _tokenizer
    return tokenizer(texts, padding=True, return_tensors="pt")


for batch in DataLoader(["one two three"] * 100, batch_size=4, collate_fn=collate):
    batch["input_ids"].sum()
