"""`hpckit scale`: which runs a study has, what each measured, and what follows of it. All pure.

A study is recorded in its runs' records alone. In reading order: `sizes` (which runs, what grows),
`timing` (what a run measured), `intervals`, `laws`, `study` (all figures); then what shows them:
`document` (JSON, CSV), `writing` (texts), `picture`.
"""
