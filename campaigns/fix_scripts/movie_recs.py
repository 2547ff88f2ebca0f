"""Matrix factorisation for ratings -- port of our old Keras model.

    user = Embedding(n_users, 48)   item = Embedding(n_items, 48)
    Dot + biases, optimizer="sgd", loss="mse"
"""
import numpy as np
import torch
from torch import nn


class RecommenderNet(nn.Module):
    def __init__(self, num_users, num_items, embedding_size):
        super().__init__()
        self.user_embedding = nn.Embedding(num_users, embedding_size)
        self.user_bias = nn.Embedding(num_users, 1)
        self.item_embedding = nn.Embedding(num_items, embedding_size)
        self.item_bias = nn.Embedding(num_items, 1)
        # keras: he_normal is far too wide for a dot product
        nn.init.normal_(self.user_embedding.weight, std=0.1)
        nn.init.normal_(self.item_embedding.weight, std=0.1)
        nn.init.zeros_(self.user_bias.weight)
        nn.init.zeros_(self.item_bias.weight)

    def forward(self, inputs):
        users, items = inputs[:, 0], inputs[:, 1]
        u = self.user_embedding(users)
        v = self.item_embedding(items)
        dot = (u * v).sum(dim=1)
        return dot + self.user_bias(users).squeeze(1) + self.item_bias(items).squeeze(1)


class KerasLike:
    """compile / fit / evaluate, so that the rest of the project stays the same"""

    def __init__(self, net):
        self.net = net

    def compile(self, learning_rate, loss):
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=learning_rate)
        self.loss = loss

    def train_on_batch(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def evaluate(self, x, y, batch_size):
        self.net.eval()
        total = 0.0
        with torch.no_grad():
            for i in range(0, len(x), batch_size):
                xb, yb = x[i:i + batch_size], y[i:i + batch_size]
                total += self.loss(self.net(xb), yb).item() * len(xb)
        self.net.train()
        return total / len(x)

    def fit(self, x, y, batch_size, epochs, validation_data, verbose_every=10):
        n = len(x)
        for epoch in range(epochs):
            order = torch.randperm(n)
            for b, i in enumerate(range(0, n - batch_size + 1, batch_size)):
                idx = order[i:i + batch_size]
                loss = self.train_on_batch(x[idx], y[idx])
                if b % verbose_every == 0:
                    print(f"Epoch {epoch + 1}/{epochs} batch {b} - loss: {loss:.6f}")
            val = self.evaluate(*validation_data, batch_size)
            print(f"Epoch {epoch + 1}/{epochs} - val_loss: {val:.6f}")


def make_ratings(num_users, num_items, n, seed):
    rng = np.random.default_rng(seed)
    # popular items and busy users, as in the real log
    users = (num_users * rng.random(n) ** 2).astype(np.int64)
    items = (num_items * rng.random(n) ** 3).astype(np.int64)
    taste = rng.integers(0, 8, num_users)
    genre = rng.integers(0, 8, num_items)
    quality = rng.normal(0, 0.7, num_items)
    mood = rng.normal(0, 0.4, num_users)
    score = 0.5 + 1.2 * (taste[users] == genre[items]) + quality[items] + mood[users]
    score += rng.normal(0, 0.3, n)
    x = torch.from_numpy(np.stack([users, items], axis=1))
    return x, torch.from_numpy(score.astype(np.float32))


if __name__ == "__main__":
    torch.manual_seed(1234)
    NUM_USERS, NUM_ITEMS = 400_000, 60_000
    x, y = make_ratings(NUM_USERS, NUM_ITEMS, 520_000, seed=1234)
    x_train, y_train = x[:480_000], y[:480_000]
    x_val, y_val = x[480_000:], y[480_000:]

    model = KerasLike(RecommenderNet(NUM_USERS, NUM_ITEMS, 48))
    model.compile(learning_rate=20.0, loss=nn.MSELoss())
    model.fit(x_train, y_train, batch_size=4096, epochs=3, validation_data=(x_val, y_val))
