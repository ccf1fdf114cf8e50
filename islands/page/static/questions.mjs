// Answers from the folded state: why a learner was not in a round, what wants attention, who was up.
// Pure, as the reducer is.

import { age, duration, listed, percent, plural } from "./format.mjs";

// --- one learner in one round -----------------------------------------------------------------

export const PLACES = {
    merged: { sign: "●", told: "merged" },
    arrived: { sign: "◐", told: "arrived" },
    asked: { sign: "○", told: "asked" },
    late: { sign: "✕", told: "late" },
    refused: { sign: "!", told: "refused" },
    excused: { sign: "−", told: "excused" },
    unasked: { sign: "·", told: "not asked" },
    absent: { sign: " ", told: "no member" },
};

const REFUSED = ["rejected", "stale"];

export function placeIn(state, name, round) {
    if (round.participants?.includes(name)) return "merged";
    const fate = round.fates.get(name);
    if (fate?.fate === "late") return "late";
    if (fate && REFUSED.includes(fate.fate)) return "refused";
    if (round.arrivals.has(name) || round.arrived?.includes(name)) return "arrived";
    if (round.excuses[name] !== undefined) return "excused";
    if (round.asked?.includes(name) || round.askedLater.has(name)) return round.closed_s === undefined ? "asked" : "late";
    if (Object.hasOwn(round.leftOut, name)) return "unasked";
    return laneAt(state.learners.get(name), round.opened_s) === "away" ? "absent" : "unasked";
}

const NOT_ASKED = {
    healing: "it was taking over the published values",
    compiling: "it was compiling",
    joining: "it was joining",
    suspect: "it had not been heard",
    stalled: "it took no step",
    "link down": "its link to the syncer was down",
    "two pulls unanswered": "it had two pulls that it had not answered",
    "no step since it adopted its base": "it had done no step since it adopted the last version",
    "its last contribution is merged and not yet adopted":
        "it had yet to adopt the version that holds its last contribution",
    "nothing was heard from it since it was pulled": "nothing was heard from it since it was asked",
    "has not adopted every fragment": "it was taking over the published values",
};

export function why(state, name, round) {
    const where = `round ${round.number} on fragment ${round.fragment}`;
    const fate = round.fates.get(name);
    const asked = round.asked?.includes(name) || round.arrivals.has(name);
    switch (placeIn(state, name, round)) {
        case "merged":
            return `${name} was in ${where}: ${itsPart(name, round)}.`;
        case "refused":
            return `${name} answered in time, but ${where} did not take it: ${fate.fate}, ${fate.reason}.`;
        case "late":
            return `${name} was asked, but ${lateness(name, round, fate)}.`;
        case "arrived":
            if (round.closed_s === undefined)
                return `${name} has answered; ${where} is still open.`;
            if (round.abandoned) {
                return `${name} answered, but ${where} was given up: ${round.abandoned}.`;
            }
            return round.merged_s === undefined
                ? `${name} answered in time; ${where} is closed and not merged yet.`
                : `${name} answered in time, but its contribution is not in the merge of ${where}.`;
        case "asked":
            return `${name} was asked, and has not answered yet; ${where} is still open.`;
        case "excused":
            return `${name} was asked, and excused: ${round.excuses[name] ?? "it declined, or was no longer there"}.`;
        case "unasked": {
            const reason = round.leftOut[name];
            if (reason)
                return `${name} was not asked for ${where}: ${NOT_ASKED[reason] ?? reason}.`;
            if (asked || round.asked) return `${name} was not asked for ${where}.`;
            return `${name} was not in ${where}. The tape of its syncer is not here, so the reason is not known.`;
        }
        default:
            return `${name} was not there when ${where} opened${absence(state, name, round)}.`;
    }
}

function itsPart(name, round) {
    const index = round.participants.indexOf(name);
    const total = round.weights.reduce((sum, weight) => sum + weight, 0);
    const share = total > 0 ? `, with ${percent(round.weights[index] / total)} of the weight` : "";
    const tokens = plural(round.tokens[index], "token");
    return `${tokens} of ${plural(round.steps[index], "step")}${share}`;
}

function lateness(name, round, fate) {
    const open_s = round.closed_s - round.opened_s;
    const closed = `the round closed after ${duration(open_s)}`;
    if (!fate) return `${closed} without its answer`;
    const late_s = fate.t - round.closed_s;
    const by =
        late_s > 0 ? `its answer came ${duration(late_s)} after that` : "its answer was late";
    return `${closed}, and ${by}`;
}

