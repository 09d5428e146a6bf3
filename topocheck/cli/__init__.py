"""The command line: one file a command. It composes and prints nothing itself."""
