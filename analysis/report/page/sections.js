// What a report shows below its findings.

// All steps as stacked columns; those that are not averaged are marked below.
function stepColumns(report) {
  const steps = report.step_times;
  if (steps.length < 2) return null;
  const most = Math.max(...steps.map((step) => step.ms));
  const height = 150;
  const width = 1000 / steps.length;
  const shapes = steps.map((step, index) => {
    let at = height;
    return svg('g', null, svg('title', null, `step ${step.step}, ${step.kind}: ${ms(step.ms)}${step.why ? '; ' + step.why : ''}`),
      parts(step.time_split_ms).map(([cause, value]) => {
        const tall = height * value / most;
        at -= tall;
        return box(index * width, at, Math.max(width * (steps.length > 150 ? 1 : 0.86), 0.4), tall, colour(cause));
      }),
      step.kind === 'steady' ? null : box(index * width, height + 4, Math.max(width * 0.86, 2), 5, 'odd'));
  });
  const odd = steps.filter((step) => step.kind !== 'steady' || step.why);
  const columns = [
    { label: 'step', kind: 'n', value: (row) => row.step, text: (row) => String(row.step), code: false },
    textColumn('kind', 'kind'), msColumn('ms', 'ms'), textColumn('why', 'why')];
  return sub('Every step', h('figure', { class: 'columns' },
    h('div', { class: 'y-axis', 'aria-hidden': 'true' }, h('span', null, ms(most)), h('span', null, '0')), strip(1000, height + 10, shapes),
    h('figcaption', { class: 'dim' }, `steps ${steps[0].step} to ${steps[steps.length - 1].step}, by cause`,
      report.steps.count > steps.length ? ` (${steps.length} of ${report.steps.count}: the first ones, then those that are slow)` : '',
      odd.length ? '; marked below: left out of the means' : '')),
  odd.length ? dataTable('Steps that are slow, or that no mean counts', odd, columns, { by: 2, filter: false }) : null);
}

const PHASES = ['data', 'forward', 'backward', 'optimizer', 'validate', 'other'];
function phases(report) {
  const rows = Object.entries(report.phases_ms).filter(([, value]) => value > 0)
    .sort(([a], [b]) => PHASES.indexOf(a) - PHASES.indexOf(b));
  if (!rows.length) return null;
  const whole = rows.reduce((sum, [, value]) => sum + value, 0);
  let at = 0;
  const bar = strip(1000, 22, rows.map(([name, value]) => {
    const one = box(at, 0, 1000 * value / whole, 22, 'phase p-' + (PHASES.includes(name) ? name : 'other'), `${name} ${ms(value)}`);
    at += 1000 * value / whole;
    return one;
  }));
  return sub('Phases', bar, h('ul', { class: 'keys' }, rows.map(([name, value]) =>
    h('li', null, h('span', { class: 'swatch phase p-' + (PHASES.includes(name) ? name : 'other'), 'aria-hidden': 'true' }), name + ' ',
      figure(`phases_ms.${name}`, ms(value)), ' ', h('span', { class: 'dim' }, percent(value / whole))))));
}

function criticalPath(report) {
  if (!Object.keys(report.path_split_ms).length) return null;
  const whole = Object.values(report.path_split_ms).reduce((sum, value) => sum + value, 0);
  const rows = report.critical_path.map((part) => ({ ...part, cause: words(part.category), name: withFusedOps(part) || 'between operators' }));
  return sub('Critical path', note('The chain of work and waits that sets the length of the step: what is not on it can become faster without effect.'),
    stackedBar(report.path_split_ms, whole, 22), legend(report.path_split_ms, whole, 'path_split_ms'),
    rows.length ? dataTable('Parts of the critical path', rows, [textColumn('what', 'name'), textColumn('cause', 'cause'),
      msColumn('ms per step', 'ms_per_step', { bar: true })], { by: 2 }) : null);
}