function absence(state, name, round) {
    const learner = state.learners.get(name);
    if (!learner) return "";
    const until = learner.segments.filter((segment) => segment.from_s <= round.opened_s).at(-1);
    if (!until) return ": it was admitted only later";
    const since = duration(round.opened_s - until.from_s);
    const reason = learner.gone === "evicted" && learner.why ? ` (${learner.why})` : "";
    return `: it had been away for ${since}${reason}`;
}

export function laneAt(learner, at_s) {
    if (!learner) return "away";
    let lane = "away";
    for (const segment of learner.segments) {
        if (segment.from_s > at_s) break;
        lane = segment.lane;
    }
    return lane;
}

// --- times ------------------------------------------------------------------------------------

// Seconds that a learner spent in each lane between two times.
export function timesIn(learner, from_s, to_s) {
    const times = {};
    learner.segments.forEach((segment, index) => {
        const begin_s = Math.max(from_s, segment.from_s);
        const end_s = Math.min(to_s, learner.segments[index + 1]?.from_s ?? to_s);
        if (end_s > begin_s) times[segment.lane] = (times[segment.lane] ?? 0) + end_s - begin_s;
    });
    return times;
}

// Uptime: the share of time, since the first step, in which at least one learner steps.
export function uptime(state) {
    const spans = [];
    const end_s = state.finished_s ?? state.now_s;
    for (const learner of state.learners.values()) {
        learner.segments.forEach((segment, index) => {
            if (segment.lane !== "stepping") return;
            spans.push([segment.from_s, learner.segments[index + 1]?.from_s ?? end_s]);
        });
    }
    spans.sort((one, other) => one[0] - other[0]);
    if (!spans.length || end_s <= spans[0][0]) return null;
    let covered_s = 0;
    let reached_s = spans[0][0];
    for (const [from_s, to_s] of spans) {
        covered_s += Math.max(0, Math.min(to_s, end_s) - Math.max(from_s, reached_s));
        reached_s = Math.max(reached_s, Math.min(to_s, end_s));
    }
    return covered_s / (end_s - spans[0][0]);
}

// --- what wants attention ---------------------------------------------------------------------

const ENDS = { tokens: "its budget of tokens is spent", time: "its time is over" };
const WELL_ENDED = /^(tokens|time|stopped by an operator|the money is spent|data)/;
const RECENT_ROUNDS = 30;
const LATE_SHARE = 0.2;
const YIELD_LOW = 0.75;
const LONG_AWAY_S = 600;

// What wants attention, the most pressing first: `level` is ill, warn or well; one is always told.
export function attention(state, now_s) {
    const found = [...troubles(state, now_s)];
    if (state.finished) {
        const level = WELL_ENDED.test(state.finished) ? "well" : "ill";
        found.unshift({
            level,
            text: `The run has ended: ${ENDS[state.finished] ?? state.finished}.`,
        });
    } else if (state.stopped) {
        const text = "The run was stopped before its end; the same command goes on with it.";
        return [{ level: "warn", text }];
    } else if (state.closing) {
        found.push({
            level: "well",
            text: `The run is ending: ${ENDS[state.closing] ?? state.closing}.`,
        });
    }
    if (!found.length) found.push({ level: "well", text: usual(state, now_s) });
    const order = { ill: 0, warn: 1, well: 2 };
    return found.sort((one, other) => order[one.level] - order[other.level]);
}

function* troubles(state, now_s) {
    const settings = state.run?.settings;
    const figures = state.figures;
    if (figures?.warning) yield { level: "ill", text: sentenceOf(figures.warning) };
    if (figures?.advice) yield { level: "warn", text: sentenceOf(figures.advice) };
    if (state.finished) return;
    const stuck = state.warnings.get("nothing");
    if (stuck) {
        yield {
            level: "ill",
            text: `Nothing has been merged for ${duration(now_s - stuck.t + stuck.for_s)}.`,
        };
    }
    for (const learner of state.learners.values()) {
        const told = troubleOf(learner, settings, now_s);
        if (told) yield told;
    }
    const away = [...state.learners.values()].filter((learner) => longAway(learner, now_s));
    if (away.length) {
        const names = listed(away.slice(0, 4).map((learner) => learner.name));
        const rest = away.length > 4 ? ` and ${plural(away.length - 4, "other")}` : "";
        yield {
            level: "warn",
            text: `Evicted more than 10 minutes ago, and not back: ${names}${rest}.`,
        };
    }
    if (state.paused) yield { level: "warn", text: "The run is paused by an operator." };
    const grace = state.warnings.get("grace");
    if (grace) {
        const takes = `an exchange takes ${duration(grace.exchange_s)}`;
        const hides = `the overlap hides ${duration(grace.hidden_s)}`;
        yield {
            level: "warn",
            text: `Rounds wait for nobody beyond their quorum: ${takes}, and ${hides}.`,
        };
    }
    yield* lateness_of(state);
    if (figures && figures.merges > 20 && figures.yield < YIELD_LOW && !figures.advice) {
        yield {
            level: "warn",
            text: `Only ${percent(figures.yield, 0)} of the tokens have reached the published model.`,
        };
    }
}

