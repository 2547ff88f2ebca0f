"""What doctor says in other languages than English: a file of causes for each, and a table of all other sentences."""
