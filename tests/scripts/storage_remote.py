"""Samples come over a socket from an object store that answers slowly."""

import socket
import threading
import time

import numpy as np
import torch
from parts import conv, threads, train
from torch.utils.data import DataLoader, Dataset

SIZE = 3 * 64 * 64


def serve(connection):
    with connection:
        while connection.recv(1):
            time.sleep(0.008)
            connection.sendall(bytes(SIZE))


def listen(server):
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


class Remote(Dataset):
    def __init__(self, port):
        self.port, self.connection = port, None

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        if self.connection is None:
            self.connection = socket.create_connection(("127.0.0.1", self.port))
        self.connection.sendall(b"?")
        data = b""
        while len(data) < SIZE:
            data += self.connection.recv(SIZE - len(data))
        return torch.from_numpy(np.frombuffer(data, np.uint8).reshape(3, 64, 64) / np.float32(255)), index % 10


threads()
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=listen, args=(server,), daemon=True).start()
train(conv(), DataLoader(Remote(server.getsockname()[1]), batch_size=16, num_workers=2, persistent_workers=True))
