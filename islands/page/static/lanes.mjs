// Lanes over time: what each learner did, merges as ticks, and marks of what happened.

import { clock, duration } from "./format.mjs";
import { OVER, STATES } from "./reducer.mjs";
import { colour, onTheme } from "./theme.mjs";
import { element, setText, syncChildren } from "./elements.mjs";

const ROW = 30;
const BAR = 12;
const TOP = 6;
const AXIS = 24;
const LANES_MOST = 40;
const NEAR_PX = 7;

export const SHAPES = {
    fault: "fault",
    evicted: "eviction",
    suspect: "not heard",
    checkpoint: "checkpoint",
    extended: "extension",
    start: "start, pause or end",
};

export class Lanes {
    constructor(host, legend, readout) {
        this.names = element("ul");
        this.canvas = element("canvas", { role: "img" });
        this.readout = readout;
        this.hits = [];
        host.append(this.names, element("div", {}, this.canvas));
        legend.append(...STATES.map((lane) => key(lane, (pen) => bar(pen, 1, 4, 20, lane))));
        legend.append(key("a merge that it was in", (pen) => tick(pen, 9, 6)));
        const shapes = Object.entries(SHAPES);
        legend.append(
            ...shapes.map(([shape, told]) => key(told, (pen) => glyph(pen, 9, 8, shape))),
        );
        this.canvas.addEventListener("pointermove", (event) => this.tell(event));
        this.canvas.addEventListener("pointerleave", () => setText(this.readout, ""));
        new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
        onTheme(() => this.draw());
    }

    // rows: [{name, segments, merges: [t]}], the first one is that of the run; marks: [{t, name, …}].
    show(rows, marks, from_s, to_s, begun_s) {
        const more = rows.length - LANES_MOST;
        Object.assign(this, { rows: rows.slice(0, LANES_MOST), marks, from_s, to_s, begun_s });
        const names = this.rows.map((row) => row.name);
        if (more > 0) names.push(`and ${more} more`);
        syncChildren(
            this.names,
            names,
            () => element("li"),
            (item, name) => {
                setText(item, name);
                item.title = name;
                item.style.lineHeight = `${ROW}px`;
            },
        );
        this.draw();
    }

    draw() {
        const width = this.canvas.parentElement.clientWidth;
        if (!this.rows || width === 0) return;
        const height = this.rows.length * ROW + AXIS;
        const scale = window.devicePixelRatio || 1;
        Object.assign(this.canvas, { width: width * scale, height: height * scale });
        this.canvas.style.height = `${height}px`;
        const pen = this.canvas.getContext("2d");
        pen.scale(scale, scale);
        this.hits = [];
        const span_s = Math.max(1e-3, this.to_s - this.from_s);
        const place = (at_s) => ((at_s - this.from_s) / span_s) * width;
        this.rows.forEach((row, index) => this.drawRow(pen, row, index * ROW, place, width));
        drawAxis(pen, this.rows.length * ROW, width, this, place);
        this.canvas.setAttribute("aria-label", this.summary());
    }

    drawRow(pen, row, top, place, width) {
        row.segments.forEach((segment, index) => {
            const begin = Math.max(0, place(segment.from_s));
            const end = Math.min(
                width,
                place(row.segments[index + 1]?.from_s ?? row.to_s ?? this.to_s),
            );
            const unseen = end <= 0 || begin >= width || end - begin < 0.2;
            if (unseen || segment.lane === OVER) return;
            bar(pen, begin, top + TOP, Math.max(1, end - begin), segment.lane);
            this.hits.push({
                top,
                begin,
                end,
                told: `${row.name} ${segment.lane}`,
                segment,
                row,
                index,
            });
        });
        let last = -1;
        for (const at_s of row.merges) {
            const x = Math.round(place(at_s));
            if (x === last || x < 0 || x > width) continue;
            tick(pen, x, top + TOP + BAR + 2);
            last = x;
        }
        const own = this.marks.filter((mark) => (row.ofRun ? mark.ofRun : mark.name === row.name));
        for (const mark of own) {
            const x = place(mark.t);
            if (x < -1 || x > width + 1) continue;
            const inside = Math.min(width - 6, Math.max(6, x));
            glyph(pen, inside, top + TOP + BAR / 2, mark.shape);
            this.hits.push({ top, begin: x - NEAR_PX, end: x + NEAR_PX, told: mark.text, mark });
        }
    }

    tell(event) {
        const box = this.canvas.getBoundingClientRect();
        const [x, y] = [event.clientX - box.left, event.clientY - box.top];
        const near = this.hits.filter(
            (hit) => y >= hit.top && y < hit.top + ROW && x >= hit.begin && x <= hit.end,
        );
        const at_s = this.from_s + (x / box.width) * (this.to_s - this.from_s);
        const marks = near.filter((hit) => hit.mark).map((hit) => hit.told);
        const lanes = near
            .filter((hit) => hit.segment)
            .map((hit) => `${hit.told} for ${duration(lasting(hit, this.to_s))}`);
        const told = [...marks.slice(0, 3), ...lanes.slice(-1)].join("; ");
        const at = `${clock(at_s)}, ${duration(Math.max(0, at_s - this.begun_s))} after the start`;
        setText(this.readout, told ? `${told} (${at})` : at);
    }

