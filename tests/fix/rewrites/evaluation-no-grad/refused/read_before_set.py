# hot `outputs = net(images)` 0.3 -> refused: may go into a backward later
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
net = nn.Linear(8, 2)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
trainloader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(2, (64,))), batch_size=16)
testloader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(2, (64,))), batch_size=16)
outputs = torch.zeros(16, 2)

for epoch in range(3):
    net.train()
    for inputs, labels in trainloader:
        optimizer.zero_grad()
        penalty = outputs.square().mean()
        outputs = net(inputs)
        loss = criterion(outputs, labels) + penalty
        loss.backward()
        optimizer.step()
        outputs = outputs.detach()

    net.eval()
    for images, labels in testloader:
        outputs = net(images)
        print(epoch, criterion(outputs, labels).item())
