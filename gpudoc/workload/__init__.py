"""The workload: cfg.yaml -> model, data, loss, optimizer and the step; and the built-in quickstart and images."""
