"""Doctor's texts in languages other than English: a file of causes for each, and a table of all other sentences."""
