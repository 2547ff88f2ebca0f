"""The causes: the title, meaning, effect, fix and source of each; a file per family."""
