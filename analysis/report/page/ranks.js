// The ranks of a job: what each spends its step on, and who waits for whom.

const MATRIX = 32;  // ranks

function rankLanes(ranks) {
  const rows = ranks.rows;
  const longest = Math.max(...rows.map((row) => row.step_ms), 1e-9);
  const low = rows.length > 64;
  const shown = rows.map((row) => h('div', { class: 'rank-row', title: `rank ${row.rank}: ${ms(row.step_ms)}` },
    low ? null : h('span', { class: 'rank-name n' }, `rank ${row.rank}`), stackedBar(row.time_split_ms, longest, low ? 5 : 16),
    low ? null : h('span', { class: 'rank-value n' }, ms(row.step_ms))));
  const used = CAUSES.filter((cause) => rows.some((row) => row.time_split_ms[cause] > 0));
  return sub('Step of each rank by cause', h('div', { class: 'rank-lanes' + (low ? ' low' : ''), 'aria-hidden': 'true' }, shown),
    h('ul', { class: 'keys' }, used.map((cause) => h('li', null, swatch(cause), words(cause)))),
    low ? note(`One line per rank, ${rows[0].rank} to ${rows[rows.length - 1].rank}; the table has the figures.`) : null);
}

function waitMatrix(ranks) {
  const waits = ranks.waits || [];
  if (!waits.length) return null;
  const names = ranks.rows.map((row) => row.rank);
  const most = Math.max(...waits.map((wait) => wait.ms));
  if (names.length > MATRIX) {
    const columns = [knownColumn('rank', 'rank', String), knownColumn('waits for', 'waits_for', String), msColumn('ms per step', 'ms', { bar: true })];
    columns[0].code = false;
    return sub('Who waits for whom', dataTable('Waits for the last rank at collectives', waits, columns, { by: 2 }));
  }
  const of = new Map(waits.map((wait) => [`${wait.rank},${wait.waits_for}`, wait.ms]));
  const cell = (rank, other) => {
    const value = of.get(`${rank},${other}`) || 0;
    const shade = value ? Math.max(1, Math.ceil(5 * value / most)) : 0;
    return h('td', { class: `n heat-${shade}` }, rank === other ? '\u00b7' : value ? number(value) : '');
  };
  return sub('Who waits for whom', note('Milliseconds per step that the rank of the row waits for the rank of the column, which arrives last.'),
    h('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'who waits for whom' }, h('table', { class: 'matrix' },
      h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'rank'), names.map((name) => h('th', { scope: 'col', class: 'n' }, name)))),
      h('tbody', null, names.map((rank) => h('tr', null, h('th', { scope: 'row' }, rank), names.map((other) => cell(rank, other))))))));
}

const someRanks = (row) => row.ranks.length > 8 ? `${row.ranks.slice(0, 8).join(', ')}, \u2026` : row.ranks.join(', ');
const countOf = (label, key, title) => ({ label, kind: 'n', title, value: (row) => row[key], text: (row) => String(row[key]) });

function groupsTable(ranks) {
  const groups = ranks.groups || [];
  if (!groups.length) return null;
  const serves = (group) => group.parallelism || 'unknown';
  const columns = [{ label: 'serves', value: serves, text: serves, code: false }, textColumn('by', 'evidence'),
    { label: 'ranks', value: someRanks, text: someRanks },
    msColumn('exposed ms', 'exposed_ms', { bar: true }), msColumn('total', 'total_ms'),
    msColumn('waiting', 'waiting_ms', { title: 'until its last rank arrives' }),
    { label: 'GB/s', kind: 'n', title: 'bus bandwidth as nccl-tests define it', value: (group) => group.gb_per_s,
      text: (group) => group.gb_per_s > 0 ? number(group.gb_per_s) : '' }];
  if ((ranks.machines || []).length) {
    const late = (group) => group.late_host ? `${group.late_host}, ${group.late_host_last} of ${group.skewed}` : '';
    columns.push(countOf('machines', 'hosts', 'on which its ranks run'));
    if (groups.some(late)) {
      columns.push({ label: 'waits for', title: 'machine that is last more often than chance explains, and at how many skewed collectives',
        value: late, text: late });
    }
  }
  return sub('Groups of ranks', dataTable('Groups of ranks that communicate, ms per step and rank', groups, columns, { by: 3 }));
}

function machinesTable(ranks) {
  const machines = ranks.machines || [];
  if (!machines.length) return null;
  const rate = (key) => (machine) => machine[key] > 0 ? number(machine[key]) : '';
  const recurs = (machine) => machine.recurs ? 'yes' : '';
  const columns = [textColumn('machine', 'host'), { label: 'ranks', value: someRanks, text: someRanks },
    msColumn('waited for', 'waited_for_ms', { bar: true, title: 'by a rank of another machine' }),
    countOf('last', 'last', 'skewed collectives at which its ranks are waited for'),
    countOf('of', 'skewed', 'skewed collectives with other machines'),
    { label: 'recurs', title: 'it is last more often than chance explains', value: recurs, text: recurs },
    { label: 'GB/s', kind: 'n', title: 'bus bandwidth among its ranks', value: (machine) => machine.inside_gb_per_s,
      text: rate('inside_gb_per_s') },
    { label: 'with others', kind: 'n', title: 'bus bandwidth with ranks of other machines, GB/s',
      value: (machine) => machine.across_gb_per_s, text: rate('across_gb_per_s') }];
  return sub('Machines', dataTable('Machines of the job, ms per step', machines, columns, { by: 2 }));
}

function ranksSection(report) {
  const ranks = report.ranks;
  if (!ranks) return null;
  const compared = !ranks.why_not;
  const plain = (row) => String(row.rank);
  const columns = [{ label: 'rank', kind: 'n', value: (row) => row.rank, text: plain, code: false },
    msColumn('step ms', 'step_ms', { bar: true }), msColumn('computing', 'busy_ms'), msColumn('exposed', 'exposed_ms')];
  if (compared) {
    columns.push(msColumn('waiting', 'waiting_ms', { bar: true, title: 'until the last rank arrives' }),
      msColumn('late', 'late_ms', { title: 'behind the median rank, summed over a step' }),
      { label: 'last', kind: 'n', title: 'skewed collectives at which it was last', value: (row) => row.last, text: (row) => String(row.last) },
      { label: 'clock, \u00b5s', kind: 'n', title: 'subtracted to align the ranks', value: (row) => row.clock_offset_us,
        text: (row) => number(row.clock_offset_us) });
  }
  columns.push(knownColumn('host ms', 'host_ms', number, 'host time without waits'), msColumn('loading', 'loading_ms'));
  const summary = compared
    ? h('p', null, 'Waiting for the last rank takes ', figure('ranks.waiting_ms', ms(ranks.waiting_ms)), ' per step', ranks.waiting_noise_ms > 0 ? ` (\u00b1 ${number(ranks.waiting_noise_ms)})` : '',
      `, mean over ${plural(ranks.rows.length, 'rank')}; ${plural(ranks.skewed, 'skewed collective')} of ${ranks.collectives} matched over ${
        plural(ranks.steps, 'step')}. Clocks agree within `, figure('ranks.clock_residual_us', number(ranks.clock_residual_us) + '\u00a0\u00b5s'), '.')
    : note('The ranks are not compared: ' + ranks.why_not + '.');
  return section('ranks', 'Ranks', 'Ranks', summary, rankLanes(ranks), waitMatrix(ranks), groupsTable(ranks), machinesTable(ranks), sub('Every rank', dataTable('Ranks, ms per step', ranks.rows, columns,
    { by: compared ? 4 : 1 })));
}
