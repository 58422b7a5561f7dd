// Drawings that several sections use. Each has its figures as text beside it, so the drawing itself is hidden from screen readers.

// Bars in the units of their data fill the width they get; heights are in pixels.
function strip(width, height, ...shapes) {
  return svg('svg', { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', class: 'strip', height, 'aria-hidden': 'true',
    focusable: 'false' }, shapes);
}
const box = (x, y, width, height, style, title) =>
  svg('rect', { x, y, width: Math.max(width, 0), height, class: style }, title ? svg('title', null, title) : null);

// One bar of {cause: ms}; `whole` ms fill the width.
function stackedBar(split, whole, height) {
  let at = 0;
  return strip(1000, height, parts(split).map(([cause, value]) => {
    const width = 1000 * value / whole;
    const one = box(at, 0, width, height, colour(cause), `${words(cause)} ${ms(value)}`);
    at += width;
    return one;
  }));
}

const swatch = (cause) => h('span', { class: 'swatch ' + colour(cause), 'aria-hidden': 'true' });

// The causes of a bar with their figures. `key` names the object in the report's JSON.
function legend(split, whole, key, spread, unit = 'ms per step') {
  const rows = Object.entries(split).filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]);
  return h('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'time by cause' },
    h('table', { class: 'legend' },
      h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'cause'), h('th', { scope: 'col', class: 'n' }, unit),
        h('th', { scope: 'col', class: 'n' }, 'share'), spread ? h('th', { scope: 'col', class: 'n' }, 'from \u2013 to') : null)),
      h('tbody', null, rows.map(([cause, value]) => h('tr', null,
        h('th', { scope: 'row' }, swatch(cause), words(cause)),
        h('td', { class: 'n' }, figure(`${key}.${cause}`, number(value))),
        h('td', { class: 'n' }, percent(value / whole)),
        spread ? h('td', { class: 'n dim' }, spread[cause] ? `${number(spread[cause][0])} \u2013 ${number(spread[cause][1])}` : '') : null)))));
}

// Rows of a waterfall: {label, from, to, kind, text, low, high}, in ms from 0 to `whole`.
function waterfall(rows, whole) {
  return h('div', { class: 'waterfall', role: 'list' }, rows.map((row) => {
    const x = (value) => 1000 * value / whole;
    return h('div', { class: 'fall ' + row.kind, role: 'listitem' },
      h('span', { class: 'fall-label' }, row.label),
      strip(1000, 22, box(0, 0, 1000, 22, 'track'), box(x(row.from), 0, x(row.to) - x(row.from), 22, 'bar'),
        row.high ? [box(x(row.low), 10, x(row.high) - x(row.low), 2, 'range'), box(x(row.low), 6, 2, 10, 'range'),
          box(x(row.high) - 2, 6, 2, 10, 'range')] : null),
      h('span', { class: 'fall-value n' }, row.text));
  }));
}

// A small curve: `points` of [x, y] in order. `step`: y holds until the next x.
function curve(points, width, height, options) {
  const most = Math.max(...points.map((p) => p[1]), options.most || 0) || 1;
  const last = options.end || points[points.length - 1][0] || 1;
  const first = options.begin || 0;
  const x = (value) => (width * (value - first) / Math.max(last - first, 1e-9)).toFixed(1);
  const y = (value) => (height - height * value / most).toFixed(1);
  let line = '';
  for (const [at, value] of points) {
    if (line && options.step) line += `H${x(at)}`;
    line += `${line ? 'L' : 'M'}${x(at)} ${y(value)}`;
  }
  if (options.step) line += `H${width}`;
  return svg('svg', { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', class: 'curve', height, 'aria-hidden': 'true',
    focusable: 'false' },
  options.fill ? svg('path', { d: `${line}L${options.step ? width : x(points[points.length - 1][0])} ${height}L${x(points[0][0])} ${height}Z`,
    class: 'area' }) : null,
  svg('path', { d: line, class: 'line', 'vector-effect': 'non-scaling-stroke' }),
  options.mark === undefined ? null : svg('line', { x1: x(options.mark), x2: x(options.mark), y1: 0, y2: height, class: 'mark',
    'vector-effect': 'non-scaling-stroke' }));
}

// A tile with one figure.
function tile(label, value, more) {
  return h('div', { class: 'tile' }, h('dt', null, label), h('dd', null, value, more ? h('small', null, more) : null));
}
