"""A process and the system around it: its parent, its children, its memory, its cgroup, its command line."""