function stepPictures(details) {
  const drawn = details.steps.filter((step) => step.lanes.length);
  if (!drawn.length) return null;
  const panels = drawn.map((step, index) => [step.step < 0 ? 'the recording' : `step ${step.step}${index === 0 ? ' (typical)' : ''}`,
    timeline(step, details, [], false)]);
  return sub(details.rank >= 0 ? `Timeline, rank ${details.rank}` : 'Timeline', tabs('steps drawn', panels), timelineLegend(drawn, details));
}

function stepSection(report, details, words_) {
  if (!report.steps.count) {
    if (!report.recording_ms) return null;
    return section('step', 'Recording', 'The recording', stackedBar(report.recording_split_ms, report.recording_ms, 28),
      legend(report.recording_split_ms, report.recording_ms, 'recording_split_ms', null, 'ms'), stepPictures(details));
  }
  return section('step', 'Step', 'The step', words_.notes.map((text) => note(text)),
    sub('Mean step by cause', stackedBar(report.time_split_ms, report.steps.mean_ms, 28),
      legend(report.time_split_ms, report.steps.mean_ms, 'time_split_ms', report.time_split_spread_ms)),
    stepColumns(report), phases(report), stepPictures(details), criticalPath(report));
}

function placeTable(caption, rows, hasGpu) {
  if (!rows.length) return null;
  const columns = [{ label: 'name', value: (row) => row.name,
    text: (row) => (row.class && row.class !== row.name ? `${row.name} (${row.class})` : row.name) }];
  if (hasGpu) columns.push(msColumn('GPU ms', 'gpu_self_ms_per_step', { bar: true }), msColumn('GPU, with nested', 'gpu_total_ms_per_step'));
  columns.push(msColumn('host ms', 'self_ms_per_step', { bar: !hasGpu }), msColumn('host, with nested', 'total_ms_per_step'),
    countColumn('calls', 'calls_per_step'));
  return dataTable(caption, rows, columns, { by: 1 });
}

function opTable(report) {
  const rows = report.top_ops.map((op) => ({ ...op, label: withFusedOps(op) + (op.other_thread ? ' (other thread)' : '') }));
  if (!rows.length) return null;
  const onGpu = rows.some((op) => op.gpu_self_ms_per_step > 0);
  const columns = [textColumn('operator', 'label')];
  if (onGpu) columns.push(msColumn('GPU ms', 'gpu_self_ms_per_step', { bar: true }));
  columns.push(msColumn(onGpu ? 'host self ms' : 'self ms', 'self_ms_per_step', { bar: !onGpu }),
    msColumn(onGpu ? 'host total ms' : 'total ms', 'total_ms_per_step'), countColumn('calls', 'calls_per_step'));
  return dataTable((onGpu ? 'Operators by GPU time' : 'Operators by self time') + perStep, rows, columns, { by: 1 });
}

function kernelTable(details) {
  if (!details.kernels.length) return null;
  const cores = (row) => (row.tensor_cores === 1 ? 'yes' : row.tensor_cores === 0 ? (row.eligible ? 'no, could' : 'no') : '');
  const columns = [fusedColumn('kernel'), msColumn('ms', 'ms', { bar: true }), countColumn('calls', 'calls'),
    textColumn('kind', 'kind'), textColumn('type', 'precision'),
    { label: 'Tensor Cores', value: cores, text: cores },
    knownColumn('occupancy', 'occupancy_frac', percent, 'estimate, weighted by time'),
    knownColumn('FLOP/s', 'flops_per_s', flops, 'of the calls whose shapes are known'),
    knownColumn('bytes/s', 'bytes_per_s', rate, 'least traffic that the shapes need, per second'),
    knownColumn('of the roofline', 'roofline_frac', percent, 'the shortest time that the device\u2019s peaks allow, of the time taken')];
  const empty = (key) => details.kernels.every((row) => row[key] < 0);
  const kept = columns.filter((column) => !(column.label === 'occupancy' && empty('occupancy_frac')) &&
    !(column.label === 'FLOP/s' && empty('flops_per_s')) && !(column.label === 'bytes/s' && empty('bytes_per_s')) &&
    !(column.label === 'of the roofline' && empty('roofline_frac')));
  const shown = details.kernels.reduce((sum, row) => sum + row.ms, 0);
  return h('div', null, note(details.eligible_ms > 0
    ? `${ms(details.eligible_ms)} of ${ms(details.kernels_ms)} suit Tensor Cores; ${percent(details.tensor_cores_ms / details.eligible_ms)} of that runs on them. ` : '',
  details.peaks_device ? `Roofline: nominal peaks of ${details.peaks_device}. ` : '',
  details.kernel_count > details.kernels.length
    ? `The ${details.kernels.length} longest of ${details.kernel_count} kernels, ${percent(shown / details.kernels_ms)} of the kernel time.` : ''),
  dataTable('Kernels by time' + perStep, details.kernels, kept, { by: 1 }));
}

