"""All the GPUs of all the nodes: one record, one verdict."""
