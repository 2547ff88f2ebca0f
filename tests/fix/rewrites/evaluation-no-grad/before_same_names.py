# hot `outputs = net(images)` 0.3
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
net = nn.Linear(8, 2)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
trainloader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(2, (64,))), batch_size=16)
testloader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(2, (64,))), batch_size=16)

for epoch in range(3):
    net.train()
    for data in trainloader:
        inputs, labels = data
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()

    net.eval()
    test_loss = 0
    correct = 0
    for images, labels in testloader:
        outputs = net(images)
        test_loss += criterion(outputs, labels)
        correct += (outputs.argmax(1) == labels).sum().item()
    print(epoch, test_loss / len(testloader), correct)
