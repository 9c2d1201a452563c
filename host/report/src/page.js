// Draws the time line and the rates of a run, and lets its reader zoom and ask for details.
"use strict";
(() => {
  const run = JSON.parse(document.getElementById("run").textContent);
  const LEFT = 128, RIGHT = 14, TOP = 30, MAP = 310, LANE = 30, PITCH = 42, AXIS = 28;
  // Multiple of the largest preparation rate above which delivery rates are cut off.
  const BURST = 1.5;
  const names = run.prongs.concat("?");
  const colours = ["--p0", "--p1", "--p2", "--p3", "--p4", "--p5"];
  const whole = { from: 0, to: run.end_s > 0 ? run.end_s : 1 };
  const shortest = whole.to / 1e5;
  let view = { ...whole };
  // The moment under the pointer or the keyboard's cursor, and the row of the map under the pointer.
  let cursor = null;
  const images = new Map();
  run.deliveries.at_s.forEach((_, i) => images.set(run.deliveries.epoch[i] + "/" + run.deliveries.batch[i], i));

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (prong) => style(colours[prong % colours.length]);
  const nameOf = (prong) => names[Math.min(prong, names.length - 1)];

  const count = (value) => Math.round(value).toLocaleString("en");
  // Formats a figure as `figure` of text.rs does.
  function figure(value) {
    const size = Math.abs(value);
    if (!Number.isFinite(value)) return "–";
    return size >= 100 ? count(value) : value.toFixed(size >= 10 ? 1 : 2);
  }
  // Formats a span of time as `seconds` of text.rs does.
  function seconds(value) {
    const ms = value * 1000, whole = Math.round(value), two = (number) => String(Math.floor(number)).padStart(2, "0");
    if (!Number.isFinite(value) || value < 0) return "–";
    if (value < 0.9995) return ms.toFixed(ms >= 9.95 || ms === 0 ? 0 : 1) + " ms";
    if (value < 99.95) return value.toFixed(value < 9.995 ? 2 : 1) + " s";
    if (whole < 3600) return Math.floor(whole / 60) + " min " + two(whole % 60) + " s";
    return Math.floor(whole / 3600) + " h " + two(whole % 3600 / 60) + " min";
  }

  function roundStep(least) {
    const power = 10 ** Math.floor(Math.log10(least));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999999);
  }

  // Returns round values between `from` and `to`, about `wanted` of them.
  function ticks(from, to, wanted) {
    const step = roundStep((to - from) / wanted), out = [];
    // The sum with 0 makes 0 of -0, which would be written with its sign.
    for (let n = Math.ceil(from / step - 1e-9); n * step <= to * (1 + 1e-12); n++) out.push(n * step + 0);
    return out;
  }

  // Returns labels that share a unit, with as many decimals as tell them apart.
  function timeLabels(values) {
    const end = view.to, [unit, name] =
      end < 1 ? [1e-3, "ms"] : end < 300 ? [1, "s"] : end < 18000 ? [60, "min"] : [3600, "h"];
    const step = values.length > 1 ? (values[1] - values[0]) / unit : 1;
    const decimals = Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9)));
    return values.map((value) => (value / unit).toFixed(decimals) + " " + name);
  }

  // Divides the view into `columns` equal parts. Returns for each part the mean sum of the weights of the intervals
  // open in it.
  function cover(columns, each) {
    const parts = new Float64Array(columns), steps = new Float64Array(columns + 1);
    const width = (view.to - view.from) / columns;
    each((start, end, weight) => {
      const a = Math.max(start, view.from), b = Math.min(end, view.to);
      if (!(a < b)) return;
      const first = Math.min(columns - 1, Math.floor((a - view.from) / width));
      const last = Math.min(columns - 1, Math.floor((b - view.from) / width));
      if (first === last) {
        parts[first] += weight * (b - a) / width;
        return;
      }
      parts[first] += weight * (view.from + (first + 1) * width - a) / width;
      parts[last] += weight * (b - view.from - last * width) / width;
      steps[first + 1] += weight;
      steps[last] -= weight;
    });
    let open = 0;
    for (let column = 0; column < columns; column++) {
      open += steps[column];
      parts[column] += open;
    }
    return parts;
  }

  const spans = (wanted) => (add) => run.spans.prong.forEach((prong, i) => {
    if (wanted(i)) add(run.spans.start_s[i], run.spans.end_s[i], 1);
  });

  // Images per second in each of some intervals: by each prong, and delivered.
  function rates() {
    const { spans, deliveries } = run;
    const shown = deliveries.at_s.filter((at) => at >= view.from && at <= view.to).length;
    const columns = Math.max(6, Math.min(110, Math.floor(shown / 3)));
    const least = (view.to - view.from) / columns * 1e-3;
    const made = run.prongs.map((_, prong) => cover(columns, (add) => spans.prong.forEach((by, i) => {
      if (by !== prong || !spans.used[i]) return;
      const at = images.get(spans.epoch[i] + "/" + spans.batch[i]);
      const size = (at === undefined ? run.batch_size : deliveries.images[at]) * run.kept_every;
      const took = Math.max(spans.end_s[i] - spans.start_s[i], least);
      add(spans.end_s[i] - took, spans.end_s[i], size / took);
    })));
    const delivered = cover(columns, (add) => deliveries.at_s.forEach((at, i) => {
      const before = Math.min(i ? deliveries.at_s[i - 1] : 0, at - least);
      add(before, at, deliveries.images[i] * run.kept_every / (at - before));
    }));
    return { columns, made, delivered };
  }

  // A canvas as wide as its place, sharp on every screen.
  function surface(canvas, height) {
    const width = Math.max(600, canvas.parentElement.clientWidth), scale = window.devicePixelRatio || 1;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.height = height + "px";
    canvas.style.width = width + "px";
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = "12.5px system-ui, sans-serif";
    const plot = width - RIGHT - LEFT;
    const x = (at) => LEFT + (at - view.from) / (view.to - view.from) * plot;
    return { pen, width, height, plot, x };
  }

  function write(pen, text, x, y, align = "left", ink = "--ink") {
    pen.textAlign = align;
    pen.fillStyle = style(ink);
    pen.fillText(text, x, y);
  }

  function line(pen, x1, y1, x2, y2, ink, dash = []) {
    pen.strokeStyle = ink;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.lineTo(x2, y2);
    pen.stroke();
    pen.setLineDash([]);
  }

  function timeAxis({ pen, width, x }, y) {
    const at = ticks(view.from, view.to, 9), labels = timeLabels(at);
    at.forEach((tick, i) => {
      line(pen, x(tick), y, x(tick), y + 5, style("--rule"));
      write(pen, labels[i], x(tick), y + 20, x(tick) > width - 40 ? "right" : "center", "--dim");
    });
  }

  const map = document.getElementById("timeline"), chart = document.getElementById("rates");
  const lanes = run.prongs.length + 2, height = TOP + MAP + 20 + lanes * PITCH + AXIS;
  const rowHeight = MAP / run.batches;
  const rowAt = (batch) => TOP + MAP - (batch + 0.5) * rowHeight;

  // Draws what lies in the plot, and nothing outside of it.
  function within({ pen, plot, height }, draw) {
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, plot, height);
    pen.clip();
    draw();
    pen.restore();
  }

  function drawBatches({ pen, x }) {
    const bar = rowHeight > 5 ? Math.min(rowHeight - 1.5, 22) : Math.max(rowHeight, 3.2);
    const inks = names.map((_, prong) => colour(prong)), dim = style("--dim");
    const { prong, batch, start_s, end_s, used } = run.spans;
    pen.lineWidth = 0.8;
    prong.forEach((by, i) => {
      if (end_s[i] < view.from || start_s[i] > view.to) return;
      const from = x(start_s[i]), wide = Math.max(x(end_s[i]) - from, 1.5), top = rowAt(batch[i]) - bar / 2;
      if (used[i]) {
        pen.fillStyle = inks[Math.min(by, inks.length - 1)];
        pen.fillRect(from, top, wide, bar);
      } else {
        pen.strokeStyle = dim;
        pen.setLineDash([3, 2]);
        pen.strokeRect(from, top, wide, bar);
        pen.setLineDash([]);
      }
    });
    const size = Math.max(1.2, Math.min(7, rowHeight * 0.55));
    pen.fillStyle = style("--dot");
    run.deliveries.at_s.forEach((at, i) => {
      if (at < view.from || at > view.to) return;
      pen.beginPath();
      pen.arc(x(at), rowAt(run.deliveries.batch[i]), size / 2, 0, 7);
      pen.fill();
    });
  }

  function drawMarks({ pen, x, height }) {
    const dim = style("--dim"), dot = style("--dot"), bottom = height - AXIS;
    pen.lineWidth = 1;
    let free = 0;
    run.epochs.forEach((epoch) => {
      const at = x(epoch.start_s);
      line(pen, at, TOP, at, bottom, dim);
      if (at >= free) {
        write(pen, "epoch " + epoch.epoch, at + 2, 18);
        free = at + 74;
      }
      if (epoch.met === null) return;
      const y = rowAt(epoch.met - 0.5);
      line(pen, at, y, x(epoch.end_s), y, dot, [6, 4]);
      if (x(epoch.end_s) - at > 130) write(pen, "met at batch " + count(epoch.met), Math.max(at, LEFT) + 8, y - 6);
    });
    run.faults.forEach((fault, i) => {
      const at = x(fault.at_s), red = style("--fault");
      line(pen, at, TOP, at, bottom, red, [4, 3]);
      pen.fillStyle = red;
      pen.beginPath();
      pen.arc(at, TOP + MAP + 10, 8, 0, 7);
      pen.fill();
      write(pen, String(i + 1), at, TOP + MAP + 14, "center", "--card");
    });
  }

  function lane(drawing, y, name, what, ink, figures) {
    const { pen, width, plot } = drawing, base = y + LANE;
    write(pen, name, LEFT - 8, y + 13, "right");
    write(pen, what, LEFT - 8, y + 27, "right", "--dim");
    line(pen, LEFT, base, width - RIGHT, base, style("--rule"));
    const most = figures.reduce((most, figure) => Math.max(most, figure), 1), step = plot / figures.length;
    pen.fillStyle = ink;
    figures.forEach((figure, i) => {
      if (figure > 0) pen.fillRect(LEFT + i * step, base - figure / most * LANE, step + 0.3, figure / most * LANE);
    });
  }

  function drawLanes(drawing) {
    const columns = Math.floor(drawing.plot / 2), { pen, x } = drawing, { deliveries } = run;
    let y = TOP + MAP + 20;
    run.prongs.forEach((name, prong) => {
      const open = cover(columns, spans((i) => run.spans.prong[i] === prong));
      lane(drawing, y, name, "batches in work", colour(prong), open);
      y += PITCH;
    });
    lane(drawing, y, "delivered", "by source", "", []);
    within(drawing, () => deliveries.at_s.forEach((at, i) => {
      if (at < view.from || at > view.to) return;
      pen.fillStyle = colour(deliveries.prong[i]);
      pen.fillRect(x(at), y, deliveries.at_s.length > 200 ? 1 : 2.2, LANE);
    }));
    const waits = cover(columns, (add) => deliveries.at_s.forEach((at, i) => add(deliveries.asked_s[i], at, 1)));
    lane(drawing, y + PITCH, "consumer", "waits", style("--wait"), waits);
  }

  function drawTimeline() {
    const drawing = surface(map, height), { pen, width, plot } = drawing;
    pen.fillStyle = style("--plot");
    pen.fillRect(LEFT, TOP, plot, MAP);
    pen.strokeStyle = style("--rule");
    pen.strokeRect(LEFT, TOP, plot, MAP);
    write(pen, "batch " + count(run.batches - 1), LEFT - 8, TOP + 11, "right");
    write(pen, "batch 0", LEFT - 8, TOP + MAP - 2, "right");
    write(pen, "place in", LEFT - 8, TOP + MAP / 2 - 4, "right", "--dim");
    write(pen, "the epoch", LEFT - 8, TOP + MAP / 2 + 12, "right", "--dim");
    within(drawing, () => { drawBatches(drawing); drawMarks(drawing); });
    drawLanes(drawing);
    timeAxis(drawing, height - AXIS);
    drawCursor(drawing, width);
  }

  function drawRates() {
    const drawing = surface(chart, 250), { pen, width, plot, height } = drawing;
    const { columns, made, delivered } = rates(), floor = height - AXIS, top = 12;
    const sums = Array.from(delivered, (_, i) => made.reduce((sum, by) => sum + by[i], 0));
    const mostMade = Math.max(0, ...sums), mostDelivered = Math.max(0, ...delivered);
    const isCut = mostMade > 0 && mostDelivered > BURST * mostMade;
    const end = (isCut ? BURST * mostMade : Math.max(mostMade, mostDelivered) * 1.06) || 1;
    const y = (rate) => floor - Math.min(rate / end, 1) * (floor - top), step = plot / columns;
    ticks(0, end, 4).forEach((tick) => {
      line(pen, LEFT, y(tick), width - RIGHT, y(tick), style("--rule"));
      write(pen, tick.toLocaleString("en"), LEFT - 8, y(tick) + 4, "right", "--dim");
    });
    const below = new Float64Array(columns);
    pen.globalAlpha = 0.82;
    made.forEach((by, prong) => {
      pen.fillStyle = colour(prong);
      by.forEach((rate, i) => {
        const high = y(below[i] + rate);
        pen.fillRect(LEFT + i * step, high, step + 0.3, y(below[i]) - high);
        below[i] += rate;
      });
    });
    pen.globalAlpha = 1;
    pen.strokeStyle = style("--dot");
    pen.lineWidth = 1.8;
    pen.beginPath();
    delivered.forEach((rate, i) => {
      pen.lineTo(LEFT + i * step, y(rate));
      pen.lineTo(LEFT + (i + 1) * step, y(rate));
    });
    pen.stroke();
    pen.lineWidth = 1;
    timeAxis(drawing, floor);
    drawCursor(drawing);
    const bursts = isCut ? ", in bursts of up to " + figure(mostDelivered) + " images/s" : "";
    document.getElementById("bursts").textContent = bursts;
    return { columns, made, delivered };
  }

  function drawCursor({ pen, x, height }) {
    if (drag) {
      pen.globalAlpha = 0.2;
      pen.fillStyle = style("--p0");
      pen.fillRect(x(drag.from), 0, x(drag.to) - x(drag.from), height - AXIS);
      pen.globalAlpha = 1;
    }
    if (cursor === null || cursor.at < view.from || cursor.at > view.to) return;
    line(pen, x(cursor.at), 0, x(cursor.at), height - AXIS, style("--dim"), [2, 2]);
  }

  // Returns the span under the cursor: of the row under the pointer if there is one, and the nearest one.
  function spanAt({ at, row }) {
    const { batch, start_s, end_s } = run.spans, reach = Math.max(1, 5 / rowHeight);
    let best = -1, nearest = reach;
    if (row === null) return best;
    batch.forEach((number, i) => {
      const far = Math.abs(number - row);
      if (start_s[i] <= at && at <= end_s[i] && far <= nearest) [best, nearest] = [i, far];
    });
    return best;
  }

  function describe({ columns, made, delivered }) {
    const said = [];
    const i = cursor.delivery ?? -1, span = spanAt(cursor), { spans, deliveries } = run;
    const batchOf = (of, i) => "epoch " + of.epoch[i] + ", batch " + count(of.batch[i]) + " by " + nameOf(of.prong[i]);
    if (i >= 0) {
      said.push(batchOf(deliveries, i) + ": delivered, " + count(deliveries.images[i]) + " images, after a wait of " +
        seconds(deliveries.at_s[i] - deliveries.asked_s[i]));
    } else if (span >= 0) {
      const at = images.get(spans.epoch[span] + "/" + spans.batch[span]);
      said.push(batchOf(spans, span) + ": prepared in " + seconds(spans.end_s[span] - spans.start_s[span]) +
        (spans.used[span] ? "" : ", not used") +
        (at === undefined ? "" : ", delivered at " + seconds(deliveries.at_s[at])));
    }
    if (cursor.at >= view.from && cursor.at <= view.to) {
      // The end of the view belongs to its last column.
      const column = Math.min(columns - 1, Math.floor((cursor.at - view.from) / (view.to - view.from) * columns));
      const rates = made.map((figures, prong) => nameOf(prong) + " " + figure(figures[column]));
      rates.push("delivered " + figure(delivered[column]));
      said.push("at " + seconds(cursor.at) + ", images/s: " + rates.join(", "));
    }
    const near = (view.to - view.from) / 200;
    run.faults.forEach((fault, i) => {
      if (Math.abs(fault.at_s - cursor.at) < near) said.push("fault " + (i + 1) + ": " + fault.what);
    });
    return said.join(" · ");
  }

  let drag = null, waits = false;
  const details = document.getElementById("details"), range = document.getElementById("range");
  function draw() {
    waits = false;
    drawTimeline();
    const figures = drawRates();
    details.textContent = cursor === null ? details.dataset.help : describe(figures);
    const isWhole = view.from === whole.from && view.to === whole.to;
    range.textContent = isWhole ? "the whole run" : seconds(view.from) + " to " + seconds(view.to);
  }
  function soon() {
    if (!waits) requestAnimationFrame(draw);
    waits = true;
  }

  function show(from, to) {
    const length = Math.min(Math.max(to - from, shortest), whole.to);
    const start = Math.min(Math.max(from, 0), whole.to - length);
    view = { from: start, to: start + length };
    soon();
  }
  function zoom(factor, around = cursor === null ? (view.from + view.to) / 2 : cursor.at) {
    show(around - (around - view.from) * factor, around + (view.to - around) * factor);
  }
  const pan = (share) => show(view.from + (view.to - view.from) * share, view.to + (view.to - view.from) * share);

  // Moves the cursor to the next or previous delivery.
  function stride(by) {
    const { at_s, batch } = run.deliveries;
    if (!at_s.length) return;
    const now = cursor?.delivery ?? (by > 0 ? at_s.findIndex((at) => at >= view.from) - 1 : at_s.length);
    const next = Math.min(Math.max(now + by, 0), at_s.length - 1);
    cursor = { at: at_s[next], row: batch[next], delivery: next };
    if (cursor.at < view.from || cursor.at > view.to) {
      const half = (view.to - view.from) / 2;
      show(cursor.at - half, cursor.at + half);
    }
    soon();
  }

  const actions = {
    "zoom-in": () => zoom(0.5), "zoom-out": () => zoom(2), earlier: () => pan(-0.5), later: () => pan(0.5),
    whole: () => show(whole.from, whole.to),
  };
  for (const [id, act] of Object.entries(actions)) document.getElementById(id).addEventListener("click", act);
  const keys = { "+": actions["zoom-in"], "=": actions["zoom-in"], "-": actions["zoom-out"], "0": actions.whole };
  function press(event) {
    const arrow = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (arrow) event.shiftKey ? pan(arrow / 2) : stride(arrow);
    else if (event.key === "Escape") actions.whole();
    else if (keys[event.key]) keys[event.key]();
    else return;
    event.preventDefault();
  }

  for (const canvas of [map, chart]) {
    const timeAt = (event) => {
      const box = canvas.getBoundingClientRect(), plot = box.width - RIGHT - LEFT;
      const share = Math.min(Math.max((event.clientX - box.left - LEFT) / plot, 0), 1);
      return view.from + share * (view.to - view.from);
    };
    const point = (event) => {
      const y = event.clientY - canvas.getBoundingClientRect().top;
      const isRow = canvas === map && y >= TOP && y <= TOP + MAP;
      cursor = { at: timeAt(event), row: isRow ? (TOP + MAP - y) / rowHeight - 0.5 : null };
      if (drag) drag.to = cursor.at;
      soon();
    };
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("pointerdown", (event) => {
      drag = { from: timeAt(event), to: timeAt(event) };
      canvas.setPointerCapture?.(event.pointerId);
    });
    canvas.addEventListener("pointerup", (event) => {
      const [from, to] = drag ? [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)] : [0, 0];
      drag = null;
      if (to - from > (view.to - view.from) / 100) show(from, to);
      // The pointer is now at another moment.
      point(event);
    });
    canvas.addEventListener("pointercancel", () => { drag = null; soon(); });
    canvas.addEventListener("pointerleave", () => { cursor = null; soon(); });
    canvas.addEventListener("dblclick", actions.whole);
    canvas.addEventListener("keydown", press);
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event));
    }, { passive: false });
  }
  window.addEventListener("resize", soon);
  window.addEventListener("beforeprint", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
  document.documentElement.classList.add("drawn");
  draw();
})();
