// Answers from the tape as tables: why a learner was not in a round, and what wants attention.

import assert from "node:assert/strict";
import { test } from "node:test";

import { openRound } from "../../islands/page/static/exchanges.mjs";
import * as format from "../../islands/page/static/format.mjs";
import { attention, placeIn, uptime, why } from "../../islands/page/static/questions.mjs";
import { begin, reduce } from "../../islands/page/static/reducer.mjs";

const at = (t, kind, fields = {}) => ({ t, actor: "syncer", kind, ...fields });
const fold = (entries) => entries.reduce(reduce, begin());
const admitted = (t, name) =>
    at(t, "admitted", { actor: "supervisor", name, role: "learner", incarnation: "1.1" });
const progress = (t, name, phase) => ({ t, actor: name, kind: "progress", phase });

const OPENED = [
    ...["a", "b", "c", "d", "e", "f"].map((name, index) => admitted(index / 10, name)),
    at(3, "evicted", {
        actor: "supervisor",
        name: "f",
        incarnation: "1.1",
        reason: "not heard for 5 s",
    }),
    at(10, "opened", {
        round: 4,
        fragment: 1,
        asked: ["a", "b", "c", "d"],
        left_out: { e: "two pulls unanswered" },
    }),
    at(10.2, "arrived", { ticket: "a/1.1@1:4", tokens: 8 }),
];
const CLOSED = [
    ...OPENED,
    at(11, "closed", {
        round: 4,
        fragment: 1,
        arrived: ["a", "d"],
        excused: { c: "nothing to answer with" },
        waiting: ["b"],
        share: 0.5,
        staleness: 0,
    }),
];
const MERGED = [
    ...CLOSED,
    at(11, "fate", {
        ticket: "d/1.1@1:4",
        fragment: 1,
        fate: "stale",
        reason: "base 1.1 is too old",
        tokens: 8,
    }),
    at(11.1, "merged", {
        ...{
            round: 4,
            fragment: 1,
            version: "1.3",
            contributions: 1,
            participants: ["a"],
            tokens: [8],
            steps: [2],
        },
        ...{ weights: [3], asked: 4, learners: 5, opened_s: 0, closed_s: 1 },
    }),
    at(11.25, "fate", {
        ticket: "b/1.1@1:4",
        fragment: 1,
        fate: "late",
        reason: "the round has closed",
        tokens: 8,
    }),
];

const WHY = [
    [
        MERGED,
        "a",
        "merged",
        "a was in round 4 on fragment 1: 8 tokens of 2 steps, with 100.0 % of the weight.",
    ],
    [
        MERGED,
        "b",
        "late",
        "b was asked, but the round closed after 1.0 s, and its answer came 250 ms after that.",
    ],
    [CLOSED, "b", "late", "b was asked, but the round closed after 1.0 s without its answer."],
    [
        OPENED,
        "b",
        "asked",
        "b was asked, and has not answered yet; round 4 on fragment 1 is still open.",
    ],
    [OPENED, "a", "arrived", "a has answered; round 4 on fragment 1 is still open."],
    [MERGED, "c", "excused", "c was asked, and excused: nothing to answer with."],
    [
        MERGED,
        "d",
        "refused",
        "d answered in time, but round 4 on fragment 1 did not take it: stale, base 1.1 is too old.",
    ],
    [
        MERGED,
        "e",
        "unasked",
        "e was not asked for round 4 on fragment 1: it had two pulls that it had not answered.",
    ],
    [
        MERGED,
        "f",
        "absent",
        "f was not there when round 4 on fragment 1 opened: it had been away for 7.0 s (not heard for 5 s).",
    ],
];

for (const [entries, name, place, sentence] of WHY) {
    test(`why: ${place}`, () => {
        const state = fold(entries);
        const round = state.rounds.get("1:4");
        assert.equal(placeIn(state, name, round), place);
        assert.equal(why(state, name, round), sentence);
    });
}

const TIMING = { patience: 2, suspect_s: 3, evict_s: 5 };
const RUN = at(0, "page.run", { settings: { timing: TIMING }, fragments: [] });
const figures = (more = {}) =>
    at(20, "page.figures", {
        merges: 0,
        yield: 1,
        bytes_up: 0,
        bytes_down: 0,
        learners: [],
        ...more,
    });
const STEPPING = [RUN, admitted(1, "a"), progress(2, "a", "stepping")];

