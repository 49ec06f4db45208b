"""What became of jobs, for people and programs: gathered from all sources, and shown."""
