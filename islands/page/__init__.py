"""The page of a run: live in a browser while the run goes on, and as a report in one file.

Nothing imports this room but the commands that offer it. The page is made of the run's tape
(docs/tape.md), of thinned curves, and of figures that the program itself has counted; it reads
files, and asks nothing of the actors. Viewers can change nothing.

- `told.py`: a run's settings and figures as the page is told them, live or from a folder
- `tapes.py`: the tapes of a run's folder as they grow, in the order of wall time
- `report.py`: one file that holds the page and the data of one or several runs
- `server.py`: the page on the hub's own HTTP server, with a websocket for each viewer
- `site_files.py`: the files of the page, served apart or put into one

`static/` has what runs in the browser, as plain ES modules without a build step: `reducer.mjs`
folds entries into a state, `questions.mjs` answers from it, `format.mjs` writes numbers; `main.mjs`
reads the data, `view.mjs` shows it, with the sentences of `exchanges.mjs` and the columns of
`learners.mjs`; `charts.mjs` and `lanes.mjs` draw. `vendor/` has uPlot (MIT).
"""
