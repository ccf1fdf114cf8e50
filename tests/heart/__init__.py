"""The heart of the program, watched in ordinary runs: is everybody merged, does the default train?

    python -m tests.heart              the real runs and the one on the virtual clock: `make heart`
    python -m tests.heart RUN ...      the figures of run folders that are there

Each role's tests may be green while the two together leave a healthy learner out, and while the
default trains worse than last week. Only a whole run shows that: real ones, in real time, without a
fault, and one on the virtual clock whose result is the same each time.
"""
