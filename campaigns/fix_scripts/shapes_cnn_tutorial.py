# -*- coding: utf-8 -*-
"""
Training an image classifier (after the well known "60 minute" tutorial,
adapted to synthetic pictures of rectangles, discs and crosses)
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
np.random.seed(0)

classes = ("rectangle", "disc", "cross", "stripes")


def make_images(n):
    yy, xx = np.mgrid[0:48, 0:48]
    images = np.random.normal(0.0, 0.35, (n, 3, 48, 48)).astype(np.float32)
    labels = np.random.randint(0, len(classes), n)
    for i in range(n):
        cy, cx = np.random.randint(14, 34, 2)
        r = np.random.randint(6, 13)
        if labels[i] == 0:
            mask = (abs(yy - cy) < r) & (abs(xx - cx) < r)
        elif labels[i] == 1:
            mask = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
        elif labels[i] == 2:
            mask = ((abs(yy - cy) < 3) | (abs(xx - cx) < 3)) & (abs(yy - cy) < r) & (abs(xx - cx) < r)
        else:
            mask = (yy // 3 % 2 == 0) & (abs(xx - cx) < r) & (abs(yy - cy) < r)
        images[i] += mask * np.random.uniform(0.4, 1.0, (3, 1, 1)).astype(np.float32)
    return torch.from_numpy(images), torch.from_numpy(labels)


trainset = TensorDataset(*make_images(1600))
testset = TensorDataset(*make_images(1280))
trainloader = DataLoader(trainset, batch_size=32, shuffle=True)
testloader = DataLoader(testset, batch_size=64, shuffle=False)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 24, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(24)
        self.conv2 = nn.Conv2d(24, 48, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(48)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1 = nn.Linear(48 * 12 * 12, 96)
        self.fc2 = nn.Linear(96, len(classes))

    def forward(self, x):
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        x = self.pool(F.relu(self.bn2(self.conv2(x))))
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        return self.fc2(x)


net = Net()
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

for epoch in range(5):  # loop over the dataset multiple times
    net.train()
    running_loss = 0.0
    for i, data in enumerate(trainloader, 0):
        # get the inputs; data is a list of [inputs, labels]
        inputs, labels = data

        # zero the parameter gradients
        optimizer.zero_grad()

        # forward + backward + optimize
        outputs = net(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()

        # print statistics
        running_loss += loss.item()
        if i % 10 == 9:
            print("[%d, %5d] loss: %.5f" % (epoch + 1, i + 1, running_loss / 10))
            running_loss = 0.0

    # how does the network do on the test images?
    net.eval()
    test_loss = 0
    correct = 0
    total = 0
    for images, labels in testloader:
        outputs = net(images)
        test_loss += criterion(outputs, labels)
        predicted = outputs.argmax(1)
        total += labels.size(0)
        correct += (predicted == labels).sum().item()
    print("epoch %d test loss: %.5f accuracy: %d %%"
          % (epoch + 1, test_loss / len(testloader), 100 * correct // total))

print("Finished Training")