function copyTable(details) {
  const speed = (row) => (row.bytes > 0 && row.ms > 0 ? row.bytes / row.ms * 1000 : -1);
  return details.copies.length ? dataTable('Copies by time' + perStep, details.copies, [textColumn('from and to', 'kind', { code: false }),
    msColumn('ms', 'ms', { bar: true }), countColumn('calls', 'calls'), knownColumn('bytes', 'bytes', bytes),
    { label: 'rate', kind: 'n', value: speed, text: (row) => (speed(row) < 0 ? '' : rate(speed(row))) }], { by: 1 }) : null;
}

function collectiveTable(details) {
  return details.collectives.length ? dataTable('Collectives by time' + perStep, details.collectives, [
    textColumn('kind', 'kind', { code: false }), msColumn('ms', 'ms', { bar: true }), msColumn('exposed ms', 'exposed_ms'),
    countColumn('calls', 'calls'), knownColumn('bytes', 'bytes', bytes), knownColumn('ranks', 'group_size', String),
    textColumn('group', 'group')], { by: 1 }) : null;
}

function tablesSection(report, details) {
  const of = details.rank >= 0 && report.ranks ? ` (rank ${details.rank})` : '';
  return section('tables', 'Tables', 'Tables', tabs('tables', [['Operators', opTable(report)],
    ['Modules', placeTable('Modules by self time' + perStep, report.modules, report.has_gpu)],
    ['Source lines', placeTable('Source lines by time' + perStep, report.lines, report.has_gpu)],
    ['Kernels' + of, kernelTable(details)], ['Copies' + of, copyTable(details)], ['Collectives' + of, collectiveTable(details)]]));
}

// What the curve adds up, and which totals it lacks: rules about a full or fragmented memory need them.
function memorySource(memory, peaks) {
  const peak = peaks.find((one) => one.device === memory.device && one.step === memory.step);
  if (!peak) return null;
  if (peak.counted) {
    return note(memory.device === 'cpu' ? 'Tensors in host memory, from the sizes of their allocations and releases.'
      : 'Tensors in device memory, from the sizes of their allocations and releases. The totals of the allocator (allocated, reserved) were not recorded.');
  }
  return note(memory.device === 'cpu' ? 'Tensors in host memory.'
    : `Tensors in device memory, as the allocator counts them.${peak.reserved_bytes >= 0 ? ` It had reserved ${bytes(peak.reserved_bytes)}.` : ''}`);
}

