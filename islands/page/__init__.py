"""The page of a run: live in a browser while the run goes on, and as a report in one file.

It is made of the run's tape (docs/tape.md), of thinned curves, and of figures that the program
itself has counted. `static/` has what runs in the browser: `reducer.mjs` folds entries into a
state, `questions.mjs` answers from it, `main.mjs` reads the data, and `view.mjs` shows it.
"""
