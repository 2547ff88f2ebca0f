"""Several processes that train as one: their agreements, and how they share weights and gradients."""
