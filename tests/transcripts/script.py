"""A transcript: a line that begins with `>` says what happens, under it stands what came out.

========================================  ========================================================
run fragments=2 interval_steps=4 ...      settings of the run; `step_s` and `pieces` of all learners
supervisor starts                         without one, whoever asks is admitted at once
syncer starts, syncer ends                from the journal, if there is one; `twin` is another place
ana starts, ana has compiled, ana dies    a process of a learner
ana steps, ana steps 3, ana diverges      her device completes steps; one whose loss is not finite
ana beats, syncer beats                   a sign of life is due
ana loses the syncer, ana is back         her link to the syncer
ana is led to twin                        somebody tells her another address of the syncer
ana sends not-finite                      what will be measured on her contributions from now on
eve watches                               an observer
operator pause, operator drain ana        a command
the run is to stop                        the proper end
wait 0.5                                  seconds pass
hold ana to syncer, release ...           a link, `disk of syncer` or `worker of syncer` waits
========================================  ========================================================

What follows `quietly` happens, and is not written.
"""

from pathlib import Path

from islands.protocol.settings.run import RunSettings
from tests.transcripts.company import Company
from tests.transcripts.people import CHECKS

MARK = "> "


def replay(text: str) -> str:
    """The transcript as it comes out now: its comments and its script, with fresh outcomes."""
    stage: Company | None = None
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            lines.append(line.rstrip())
        elif line.startswith(MARK):
            lines.append(line)
            words = line.removeprefix(MARK).split()
            if words[0] == "run":
                stage = company(words[1:])
                continue
            assert stage is not None, "a script begins with `run`"
            stage.quiet = words[0] == "quietly"
            obey(stage, words[1:] if stage.quiet else words)
            lines += stage.lines
            stage.lines = []
    return "\n".join(lines) + "\n"


def company(given: list[str]) -> Company:
    """Nobody is there yet; the settings are those given, and whole numbers or `all`."""
    told = dict(word.split("=") for word in given)
    step_s, pieces = float(told.pop("step_s", "0.1")), int(told.pop("pieces", "0"))
    numbers = {name: None if text == "all" else int(text) for name, text in told.items()}
    settings = RunSettings(run="run", **numbers)  # type: ignore[arg-type]  # none is of another type
    return Company(settings, step_s=step_s, pieces=pieces)


def obey(stage: Company, words: list[str]) -> None:
    match words:
        case ["supervisor", "starts"]:
            stage.start_supervisor()
        case ["syncer" | "twin" as name, "starts"]:
            stage.start_syncer(name)
        case ["syncer" | "twin" as name, "ends"]:
            stage.end_syncer(name)
        case ["operator", verb]:
            stage.command(verb)
        case ["operator", verb, target]:
            stage.command(verb, target)
        case ["the", "run", "is", "to", "stop"]:
            stage.stop("enough")
        case ["wait", seconds]:
            stage.wait(float(seconds))
        case ["hold", *route]:
            stage.hold(" ".join(route))
        case ["release", *route]:
            stage.release(" ".join(route))
        case [name, *verb]:
            _obey_peer(stage, name, verb)
        case _:
            raise AssertionError(words)
    stage.settle()


def _obey_peer(stage: Company, name: str, words: list[str]) -> None:
    match words:
        case ["starts"]:
            stage.start_learner(name)
        case ["watches"]:
            stage.start_observer(name)
        case ["has", "compiled"]:
            stage.compiled(name)
        case ["dies"]:
            stage.kill(name)
        case ["steps", *times]:
            for _ in range(int(times[0]) if times else 1):
                stage.step(name)
        case ["diverges"]:
            stage.step(name, finite=False)
        case ["beats"]:
            stage.beat(name)
        case ["loses", "the", "syncer"]:
            stage.cut(name)
        case ["is", "back"]:
            stage.heal(name)
        case ["is", "led", "to", address]:
            stage.lead(name, address)
        case ["sends", what]:
            stage.learner(name).check = CHECKS[what]
        case _:
            raise AssertionError([name, *words])


def files() -> list[Path]:
    return sorted(Path(__file__).parent.glob("*.txt"))
