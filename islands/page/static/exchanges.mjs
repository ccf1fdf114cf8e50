// Sentences and times of rounds: who came, how long they took, and what the overlap hides.

import { age, duration, percent, plural, whole } from "./format.mjs";

export function openRound(round, now_s, settings) {
    const asked = round.asked?.length ?? 0;
    const open = age(now_s - round.opened_s);
    const arrived = `${round.arrivals.size} of ${asked} arrived`;
    const quorum = quorumOf(settings, asked);
    const stage =
        quorum === null
            ? ""
            : round.arrivals.size < quorum
              ? `, ${quorum} needed`
              : ", in its grace";
    return `round ${round.number}: ${arrived}${stage}, open for ${open}`;
}

// Contributions that a round waits for; null where the syncer decides it anew for each ("auto").
function quorumOf(settings, asked) {
    if (!settings || settings.quorum === "auto") return null;
    return settings.quorum === null ? asked : Math.min(settings.quorum, asked);
}

export function lastRound(state, fragment) {
    const round = state.rounds.get(fragment.merging);
    if (!round) return "";
    return `round ${round.number}: ${round.participants.length} of ${round.askedCount} merged`;
}

export function overlapOf(settings) {
    return settings.overlap_steps === "auto"
        ? "the measured steps"
        : plural(settings.overlap_steps, "step");
}

// A measured τ is a quarter of the interval at most (`RunSettings.overlap_steps_max`).
function overlapMost({ overlap_steps, interval_steps }) {
    return overlap_steps === "auto" ? Math.max(2, Math.floor(interval_steps / 4)) : overlap_steps;
}

// τ steps of the median learner, unless the syncer has said what they hide.
export function hiddenTime(state) {
    const told = state.warnings.get("grace");
    if (told) return told.hidden_s;
    const overlap = state.run?.settings.overlap_steps;
    const times = [...state.learners.values()]
        .map((learner) => learner.figures?.step_time_s)
        .filter((time_s) => time_s > 0);
    if (overlap === undefined || !times.length) return null;
    return (
        overlapMost(state.run.settings) *
        times.sort((one, other) => one - other)[Math.floor(times.length / 2)]
    );
}

export function hiddenTold(state, points, hidden_s) {
    if (!points.length) return "";
    const times = points.map((point) => point[1]).sort((one, other) => one - other);
    const [half, most] = [
        times[Math.floor(times.length / 2)],
        times[Math.floor(times.length * 0.95)],
    ];
    const took = `Half of the last ${whole(times.length)} rounds took ${duration(half)} or less, and 95 % of them ${duration(most)}.`;
    if (hidden_s === null) return took;
    const over = times.filter((time_s) => time_s > hidden_s).length;
    const atMost = state.run?.settings.overlap_steps === "auto" ? "at most " : "";
    return `${took} The overlap hides ${atMost}${duration(hidden_s)}: ${percent(over / times.length, 0)} of the rounds took longer.`;
}

// The time at which a run had processed so many tokens, between two points of its pace.
export function timeOf(pace, tokens) {
    if (!pace.length) return 0;
    let low = 0;
    let high = pace.length - 1;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (pace[middle][1] < tokens) low = middle + 1;
        else high = middle;
    }
    const [at_s, reached] = pace[low];
    const [before_s, before] = pace[Math.max(0, low - 1)];
    if (reached <= before || tokens >= reached) return at_s;
    return before_s + ((tokens - before) / (reached - before)) * (at_s - before_s);
}