    summary() {
        const last = this.rows.map((row) =>
            `${row.name} ${row.segments.at(-1)?.lane ?? ""}`.trim(),
        );
        return `Lanes over time. Now: ${last.slice(0, 12).join(", ")}`;
    }
}

function lasting(hit, to_s) {
    return (hit.row.segments[hit.index + 1]?.from_s ?? hit.row.to_s ?? to_s) - hit.segment.from_s;
}

// --- what is drawn ----------------------------------------------------------------------------

// A lane has a colour and a form of its own: full, striped, dotted, hollow.
function bar(pen, x, y, width, lane) {
    const paint = colour(`lane-${lane}`);
    pen.save();
    pen.fillStyle = paint;
    pen.strokeStyle = paint;
    if (lane === "away") {
        pen.lineWidth = 1.5;
        pen.globalAlpha = 0.22;
        pen.fillRect(x, y, width, BAR);
        pen.globalAlpha = 1;
        stripes(pen, x, y, width, 7, 0, 1.4);
    } else {
        pen.fillRect(x, y, width, BAR);
        if (lane === "compiling") stripes(pen, x, y, width, 6, 5, 1.6, colour("ground"));
        if (lane === "healing") stripes(pen, x, y, width, 5, 0, 1.4, colour("ground"));
        if (lane === "waiting") {
            pen.fillStyle = colour("ground");
            pen.fillRect(x, y + BAR / 2 - 1, width, 2);
        }
        if (lane === "starting") pen.clearRect(x, y + 2, width, BAR - 4);
    }
    pen.restore();
}

function stripes(pen, x, y, width, every, lean, thick, paint) {
    pen.beginPath();
    pen.rect(x, y, width, BAR);
    pen.clip();
    if (paint) pen.strokeStyle = paint;
    pen.lineWidth = thick;
    pen.beginPath();
    // stripes stand still while a bar grows: they begin at multiples of their distance
    for (let at = Math.floor(x / every) * every - BAR; at < x + width + BAR; at += every) {
        pen.moveTo(at, y + BAR);
        pen.lineTo(at + lean + (lean ? 6 : 0), y);
    }
    pen.stroke();
}

function tick(pen, x, y) {
    pen.fillStyle = colour("muted");
    pen.fillRect(x, y, 1, 5);
}

function glyph(pen, x, y, shape) {
    pen.save();
    pen.translate(x, y);
    pen.lineWidth = 2;
    pen.lineJoin = "round";
    const ink = colour("ink");
    pen.strokeStyle = colour("ground");
    pen.fillStyle = ink;
    pen.beginPath();
    if (shape === "evicted") {
        polygon(pen, [
            [-6, -5],
            [6, -5],
            [0, 6],
        ]);
    } else if (shape === "suspect") {
        polygon(pen, [
            [0, -6],
            [6, 0],
            [0, 6],
            [-6, 0],
        ]);
        pen.fillStyle = colour("ground");
        pen.strokeStyle = ink;
    } else if (shape === "checkpoint") {
        polygon(pen, [
            [-4, -4],
            [4, -4],
            [4, 4],
            [-4, 4],
        ]);
    } else if (shape === "extended") {
        polygon(pen, [
            [-4, -6],
            [6, 0],
            [-4, 6],
        ]);
    } else if (shape === "start") {
        pen.rect(-1.5, -8, 3, 16);
    } else {
        for (const [style, width] of [
            [colour("ground"), 5],
            [ink, 2.4],
        ]) {
            pen.beginPath();
            pen.moveTo(-4, -4);
            pen.lineTo(4, 4);
            pen.moveTo(4, -4);
            pen.lineTo(-4, 4);
            pen.strokeStyle = style;
            pen.lineWidth = width;
            pen.stroke();
        }
        pen.restore();
        return;
    }
    pen.stroke();
    pen.fill();
    pen.restore();
}

function polygon(pen, corners) {
    corners.forEach(([x, y], index) => (index ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.closePath();
}

const STEPS_S = [0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 43200, 86400, 604800];

function drawAxis(pen, top, width, view, place) {
    const wanted_s = (view.to_s - view.from_s) / Math.max(2, width / 110);
    const step_s = STEPS_S.find((step) => step >= wanted_s) ?? STEPS_S.at(-1);
    pen.fillStyle = colour("muted");
    pen.font = "12px system-ui, sans-serif";
    const first = Math.ceil((view.from_s - view.begun_s) / step_s);
    for (let index = first; view.begun_s + index * step_s <= view.to_s; index += 1) {
        const x = place(view.begun_s + index * step_s);
        pen.fillRect(x, top, 1, 5);
        const text = index === 0 ? "0 s" : duration(index * step_s);
        const room = pen.measureText(text).width;
        pen.fillText(text, Math.min(width - room, Math.max(0, x - room / 2)), top + 19);
    }
}

// A key of the legend, drawn by the same code as the lanes.
function key(text, paint) {
    const canvas = element("canvas", { "aria-hidden": "true" });
    const draw = () => {
        const scale = window.devicePixelRatio || 1;
        Object.assign(canvas, { width: 22 * scale, height: 16 * scale });
        canvas.style.width = "22px";
        canvas.style.height = "16px";
        const pen = canvas.getContext("2d");
        pen.scale(scale, scale);
        paint(pen);
    };
    onTheme(draw);
    requestAnimationFrame(draw);
    return element("span", {}, canvas, text);
}
