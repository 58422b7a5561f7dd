// The script of a page: draws the data blocks of the file as a document. CMake joins base.js, charts.js, tables.js, timeline.js,
// findings.js, sections.js, ranks.js, comparison.js and page.js in this order, in one function that page.js closes.
//
// Texts of a trace are anybody's: they become text nodes and attributes through h() and svg(), never markup.
(function () {
'use strict';

const SVG = 'http://www.w3.org/2000/svg';

// Appends strings as text nodes, lists element by element; null and false are left out.
function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

function setAll(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  return element;
}

const h = (tag, attributes, ...children) => append(setAll(document.createElement(tag), attributes || {}), children);
const svg = (tag, attributes, ...children) => append(setAll(document.createElementNS(SVG, tag), attributes || {}), children);

// A data block of the file; null if it has none of this id.
function dataOf(id) {
  const block = document.getElementById(id);
  return block ? JSON.parse(block.textContent) : null;
}

// Numbers as the other reports print them: three digits, at most two decimals.
function fixed(value, decimals) {
  const text = value.toFixed(decimals);
  return /[1-9]/.test(text) ? text.replace('-', '\u2212') : '0';
}
function number(value) {
  if (value === null || !Number.isFinite(value)) return 'unknown';
  const size = Math.abs(value);
  return fixed(value, size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}
const ms = (value) => number(value) + '\u00a0ms';
const signedMs = (value) => (value > 0 ? '+' : value < 0 ? '\u2212' : '') + number(Math.abs(value)) + '\u00a0ms';
function percent(frac) {
  const value = 100 * frac;
  return fixed(value, value !== 0 && Math.abs(value) < 0.95 ? 1 : 0) + '\u00a0%';
}
// In steps of `base`, with the first unit in which the number has at most three digits.
function scaled(value, units, base) {
  let unit = 0;
  while (Math.abs(value) >= base - 0.5 && unit + 1 < units.length) {
    value /= base;
    ++unit;
  }
  return fixed(value, unit === 0 || Math.abs(value) >= 99.95 ? 0 : 1) + '\u00a0' + units[unit];
}
const bytes = (value) => scaled(value, ['bytes', 'kB', 'MB', 'GB', 'TB'], 1000);
const rate = (value) => scaled(value, ['B/s', 'kB/s', 'MB/s', 'GB/s', 'TB/s'], 1000);
const flops = (value) => scaled(value, ['FLOP/s', 'kFLOP/s', 'MFLOP/s', 'GFLOP/s', 'TFLOP/s', 'PFLOP/s'], 1000);
const calls = (value) => (Math.abs(value - Math.round(value)) < 0.005 ? String(Math.round(value)) : number(value));
const factor = (value) => fixed(value, value < 1.095 ? 2 : 1) + '\u00d7';
const duration = (us) => (us >= 1000 ? ms(us / 1000) : number(us) + '\u00a0\u00b5s');
const plural = (count, what, many) => count + ' ' + (count === 1 ? what : many || what + 's');

// A figure that stands in the report's JSON under `key`: tests read it there.
const figure = (key, text, attributes) => h('span', { class: 'figure', 'data-figure': key, ...attributes }, text);

// A section of the page, which the navigation lists under `short`. Without content there is none.
const sections = [];
function section(id, short, title, ...content) {
  const kept = content.flat(Infinity).filter((one) => one);
  if (!kept.length) return null;
  sections.push({ id, short });
  return h('section', { id, 'aria-labelledby': id + '-title' }, h('h2', { id: id + '-title' }, title), kept);
}
const sub = (title, ...content) => h('div', { class: 'part' }, h('h3', null, title), content);
const note = (...content) => h('p', { class: 'note' }, content);

// Causes have colours by class; any other text gets that of "unknown".
const CAUSES = ['compute', 'communication', 'copy', 'kernel_latency', 'graph_opaque', 'dependency', 'sync', 'blocking_copy',
  'allocator', 'data', 'profiler', 'gc', 'dispatch', 'host_code', 'contended', 'unknown'];
const colour = (cause) => 'c-' + (CAUSES.includes(cause) ? cause : 'unknown');
let causeWords = {};
const words = (cause) => (Object.hasOwn(causeWords, cause) ? causeWords[cause] : cause);

// The entries of {cause: ms} in the order of the causes, so that every bar has the same order of colours.
function parts(split) {
  return Object.entries(split || {}).filter(([, value]) => value > 0)
    .sort(([a], [b]) => CAUSES.indexOf(a) - CAUSES.indexOf(b));
}

// A text whose long names may break after a separator, and before a capital letter if a part is long: so that a narrow screen breaks no word.
const LONG = 16;  // characters
function breakable(text) {
  const cut = '\ud800';  // no text contains half of a surrogate pair
  const parts = (name) => name.replace(/(::|[_./,<(#=])(?=[A-Za-z0-9])/g, '$1' + cut)
    .split(cut).map((part) => (part.length < LONG ? part : part.replace(/([a-z0-9])(?=[A-Z][a-z])/g, '$1' + cut))).join(cut);
  return String(text).replace(/\S+/g, (word) => (word.length < LONG ? word : parts(word))).split(cut)
    .flatMap((part, index) => (index ? [h('wbr'), part] : part));
}

// What the figures of tables count for.
let perStep = ', per step';

let nextId = 0;
const newId = (prefix) => prefix + '-' + ++nextId;
