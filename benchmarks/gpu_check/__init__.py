"""The acceptance plan for a machine with a GPU: steps of their own, one record that can be sent."""
