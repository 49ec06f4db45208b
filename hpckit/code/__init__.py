"""The code of a run, kept as it was submitted: which files, where, and what changed since.

`project` is which folder, and its rules. `files` finds a project's files, by `ignore` in a git work
tree, and leaves out what `rules` and `secrets` say; `store` keeps them under a folder of runs, each
content once, as trees of hard links (`making` makes them by `writing`, `tree` is one as it stands);
`difference` compares a kept tree with the project's files now. Nothing of a project is run, git
neither: `hpckit.gitfiles`.
"""