const ATTENTION = [
    ["starting", [], "well", "The run is starting: no learner steps yet."],
    [
        "compiling",
        [RUN, admitted(1, "a"), progress(2, "a", "compiling")],
        "well",
        "a compiles; then it trains.",
    ],
    ["well", STEPPING, "well", "All is well: 1 learner trains."],
    [
        "suspect",
        [...STEPPING, at(18, "status", { actor: "supervisor", name: "a", status: "suspect" })],
        "warn",
        "a has not been heard; after 10.0 s it is evicted.",
    ],
    [
        "silence",
        [
            ...STEPPING,
            at(18, "status", { name: "a", status: "suspect" }),
            figures({ learners: [{ name: "a", state: "suspect", silent_s: 7 }] }),
        ],
        "warn",
        "a has not been heard for 7.0 s; after 10.0 s it is evicted.",
    ],
    [
        "evicted",
        [...STEPPING, at(14, "evicted", { name: "a", incarnation: "1.1", reason: "silent" })],
        "warn",
        "a was evicted 6.0 s ago: silent. The others go on without it.",
    ],
    [
        "long away",
        [...STEPPING, at(14 - 700, "evicted", { name: "a", incarnation: "1.1", reason: "silent" })],
        "warn",
        "Evicted more than 10 minutes ago, and not back: a.",
    ],
    [
        "given up",
        [...STEPPING, at(14, "gave_up", { name: "a", reason: "it ended too often" })],
        "ill",
        "a is not started again: it ended too often.",
    ],
    [
        "nothing merged",
        [...STEPPING, at(15, "nothing_merged", { for_s: 30, because: {} })],
        "ill",
        "Nothing has been merged for 35.0 s.",
    ],
    [
        "a warning of the hub",
        [...STEPPING, figures({ warning: "the disk is full" })],
        "ill",
        "The disk is full.",
    ],
    [
        "low yield",
        [...STEPPING, figures({ merges: 50, yield: 0.5 })],
        "warn",
        "Only 50 % of the tokens have reached the published model.",
    ],
    [
        "ended",
        [...STEPPING, at(19, "finished", { reason: "tokens" })],
        "well",
        "The run has ended: its budget of tokens is spent.",
    ],
    [
        "failed",
        [...STEPPING, at(19, "finished", { reason: "the loss of all learners is no number" })],
        "ill",
        "The run has ended: the loss of all learners is no number.",
    ],
    [
        "stopped",
        [...STEPPING, figures({ final: true })],
        "warn",
        "The run was stopped before its end; the same command goes on with it.",
    ],
];

for (const [name, entries, level, sentence] of ATTENTION) {
    test(`attention: ${name}`, () => {
        const [first] = attention(fold(entries), 20);
        assert.deepEqual([first.level, first.text], [level, sentence]);
    });
}

test("a merge ends the alarm that nothing is merged", () => {
    const stuck = at(15, "nothing_merged", { for_s: 30, because: {} });
    const state = fold([...STEPPING, stuck, at(16, "committed", { fragment: 0, version: "1.1" })]);
    assert.equal(attention(state, 20)[0].level, "well");
});

test("uptime is the share of time in which at least one learner steps", () => {
    const state = fold([
        ...[
            admitted(0, "a"),
            admitted(0, "b"),
            progress(10, "a", "stepping"),
            progress(14, "b", "stepping"),
        ],
        ...[
            progress(16, "a", "waiting"),
            progress(18, "b", "waiting"),
            at(20, "finished", { reason: "tokens" }),
        ],
    ]);
    assert.equal(uptime(state), 0.8);
    assert.equal(uptime(begin()), null);
});

const TEXTS = [
    ["count", 1234, "1,234"],
    ["count", 99_999, "99,999"],
    ["count", 123_456, "123.5 k"],
    ["count", 8_900_000, "8.9 M"],
    ["whole", 999_552, "999,552"],
    ["bytes", 999, "999 B"],
    ["bytes", 1_612_564_962, "1.6 GB"],
    ["duration", 0.085, "85 ms"],
    ["duration", 12.34, "12.3 s"],
    ["duration", 303, "5:03"],
    ["duration", 7503, "2:05:03"],
    ["duration", 266_700, "3 d 2:05"],
    ["percent", 0.9978, "99.8 %"],
    ["number", 1.5381, "1.538"],
    ["number", 0.00001, "1.00e-5"],
    ["short", 8, "8"],
    ["short", 2.5, "2.5"],
    ...["count", "whole", "bytes", "duration", "percent", "number"].map((name) => [
        name,
        null,
        "–",
    ]),
    ...["count", "whole", "bytes", "duration", "percent", "number"].map((name) => [name, NaN, "–"]),
];

for (const [name, value, text] of TEXTS) {
    test(`${name} of ${value}`, () => assert.equal(format[name](value), text));
}

test("an axis has no zeros that say nothing", () => {
    assert.equal(format.short(200_000, format.count), "200 k");
    assert.equal(format.short(0.25), "0.25");
});

test("an open round tells its quorum, and when only its grace is left", () => {
    const [round] = fold(OPENED.slice(0, -1)).rounds.values();
    const told = (quorum, arrived) => {
        const arrivals = new Map(["a", "b", "c", "d"].slice(0, arrived).map((name) => [name, {}]));
        return openRound({ ...round, arrivals }, round.opened_s + 2, { quorum });
    };
    assert.match(told(2, 1), /: 1 of 4 arrived, 2 needed, open for 2.0 s$/);
    assert.match(told(2, 2), /: 2 of 4 arrived, in its grace, /);
    assert.match(told(null, 3), /: 3 of 4 arrived, 4 needed, /);
    assert.match(told(9, 3), /, 4 needed, /);
    assert.match(told("auto", 1), /: 1 of 4 arrived, open for /);
});
