"""Several processes that train as one: what they agree on, and how weights and gradients are shared."""
