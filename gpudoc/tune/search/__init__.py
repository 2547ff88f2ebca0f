"""The parent decides: which trial comes next, what it may cost, and what follows from its answer."""