function longAway(learner, now_s) {
    return (
        learner.gone === "evicted" && !learner.gaveUp && now_s - learner.statusSince_s > LONG_AWAY_S
    );
}

function sentenceOf(text) {
    const whole = text.charAt(0).toUpperCase() + text.slice(1);
    return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

function troubleOf(learner, settings, now_s) {
    const silent_s = learner.figures?.silent_s;
    const patience = settings?.timing.patience ?? 1;
    if (learner.gaveUp) {
        return { level: "ill", text: `${learner.name} is not started again: ${learner.gaveUp}.` };
    }
    if (learner.leftOut && !learner.gone) {
        const reason = NOT_ASKED[learner.leftOut] ?? learner.leftOut;
        return { level: "ill", text: `${learner.name} steps, and is not asked: ${reason}.` };
    }
    if (learner.figures?.state === "diverged") {
        return { level: "ill", text: `The loss of ${learner.name} is not a finite number.` };
    }
    if (longAway(learner, now_s)) return null;
    if (learner.gone === "evicted") {
        const away = duration(now_s - learner.statusSince_s);
        return {
            level: "warn",
            text: `${learner.name} was evicted ${away} ago: ${learner.why}. The others go on without it.`,
        };
    }
    if (learner.status === "suspect") {
        const evict_s = (settings?.timing.evict_s ?? 5) * patience;
        const heard = typeof silent_s === "number" ? ` for ${duration(silent_s)}` : "";
        return {
            level: "warn",
            text: `${learner.name} has not been heard${heard}; after ${duration(evict_s)} it is evicted.`,
        };
    }
    if (learner.status === "stalled") {
        return {
            level: "warn",
            text: `${learner.name} is heard, but has taken no step for ${duration(now_s - learner.statusSince_s)}.`,
        };
    }
    return null;
}

function* lateness_of(state) {
    const closed = [...state.rounds.values()].filter(
        (round) => round.asked && round.merged_s !== undefined,
    );
    const recent = closed.slice(-RECENT_ROUNDS);
    if (recent.length < RECENT_ROUNDS) return;
    const late = new Map();
    for (const round of recent) {
        for (const [name, fate] of round.fates) {
            if (fate.fate === "late") late.set(name, (late.get(name) ?? 0) + 1);
        }
    }
    for (const [name, times] of late) {
        if (times / recent.length > LATE_SHARE) {
            yield {
                level: "warn",
                text: `${name} came too late for ${times} of the last ${recent.length} rounds.`,
            };
        }
    }
}

function usual(state, now_s) {
    const inLane = (lane) =>
        [...state.learners.values()].filter((learner) => learner.segments.at(-1)?.lane === lane);
    const stepping = inLane("stepping").length + inLane("waiting").length;
    const compiling = inLane("compiling");
    if (stepping === 0 && compiling.length) {
        const names = listed(compiling.slice(0, 4).map((learner) => learner.name));
        return compiling.length > 1
            ? `${names} compile; then they train.`
            : `${names} compiles; then it trains.`;
    }
    if (stepping === 0) return "The run is starting: no learner steps yet.";
    const merged = state.merges.at(-1);
    const last = merged ? `, and a fragment was merged ${age(now_s - merged.t)} ago` : "";
    const joining = inLane("starting").length + inLane("healing").length + compiling.length;
    const rest = joining
        ? `; ${plural(joining, "more")} ${joining === 1 ? "is" : "are"} on the way`
        : "";
    return `All is well: ${plural(stepping, "learner trains", "learners train")}${last}${rest}.`;
}
