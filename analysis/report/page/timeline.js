// A step as lanes of blocks. Blocks are [begin, length, cause, name], in us since the step's begin and as indices.

const LANE = 16;  // pixels
const GAP = 6;

const laneShare = (lane, step, causes) => {
  const sums = {};
  for (const [, length, cause] of lane.blocks) sums[causes[cause]] = (sums[causes[cause]] || 0) + length;
  return Object.entries(sums).sort((a, b) => b[1] - a[1]).slice(0, 2)
    .map(([cause, us]) => `${words(cause)} ${percent(us / step.length_us)}`).join(', ');
};

// `marks`: [begin_us, length_us] of what a finding points at. `small` draws lower lanes.
function timeline(step, details, marks, small) {
  const lane = small ? 11 : LANE;
  const gap = small ? 4 : GAP;
  const height = step.lanes.length * (lane + gap);
  const x = (us) => 1000 * us / step.length_us;
  const blockText = ([begin, length, cause, name]) => {
    const label = details.names[name];
    return `${words(details.causes[cause])}, ${duration(length)}${label ? ': ' + label : ''} (at ${duration(begin)})`;
  };
  const readout = h('p', { class: 'readout dim', 'aria-live': 'polite' }, small ? '' : 'Point at a block, or use the arrow keys, to read it.');
  const cursor = svg('rect', { class: 'cursor', x: 0, y: 0, width: 0, height: 0 });
  const shapes = [];
  step.lanes.forEach((one, row) => {
    const y = row * (lane + gap);
    shapes.push(box(0, y, 1000, lane, 'track'));
    one.blocks.forEach((block, column) => {
      const rect = box(x(block[0]), y, Math.max(x(block[1]), 0.8), lane, colour(details.causes[block[2]]));
      rect.dataset.at = row + ',' + column;
      shapes.push(rect);
    });
  });
  for (const [begin, length] of marks || []) {
    const width = Math.max(x(length), 3);
    shapes.push(box(Math.min(x(begin), 1000 - width), 0, width, height, 'pointed'));
  }
  let at = [0, -1];
  const show = (row, column) => {
    at = [row, column];
    const block = step.lanes[row].blocks[column];
    setAll(cursor, { x: x(block[0]), y: row * (lane + gap), width: Math.max(x(block[1]), 2), height: lane });
    readout.textContent = `${step.lanes[row].name}: ${blockText(block)}`;
  };
  const keys = (event) => {
    const move = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    const row = Math.min(Math.max(at[0] + move[0], 0), step.lanes.length - 1);
    const blocks = step.lanes[row].blocks;
    let column = at[1] + move[1];
    if (row !== at[0]) {  // the block of the other lane that lies nearest
      const begin = at[1] < 0 ? 0 : step.lanes[at[0]].blocks[at[1]][0];
      column = blocks.reduce((best, block, i) => (Math.abs(block[0] - begin) < Math.abs(blocks[best][0] - begin) ? i : best), 0);
    }
    show(row, Math.min(Math.max(column, 0), blocks.length - 1));
  };
  const drawing = svg('svg', { viewBox: `0 0 1000 ${height}`, preserveAspectRatio: 'none', height, class: 'lanes', focusable: 'false',
    'aria-hidden': 'true', onpointermove: (event) => {
      const place = event.target.dataset && event.target.dataset.at;
      if (place) show(...place.split(',').map(Number));
    } }, shapes, cursor);
  const names = step.lanes.map((one) => h('li', null, h('span', { class: 'lane-name' }, one.name),
    h('span', { class: 'unseen' }, ': ' + laneShare(one, step, details.causes))));
  const title = step.step >= 0 ? `step ${step.step}` : 'the recording';
  return h('figure', { class: 'timeline' + (small ? ' small' : '') },
    h('ul', { class: 'lane-names' }, names),
    h('div', { class: 'lane-box', tabindex: 0, role: 'group', 'aria-label': `timeline of ${title}; arrow keys read its blocks`, onkeydown: keys },
      drawing),
    h('div', { class: 'axis', 'aria-hidden': 'true' }, [0, 0.25, 0.5, 0.75, 1].map((part) => h('span', null, duration(part * step.length_us)))),
    readout);
}

// The colours that a drawing uses.
function timelineLegend(steps, details) {
  const used = new Set();
  for (const step of steps) for (const lane of step.lanes) for (const block of lane.blocks) used.add(details.causes[block[2]]);
  return h('ul', { class: 'keys' }, CAUSES.filter((cause) => used.has(cause)).map((cause) => h('li', null, swatch(cause), words(cause))));
}
