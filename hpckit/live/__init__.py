"""What `hpckit top` shows, as values and texts: pure, with any screen or none."""
