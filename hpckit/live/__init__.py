"""What `hpckit top` shows, as values and texts: pure, with any screen or none.

- `model`: jobs and lines; what is filtered, sorted and folded.
- `texts`: cells, and a whole frame.
"""
