"""A run's folder: its record, its ranks' records, its logs and metrics; finding runs again."""
