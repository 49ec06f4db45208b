"""Advice: rules in YAML (`templates/advice/`) about what a job did with what it was given."""
