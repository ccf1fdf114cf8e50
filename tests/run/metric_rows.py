"""Rows of metrics, and a run's folder that holds them."""

import json
from pathlib import Path


def step(at_s: float, learner: str, tokens: int, loss: float | None) -> dict[str, object]:
    told = {"kind": "step", "at_s": at_s, "learner": learner}
    return {**told, "run_tokens": tokens, "loss_smoothed": loss}


def happening(at_s: float, event: str, name: str = "a") -> dict[str, object]:
    return {"kind": "event", "at_s": at_s, "event": event, "name": name, "run_tokens": int(at_s)}


def evaluation(at_s: float, tokens: int, **figures: float | None) -> dict[str, object]:
    return {"kind": "evaluation", "at_s": at_s, "clock": 1.0, "tokens": tokens, **figures}


ROWS = [
    step(1.0, "a", 10, 4.0),
    {"kind": "merge", "at_s": 1.5, "merges": 1},
    step(2.0, "b", 20, 2.0),
    step(3.0, "b", 30, None),
    evaluation(3.0, 30, accuracy=0.5, share=None),
    step(4.0, "a", 40, 2.0),
    evaluation(4.0, 40, accuracy=0.75, share=3.0),
]


def run_folder(folder: Path, rows: list[dict[str, object]], name: str = "metrics.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(row, separators=(",", ":")) for row in rows]
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder
