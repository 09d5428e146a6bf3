"""Text that other tools wrote, read as evidence. A file is recognised by what is in it."""
