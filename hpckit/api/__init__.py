"""What Python programs, notebooks and the command line call; `hpckit` has its names.

Nothing in here prints: what a user should know comes back as values, or goes to the logger
`hpckit`, which is silent unless its program wants to hear it. Nothing changes the folder.
"""
