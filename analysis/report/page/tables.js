// Tables that sort and filter, and tabs.

const SHOWN = 20;  // rows before "show all"
const unfold = [];  // shows all rows of every table, for paper

// columns: {label, value(row), text(row), kind: 'n' for numbers, bar: true for a bar of the value, tone(row) its class, title}
// Rows are sorted by the column `by`, largest first, to begin with.
function dataTable(caption, rows, columns, options) {
  const settings = { by: 0, filter: true, ...options };
  let by = settings.by;
  let down = true;
  let all = false;
  let wanted = '';
  const body = h('tbody');
  const status = h('span', { class: 'dim', role: 'status' });
  const more = h('button', { type: 'button', class: 'quiet', onclick: () => { all = true; draw(); } });
  const heads = columns.map((column, index) => {
    const button = h('button', { type: 'button', onclick: () => {
      down = by === index ? !down : column.kind === 'n';
      by = index;
      draw();
    } }, column.label);
    return h('th', { scope: 'col', class: index ? column.kind : null, title: column.title }, button);
  });
  const largest = columns.map((column) => (column.bar ? Math.max(...rows.map((row) => column.value(row)), 1e-12) : 0));
  const searched = rows.map((row) => columns.map((column) => column.text(row)).join('\u0001').toLowerCase());

  function cell(column, index, row) {
    const text = column.text(row);
    if (index === 0) return h('th', { scope: 'row', class: column.kind === 'n' ? null : 'name' }, column.code === false ? text : h('code', null, breakable(text)));
    if (!column.bar) return h('td', { class: column.kind }, column.kind ? text : breakable(text));
    const bar = h('span', { class: 'cell-bar ' + (column.tone ? column.tone(row) : ''), 'aria-hidden': 'true' });
    bar.style.width = `${Math.max(0, 100 * column.value(row) / largest[index]).toFixed(1)}%`;
    return h('td', { class: column.kind + ' barred' }, bar, h('span', null, text));
  }

  function draw() {
    const found = rows.map((row, index) => [row, index]).filter(([, index]) => searched[index].includes(wanted));
    const value = columns[by].value;
    found.sort(([a, i], [b, j]) => {
      const [x, y] = [value(a), value(b)];
      const order = typeof x === 'string' ? x.localeCompare(y) : x - y;
      return (down ? -order : order) || i - j;
    });
    const shown = all ? found : found.slice(0, SHOWN);
    body.replaceChildren(...shown.map(([row]) => h('tr', null, columns.map((column, index) => cell(column, index, row)))));
    heads.forEach((head, index) => {
      if (index === by) head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    status.textContent = found.length === rows.length ? plural(rows.length, 'row') : `${found.length} of ${plural(rows.length, 'row')}`;
    more.textContent = `show all ${found.length}`;
    more.hidden = shown.length === found.length;
  }
  draw();
  unfold.push(() => { all = true; draw(); });

  const long = rows.length > 8;
  const filter = settings.filter && long && h('label', { class: 'filter' }, h('span', null, 'filter'),
    h('input', { type: 'search', spellcheck: 'false', autocomplete: 'off', oninput: (event) => {
      wanted = event.target.value.toLowerCase();
      draw();
    } }));
  return h('div', { class: 'data' }, long ? h('div', { class: 'bar-of-table' }, filter, status) : null,
    h('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': caption },
      h('table', null, h('caption', null, h('span', null, caption)), h('thead', null, h('tr', null, heads)), body)), more);
}

// A name, before it the operators that a compiled kernel was fused from.
const withFusedOps = (row) => (row.fused_ops ? `${row.fused_ops.join(' + ') || 'kernel'} (compiled), ${row.name}` : row.name);

// Columns that most tables have.
const fusedColumn = (label) => ({ label, value: withFusedOps, text: withFusedOps });
const textColumn = (label, key, more) => ({ label, value: (row) => row[key], text: (row) => row[key], ...more });
const msColumn = (label, key, more) => ({ label, kind: 'n', value: (row) => row[key], text: (row) => number(row[key]), ...more });
const countColumn = (label, key) => ({ label, kind: 'n', value: (row) => row[key], text: (row) => calls(row[key]) });
// Unknown (-1) is empty and sorts last.
const knownColumn = (label, key, show, title) => ({ label, kind: 'n', title, value: (row) => row[key],
  text: (row) => (row[key] < 0 ? '' : show(row[key])) });

// panels: [title, element]; one is shown at a time, all of them in print. Arrow keys move between the tabs.
function tabs(label, panels) {
  const kept = panels.filter(([, panel]) => panel);
  if (!kept.length) return null;
  const buttons = [];
  const boxes = [];
  const choose = (chosen, focus) => {
    buttons.forEach((button, index) => {
      button.setAttribute('aria-selected', index === chosen ? 'true' : 'false');
      button.tabIndex = index === chosen ? 0 : -1;
      boxes[index].classList.toggle('unchosen', index !== chosen);
    });
    if (focus) buttons[chosen].focus();
  };
  kept.forEach(([title, panel], index) => {
    const id = newId('tab');
    buttons.push(h('button', { type: 'button', role: 'tab', id, 'aria-controls': id + '-panel', onclick: () => choose(index, false),
      onkeydown: (event) => {
        const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!move) return;
        event.preventDefault();
        choose((index + move + kept.length) % kept.length, true);
      } }, title));
    boxes.push(h('div', { role: 'tabpanel', id: id + '-panel', 'aria-labelledby': id }, h('div', { class: 'print-title' }, title), panel));
  });
  choose(0, false);
  return h('div', { class: 'tabs' }, h('div', { role: 'tablist', 'aria-label': label }, buttons), boxes);
}
