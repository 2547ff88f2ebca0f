# loader `loader = Data`; workers 2 -> refused: each worker reads another part
from datasets import load_dataset
from torch.utils.data import DataLoader

data = load_dataset("wikitext", split="train", streaming=True)
loader = DataLoader(data, batch_size=16)
for batch in loader:
    print(len(batch))
