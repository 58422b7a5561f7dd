// The page of two runs: what was measured, what was predicted, what changed.

// The steps of both runs beside the predicted one, on one scale.
function stepBars(comparison) {
  const { before, after, predicted_ms: predicted, measured_ms: measured } = comparison;
  const scale = comparison.batch_scale;
  const afterMs = after.step_ms * scale;
  const rows = [{ label: 'before, measured', value: before.step_ms, low: before.min_ms, high: before.max_ms, kind: 'now', key: 'before.step_ms' }];
  if (comparison.predicted_kind !== 'none') {
    const value = before.step_ms - predicted.expected;
    rows.push({ label: comparison.predicted_kind === 'bound' ? 'after, at best' : 'after, predicted', value, kind: 'guess',
      low: before.step_ms - predicted.high, high: before.step_ms - predicted.low });
  }
  rows.push({ label: 'after, measured', value: afterMs, low: after.min_ms * scale, high: after.max_ms * scale, kind: 'after',
    key: scale === 1 ? 'after.step_ms' : null });
  const whole = Math.max(...rows.map((row) => Math.max(row.value, row.high)));
  const bars = rows.map((row) => ({ ...row, from: 0, to: row.value, low: Math.max(row.low, 0),
    text: row.key ? figure(row.key, ms(row.value)) : ms(row.value) }));
  return sub('Predicted beside measured', waterfall(bars, whole), note(comparison.slow_steps_count ? 'Bars are means of all steps but warm-up, because slow steps recur. ' : 'Bars are median steps. ', 'Thin lines: the shortest and longest steady step; of the prediction, its likely range. ',
    'Measured change: ', figure('measured_ms.expected', signedMs(-measured.expected), { 'data-value': measured.expected }),
    ` (95 % interval ${signedMs(-measured.high)} to ${signedMs(-measured.low)}).`));
}

// Times that differ, green where the run after is faster.
function changes(title, rows, scale, isCause) {
  if (!rows.length) return null;
  const scaledRows = rows.map((row) => ({ ...row, after_ms: row.after_ms * scale, after_calls: row.after_calls * scale,
    change: row.after_ms * scale - row.before_ms, label: isCause ? words(row.name) : withFusedOps(row) })).filter((row) => !isCause || number(row.change) !== '0');
  if (!scaledRows.length) return null;
  const columns = [textColumn(isCause ? 'cause' : 'name', 'label', { code: !isCause }), msColumn('before ms', 'before_ms'), msColumn('after ms', 'after_ms'),
    { label: 'change', kind: 'n', value: (row) => Math.abs(row.change), text: (row) => signedMs(row.change), bar: true,
      tone: (row) => (row.change < 0 ? 'faster' : 'slower') }];
  if (!isCause) columns.push(countColumn('calls before', 'before_calls'), countColumn('calls after', 'after_calls'));
  return dataTable(title, scaledRows, columns, { by: 3 });
}

function causeBars(comparison) {
  const split = (key, scale) => Object.fromEntries(comparison.causes.map((row) => [row.name, row[key] * scale]));
  const whole = Math.max(comparison.before.mean_ms, comparison.after.mean_ms * comparison.batch_scale, 1e-9);
  const row = (label, one, text) => h('div', { class: 'rank-row' }, h('span', { class: 'rank-name' }, label), stackedBar(one, whole, 22),
    h('span', { class: 'rank-value n' }, text));
  const used = CAUSES.filter((cause) => comparison.causes.some((one) => one.name === cause));
  return h('div', null, h('div', { class: 'rank-lanes', 'aria-hidden': 'true' },
    row('before', split('before_ms', 1), ms(comparison.before.mean_ms)),
    row('after', split('after_ms', comparison.batch_scale), ms(comparison.after.mean_ms * comparison.batch_scale))),
  h('ul', { class: 'keys' }, used.map((cause) => h('li', null, swatch(cause), words(cause)))));
}

// The lines of a verdict; one without a label continues the line before. On a terminal, two blanks end a path.
function joinedLines(lines) {
  const joined = [];
  for (const line of lines) {
    const text = line.text.replace('  ', ': ');
    if (line.label || !joined.length) joined.push([line.label, text]);
    else joined[joined.length - 1][1] += ' ' + text;
  }
  return joined;
}

function comparisonPage(comparison, words_) {
  const list = (title, ids) => (ids.length ? [title, ids.join(', ')] : null);
  const measured = words_.verdict.find((line) => line.label === 'measured');
  const scale = comparison.batch_scale;
  const verdict = section('verdict', 'Verdict', 'Verdict', h('p', { class: 'headline' }, measured ? measured.text : comparison.why_not),
    termsOf(joinedLines(words_.verdict).filter(([label]) => label !== 'measured')),
    measured ? joinedLines(words_.verdict).filter(([label]) => label === 'measured').map(([, text]) => text.slice(measured.text.length))
      .filter((text) => text).map((text) => note(text)) : null,
    comparison.why_not ? null : stepBars(comparison),
    termsOf([list('settings changed', comparison.changed_settings), list('advice followed', comparison.resolved_findings),
      list('followed in part', comparison.reduced_findings), list('remaining', comparison.remaining_findings),
      list('new', comparison.new_findings)].filter((row) => row)));
  const tables = [['Operators', changes('Operators by change of self time, per step', comparison.ops, scale, false)],
    ['Modules', changes('Modules by change of self time, per step', comparison.modules || [], scale, false)],
    ['Kernels and copies', changes('Kernels and copies by change of time, per step', comparison.kernels, scale, false)]];
  return [verdict, comparison.causes.length ? section('causes', 'Causes', 'What changed by cause, in the mean step', causeBars(comparison),
    changes('Causes, per step', comparison.causes, scale, true)) : null,
  section('tables', 'Details', 'What changed in detail', tabs('tables', tables)),
  section('method', 'Method', 'How the figures were obtained', h('ul', null, h('li', null, comparison.slow_steps_count ? 'Slow steps recur, so steps are compared by the means of all but warm-up; the interval is a bootstrap over these.' : 'Steps are compared by their medians; the interval is a bootstrap over the steady steps.'),
    h('li', null, 'The prediction is that of the run before, for the changes that the run after made.'),
    scale !== 1 ? h('li', null, 'Times of the run after are normalised to the batch size of the run before.') : null),
  termsOf([['before', comparison.before.source], ['after', comparison.after.source], ['page', `stepscope ${words_.stepscope}; the data block "comparison" is the JSON of stepscope compare, version ${
    comparison.version}`]]))];
}
