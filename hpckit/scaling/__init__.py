"""`hpckit scale`: which runs a study has, what each measured, and what follows of it. All pure."""
