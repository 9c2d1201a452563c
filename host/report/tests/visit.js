// Runs the report's script, `page.js`, over `run.json` in a page of stand-ins, and visits it. Compares the script's
// formats of figures with those of text.rs, which `formats.json` has.
"use strict";
const assert = require("node:assert");
const fs = require("node:fs");
const run = JSON.parse(fs.readFileSync("run.json", "utf8"));

let drawn = 0;
const pen = new Proxy({}, {
  get: (target, name) => target[name] ?? ((...values) => {
    drawn++;
    for (const value of values.flat()) assert(!Number.isNaN(value), `${String(name)}(${values})`);
    if (name === "fillText") assert.notStrictEqual(values[0], "-0", "no tick is a negative zero");
  }),
  set: (target, name, value) => Reflect.set(target, name, value),
});
const width = 1120;
class Element {
  constructor(id) {
    Object.assign(this, { id, style: {}, dataset: { help: "help" }, listeners: {}, textContent: "" });
    this.parentElement = { clientWidth: width };
    if (id === "run") this.textContent = JSON.stringify(run);
  }
  addEventListener(name, listener) { this.listeners[name] = listener; }
  getContext() { return pen; }
  getBoundingClientRect() { return { left: 0, top: 0, width, height: 500 }; }
  fire(name, event = {}) { this.listeners[name]({ preventDefault() {}, clientX: 0, clientY: 0, ...event }); }
}
const elements = {};
const frames = [];
globalThis.document = {
  getElementById: (id) => elements[id] ??= new Element(id),
  documentElement: { classList: { add: () => {} } },
};
globalThis.window = { addEventListener() {}, matchMedia: () => ({ addEventListener() {} }), devicePixelRatio: 2 };
globalThis.getComputedStyle = () => ({ getPropertyValue: () => "#123456" });
globalThis.requestAnimationFrame = (draw) => frames.push(draw);
const settle = () => { while (frames.length) frames.shift()(); };

const end = "})();\n", script = fs.readFileSync("page.js", "utf8");
assert(script.endsWith(end));
const formats = new Function("formats", script.slice(0, -end.length) + "Object.assign(formats, { figure, seconds });" +
  end + "return formats;")({});
for (const [value, figure, seconds] of JSON.parse(fs.readFileSync("formats.json", "utf8"))) {
  assert.deepStrictEqual([formats.figure(value), formats.seconds(value)], [figure, seconds], `${value}`);
}
assert(drawn > 20, "it draws at once");
const { timeline, rates, details, range } = elements;
assert.strictEqual(range.textContent, "the whole run");
assert.strictEqual(details.textContent, "help");

const middle = 128 + (width - 142) / 2;
for (let y = 0; y < 500; y += 7) {
  timeline.fire("pointermove", { clientX: middle, clientY: y });
  settle();
}
assert.match(details.textContent, /at \S+ (ms|s|min)[^,·]*, images\/s: (\S.* \S+, )*delivered [\d,.]+/);
timeline.fire("pointerdown", { clientX: middle, clientY: 50 });
timeline.fire("pointermove", { clientX: middle + 200, clientY: 50 });
settle();
timeline.fire("pointerup", { clientX: middle + 200, clientY: 50 });
settle();
assert.notStrictEqual(range.textContent, "the whole run", "a drag zooms");
assert.match(details.textContent, /images\/s: /, "after a drag, the details are of the moment under the pointer");
timeline.fire("pointerleave");
settle();
assert.strictEqual(details.textContent, "help");
timeline.fire("keydown", { key: "Escape" });
settle();
assert.strictEqual(range.textContent, "the whole run");

for (const key of ["ArrowRight", "ArrowRight", "ArrowLeft"]) rates.fire("keydown", { key });
settle();
if (run.deliveries.at_s.length) {
  assert(details.textContent.startsWith(`epoch ${run.deliveries.epoch[0]}, batch ${run.deliveries.batch[0]} by `));
  assert.match(details.textContent, /: delivered, \d+ images?/);
  for (let times = 0; times < run.deliveries.at_s.length; times++) rates.fire("keydown", { key: "ArrowRight" });
  settle();
  assert.match(details.textContent, /images\/s: /, "the last delivery has rates, too");
}
for (const key of ["+", "+", "-"]) timeline.fire("keydown", { key });
timeline.fire("keydown", { key: "ArrowRight", shiftKey: true });
for (const id of ["zoom-in", "earlier", "later", "zoom-out"]) elements[id].fire("click");
timeline.fire("wheel", { ctrlKey: true, deltaY: -1, clientX: middle });
settle();
// However far one zooms in, there is something to draw.
for (let times = 0; times < 60; times++) elements["zoom-in"].fire("click");
settle();
elements.whole.fire("click");
settle();
assert.strictEqual(range.textContent, "the whole run");
