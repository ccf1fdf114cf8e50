// The columns of the learners' table: what each learner did, and what became of its work.

import { element, setData, setText } from "./elements.mjs";
import { NONE, age, bytes, count, duration, number, percent, whole } from "./format.mjs";
import { timesIn } from "./questions.mjs";
import { OVER, laneOf } from "./reducer.mjs";

export function learnerColumns(state, now_s, limits, recent) {
    const figure = (title, value) => ({
        title,
        right: true,
        value: (learner) => value(learner.figures ?? {}, learner),
    });
    return [
        { title: "learner", head: true, fill: fillName },
        { title: "state, incarnation", fill: (cell, learner) => fillState(cell, learner) },
        figure("steps", (row) => whole(row.steps)),
        figure("tokens", (row) => whole(row.tokens)),
        figure("tokens/s", (row) => count(row.tokens_per_s)),
        figure("loss", (row) => [number(row.loss), ...metricsOf(row)].join(", ")),
        figure("step", (row) => (row.step_time_s ? duration(row.step_time_s) : NONE)),
        figure("heartbeat", (row) => heartbeat(row, limits, state)),
        figure("in last rounds", (_, learner) => tookPart(learner, recent)),
        figure("last merged", (_, learner) =>
            learner.merged_s && !state.finished ? `${age(now_s - learner.merged_s)} ago` : NONE,
        ),
        figure("sent", (row) => bytes(row.bytes_up)),
        figure("received", (row) => bytes(row.bytes_down)),
        figure("away", (_, learner) => share(learner, state, now_s, "away")),
        { title: "fates of its contributions", wide: true, value: fatesOf },
    ];
}

// What the steps of its task report beside the loss.
function metricsOf(row) {
    return Object.entries(row.metrics ?? {}).map(([name, value]) => `${name} ${number(value)}`);
}

function fillName(cell, learner) {
    if (!cell.firstChild) cell.append(element("span"), element("small", { className: "muted" }));
    setText(cell.firstChild, learner.name);
    setText(cell.lastChild, learner.figures?.hardware ?? "");
}

function fillState(cell, learner) {
    if (!cell.firstChild) cell.append(element("span", { className: "dot" }), element("span"));
    const state = learner.figures?.state ?? learner.segments.at(-1)?.lane ?? "";
    const over = learner.segments.at(-1)?.lane === OVER;
    setData(cell, "lane", over ? OVER : (laneOf(state) ?? "away"));
    const shown = learner.leftOut && !learner.gone ? `not asked: ${learner.leftOut}` : state;
    setText(cell.lastChild, learner.incarnation ? `${shown}, ${learner.incarnation}` : shown);
}

// The age of the last heartbeat beside the ages at which a learner is suspect, and is evicted.
function heartbeat(row, limits, state) {
    if (typeof row.silent_s !== "number" || state.finished) return NONE;
    const allowed = limits
        ? ` of ${limits.map((limit) => number(limit, limit < 10 ? 1 : 0)).join(" / ")} s`
        : "";
    return `${row.silent_s.toFixed(1)} s${allowed}`;
}

function tookPart(learner, recent) {
    if (!recent.length) return NONE;
    const times = recent.filter((round) => round.participants.includes(learner.name)).length;
    return `${times} of ${recent.length}`;
}

function share(learner, state, now_s, lane) {
    const from_s = learner.segments[0]?.from_s;
    const to_s = state.finished ? (state.finished_s ?? state.now_s) : now_s;
    if (from_s === undefined || to_s <= from_s) return NONE;
    return percent((timesIn(learner, from_s, to_s)[lane] ?? 0) / (to_s - from_s));
}

function fatesOf(learner) {
    const fates = [...learner.fates.values()].sort((one, other) => other.count - one.count);
    const texts = fates.slice(0, 4).map((one) => `${whole(one.count)} ${one.fate}${reasonOf(one)}`);
    if (fates.length > 4) texts.push(`${fates.length - 4} more reasons`);
    return texts.join(", ") || NONE;
}

// Late is late because the round has closed; every other reason says something.
function reasonOf(one) {
    return one.reason && one.fate !== "late" ? ` (${one.reason})` : "";
}