function memoryCurve(memory, peaks) {
  const points = memory.time_us.map((at, index) => [at, memory.bytes[index]]);
  const older = memory.older_bytes;
  const rows = older > 0 ? [...memory.owners, { op: 'allocated before the recording', bytes: older, blocks: -1 }] : memory.owners;
  const columns = [{ label: 'allocated by', value: (row) => row.op, text: (row) => row.op || 'no operator' },
    { label: 'bytes', kind: 'n', value: (row) => row.bytes, text: (row) => bytes(row.bytes), bar: true },
    { label: 'of the peak', kind: 'n', value: (row) => row.bytes, text: (row) => percent(row.bytes / memory.peak_bytes) },
    knownColumn('blocks', 'blocks', String)];
  return sub(`${memory.device.toUpperCase()}${memory.step >= 0 ? `, step ${memory.step}` : ''}`,
    h('p', null, `Peak ${bytes(memory.peak_bytes)} at ${duration(memory.peak_us)} of ${duration(memory.length_us)}.`), memorySource(memory, peaks),
    points.length > 1 ? h('figure', { class: 'chart' },
      h('div', { class: 'y-axis', 'aria-hidden': 'true' }, h('span', null, bytes(memory.peak_bytes)), h('span', null, '0')),
      curve(points, 1000, 140, { step: true, fill: true, mark: memory.peak_us, end: memory.length_us, most: memory.peak_bytes })) : null,
    rows.length ? dataTable('What is live at the peak', rows, columns, { by: 1, filter: false }) : null);
}

function memorySection(report, details) {
  const peaks = report.memory_peaks.map((peak) => ({ ...peak, known: peak.counted ? 'what the recording allocated' : 'all' }));
  const columns = [textColumn('device', 'device', { code: false }), knownColumn('step', 'step', String),
    { label: 'peak', kind: 'n', value: (row) => row.peak_bytes, text: (row) => bytes(row.peak_bytes), bar: true },
    knownColumn('reserved', 'reserved_bytes', bytes), textColumn('reached by', 'op'), textColumn('counts', 'known')];
  return section('memory', 'Memory', 'Memory', details.memory.map((memory) => memoryCurve(memory, report.memory_peaks)),
    peaks.length ? h('details', { class: 'more' }, h('summary', null, 'Peak of every step'),
      dataTable('Peak memory of tensors', peaks, columns, { by: 2 })) : null);
}

// Small curves of one figure each; without a known value there is none. Of a figure that reads the same everywhere, a curve would show only noise.
function counters(rows, at, figures) {
  return h('div', { class: 'counters' }, figures.map(([label, key, show]) => {
    const known = rows.filter((row) => row[key] >= 0);
    if (!known.length) return null;
    const values = known.map((row) => row[key]);
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const [low, high] = [show(Math.min(...values)), show(Math.max(...values))];
    return h('figure', { class: 'counter' }, h('figcaption', null, label, h('b', null, show(mean)),
      h('small', null, low !== high ? `${low} to ${high}` : known.length > 1 ? 'throughout' : '')),
    low !== high ? curve(known.map((row, index) => [at(row, index), row[key]]), 300, 48,
      { begin: at(known[0], 0), end: at(known[known.length - 1], known.length - 1) }) : null);
  }));
}

function loadSection(details) {
  const cores = (value) => number(value) + ' cores';
  const devices = details.devices.map((device) => sub(`GPU ${device.ordinal}`,
    counters(device.samples, (row) => row.time_ms, [['SM clock', 'sm_clock_mhz', (value) => fixed(value, 0) + '\u00a0MHz'],
      ['power', 'power_w', (value) => fixed(value, 0) + '\u00a0W'], ['temperature', 'temperature_c', (value) => fixed(value, 0) + '\u00a0\u00b0C'],
      ['SMs active', 'sm_active_frac', percent], ['Tensor Cores active', 'tensor_active_frac', percent],
      ['memory bandwidth', 'dram_frac', percent],
      ['memory of tensors', 'allocated_bytes', bytes], ['reserved memory', 'reserved_bytes', bytes]]),
    device.power_limit_w > 0 ? note(`Power limit ${fixed(device.power_limit_w, 0)} W.`) : null));
  const host = details.host.length ? sub('Host, by step', counters(details.host, (row, index) => index, [
    ['CPU time of the process', 'process_cores', cores], ['training thread on a core', 'training_thread_frac', percent],
    ['training thread waits for a core', 'run_delay_frac', percent], ['CPU time of the loader', 'loader_cores', cores], ['read from storage', 'read_bytes_per_s', rate]])) : null;
  const loaders = details.loaders.length ? dataTable('Loaders', details.loaders, [textColumn('loader', 'name'), textColumn('kind', 'kind'),
    knownColumn('workers', 'workers', String), knownColumn('batch size', 'batch_size', String)], { filter: false }) : null;
  const title = [devices.length ? 'GPU' : '', host ? 'host' : '', loaders ? 'loader' : ''].filter((one) => one).join(', ').replace(/, (?=\w+$)/, ' and ');
  return section('load', 'Load', title.charAt(0).toUpperCase() + title.slice(1), devices, host, loaders);
}

