# hot `student_loss.backward` 0.5 -> nothing
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 10))
student = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 10))
teacher.load_state_dict(teacher.state_dict())
teacher.eval()
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(256, 32), torch.randint(10, (256,))), batch_size=32)

for epoch in range(2):
    for x, y in loader:
        logits = student(x)
        wanted = teacher(torch.cat([logits, x[:, 10:]], dim=1))
        student_loss = F.cross_entropy(logits, y) + F.kl_div(
            F.log_softmax(logits, 1), F.softmax(wanted, 1), reduction="batchmean"
        )
        optimizer.zero_grad()
        student_loss.backward()
        optimizer.step()
