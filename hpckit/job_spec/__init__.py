"""What was asked for: `JobSpec`, and the words that its options are written in."""