function limitsSection(report, words_) {
  const skipped = {};
  for (const rule of report.skipped) (skipped[rule.why] = skipped[rule.why] || []).push(rule.id);
  const clean = [...new Set([...report.clean, ...report.coverage.flatMap((answer) => answer.looked)])].sort();
  const ids = (list) => h('span', { class: 'ids' }, list.map((id, index) => [index ? ', ' : '', h('code', null, id)]));
  return section('limits', 'Limits', 'What was not looked at',
    report.losses.length ? sub('Missing from the recording', h('ul', null, report.losses.map((loss) =>
      h('li', null, h('b', null, loss.severity), ' ', loss.detail || loss.name, loss.count > 0 ? ` (${loss.count})` : '')))) : null,
    words_.unanswered.length ? sub('No change is offered for', h('ul', null, words_.unanswered.map((text) => h('li', null, breakable(text))))) : null,
    Object.keys(skipped).length ? sub('Rules that did not run', h('dl', { class: 'terms' }, Object.entries(skipped).map(([why, list]) =>
      [h('dt', null, why), h('dd', null, ids(list))]))) : null,
    clean.length ? h('details', { class: 'more' }, h('summary', null, `${plural(clean.length, 'rule')} looked and found nothing`),
      h('p', null, ids(clean))) : null,
    report.superseded.length ? h('details', { class: 'more' }, h('summary', null, 'Left out, because another finding explains the same time'),
      h('ul', null, report.superseded.map((text) => h('li', null, breakable(text))))) : null);
}

// "4 x Tesla V100, A100"
function countedNames(names) {
  return [...new Set(names)].map((name) => [names.filter((one) => one === name).length, name])
    .map(([count, name]) => (count > 1 ? `${count} x ${name}` : name)).join(', ');
}

function methodSection(report, details, words_) {
  const replay = report.replay;
  const lines = [
    'Times are milliseconds per steady step, from the timestamps of the trace; every nanosecond of a step has one cause.',
    replay.valid ? `Gains are predicted by replaying ${plural(replay.steps, 'recorded step')} with the change. Replayed without changes, the step is off by ${
      percent(Math.abs(replay.no_edit_error))}.` : replay.why_not ? `${report.ranks ? 'Some ranks have' : 'Gains are'} upper bounds, not predictions: ${replay.why_not}.` : null,
    'Likely ranges hold 90 % of the outcomes of known changes; where none are known, the range is the model\u2019s own, marked \u201croughly\u201d.',
    details.rank >= 0 && report.ranks ? `Drawings and the tables of kernels, copies and collectives are those of rank ${details.rank}.` : null];
  const run = report.run;
  return section('method', 'Method', 'How the figures were obtained', h('ul', null, lines.filter((line) => line).map((line) => h('li', null, line))),
    termsOf([['trace', run.source], ['recorded by', run.producer], ['run', run.run_id], ['host', run.host],
      ['torch', run.torch_version], ['CUDA', run.cuda_version], ['CPU', run.cpu_model + (run.usable_cores > 0 ? `, ${plural(run.usable_cores, 'usable core')}` : '')],
      ['devices', countedNames(run.devices)], ['page', `stepscope ${words_.stepscope}; the data block "report" is the JSON of stepscope analyze, version ${report.version}`]]));
}
