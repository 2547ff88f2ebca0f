# loader `loader = DataLoader`; workers 2 -> refused: `RandomCrop` draws random numbers
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

data = datasets.CIFAR10(".", transform=transforms.Compose([transforms.RandomCrop(28), transforms.ToTensor()]))
loader = DataLoader(data, batch_size=16)
for x, y in loader:
    x.sum()
