"""Pages to look at: one file of HTML each, which needs no network and no server.

- A page each: `job`, `jobs` (several), `scaling`, `report` (a group's).
- Parts of a job's page: `verdict`, `pictures`, `training`, `submitted`.
- Under all of them: `frame` (one file, with its content security policy) and `elements`, which
  escapes all text. `assets/` has their script and style, and uPlot.
- `write` makes the file, also of the picture for papers: `main_picture`.
"""
