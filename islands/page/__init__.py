"""The page of a run: live in a browser while the run goes on, and as a report in one file.

Nothing imports this room but the commands that offer it. The page is made of the run's tape
(docs/tape.md), of thinned curves, and of figures that the program itself has counted; it reads
files, and asks nothing of the actors. Viewers can change nothing.

`static/` has what runs in the browser, as plain ES modules without a build step: `reducer.mjs`
folds entries into a state, `questions.mjs` answers from it, `format.mjs` writes numbers; `main.mjs`
reads the data, `view.mjs` shows it, with the sentences of `exchanges.mjs` and the columns of
`learners.mjs`; `charts.mjs` and `lanes.mjs` draw. `vendor/` has uPlot (MIT).
"""
