// Findings as cards, and the plan that they make.

const SEVERITIES = { critical: 'critical', high: 'high', medium: 'medium', low: 'low', note: 'note' };
const CONFIDENCE = { proven: 'the events show it', strong: 'it follows from the events and the assumption',
  hint: 'other causes remain possible' };
const isNote = (finding) => finding.severity === 'note' && finding.status === 'ok';

function copyButton(text) {
  const button = h('button', { type: 'button', class: 'quiet copy', onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = 'copied';
    } catch (error) {
      button.textContent = 'press Ctrl+C';
      getSelection().selectAllChildren(button.parentElement.querySelector('code'));
    }
    setTimeout(() => { button.textContent = 'copy'; }, 2000);
  } }, 'copy');
  return button;
}
// Only code can be pasted into a program.
const fixText = (text, isCode) => (!text ? null : isCode
  ? h('div', { class: 'fix' }, h('pre', { tabindex: 0 }, h('code', null, breakable(text))), copyButton(text))
  : h('div', { class: 'fix' }, h('p', { class: 'prose' }, breakable(text))));

// The tab of the program's language comes first.
function fixOf(finding, language, cppIsCode, pythonIsCode) {
  const { cpp, python } = finding.fix;
  if (!cpp && !python) return null;
  const both = [['Python', fixText(python, pythonIsCode)], ['C++', fixText(cpp, cppIsCode)]];
  const panels = cpp === python ? fixText(cpp, cppIsCode) : tabs('fix of ' + finding.id, language === 'c++' ? both.reverse() : both);
  return h('div', { class: 'fix-box' }, h('h4', null, 'Fix'), panels);
}

// The gain as a bar of the step that it refers to.
function gainOf(finding, text) {
  if (!text) return null;
  const gain = finding.gain_ms_per_step;
  const whole = Math.max(finding.baseline_ms || 0, gain.expected, gain.high, 1e-9);
  const x = (value) => 1000 * value / whole;
  const bound = finding.gain_kind === 'bound';
  return h('div', { class: 'gain' }, h('p', null, breakable(text)),
    strip(1000, 8, box(0, 0, 1000, 8, 'track'), box(0, 0, x(gain.expected), 8, bound ? 'bound' : 'saved'),
      (!bound || gain.pairs > 0) && gain.high > gain.low ? box(x(gain.low), 3, x(gain.high - gain.low), 2, 'range') : null));
}

// The examples on the steps that are drawn, else in words.
function examplesOf(finding, index, details) {
  if (!finding.examples.length) return null;
  const drawn = details.examples.filter((one) => one.finding === index);
  const items = finding.examples.map((example) => h('li', null, example.step >= 0 ? `step ${example.step}: ` : '',
    `${duration((example.end_ns - example.begin_ns) / 1000)} ${/^(at|after|before|between) /.test(example.what) ? '' : 'in '}`, breakable(example.what)));
  const first = drawn.length ? details.steps[drawn[0].step] : null;
  const marks = first ? drawn.filter((one) => one.step === drawn[0].step).map((one) => [one.begin_us, one.length_us]) : [];
  return h('div', { class: 'examples' }, h('h4', null, 'Examples'), h('ul', null, items),
    first && first.lanes.length ? [h('p', { class: 'dim' }, `Marked on step ${first.step}${details.rank >= 0 ? ` of rank ${details.rank}` : ''}:`),
      timeline(first, details, marks, true)] : null);
}

function termsOf(rows) {
  const kept = rows.filter(([, text]) => text);
  return kept.length ? h('dl', { class: 'terms' }, kept.map(([term, text]) => [h('dt', null, term), h('dd', null, breakable(text))])) : null;
}

function findingCard(finding, index, language, words_, details) {
  const mark = words_.numbers[index];
  const aboutRecording = !mark && !isNote(finding);
  const severity = aboutRecording ? finding.status : finding.severity;
  const id = `finding-${index}`;
  return h('article', { class: `finding is-${Object.hasOwn(SEVERITIES, severity) ? severity : finding.status}`, id, 'aria-labelledby': id + '-title',
    'data-finding': finding.id },
  h('header', null,
    h('h3', { id: id + '-title' }, mark ? h('span', { class: 'number' }, mark) : null, h('span', { class: 'rule' }, finding.id)),
    h('span', { class: 'badges' }, h('span', { class: 'badge severity' }, severity),
      h('span', { class: 'badge', title: CONFIDENCE[finding.confidence] }, finding.confidence))),
  gainOf(finding, words_.gains[index]),
  h('p', { class: 'evidence' }, breakable(finding.evidence)),
  finding.where ? h('p', { class: 'where' }, h('span', { class: 'dim' }, 'where '), h('code', null, breakable(finding.where))) : null,
  fixOf(finding, language, words_.cpp_is_code[index], words_.python_is_code[index]),
  examplesOf(finding, index, details),
  h('details', null, h('summary', null, 'Assumption, and what would prove this wrong'),
    termsOf([['assumes', finding.assumption], ['wrong if', finding.wrong_if], ['see', finding.reference],
      ['explains also', finding.also.join('; ')]])));
}

function findingsSection(report, details, words_) {
  const cards = [];
  const notes = [];
  report.findings.forEach((finding, index) => {
    (isNote(finding) ? notes : cards).push(findingCard(finding, index, report.run.language, words_, details));
  });
  const noted = notes.length ? h('details', { class: 'more' }, h('summary', null,
    `${plural(notes.length, 'note')}: no gain here, or one too small to report or to tell from noise`), notes) : null;
  return section('findings', 'Findings', 'Findings', cards.length ? cards : note('No rule advises a change.'), noted);
}

// Where the step goes from now to after all changes of the plan.
function planWaterfall(plan) {
  if (!plan.ids.length || plan.step_after_ms <= 0) return null;
  const whole = Math.max(plan.step_before_ms, plan.high_ms);
  const each = plan.after_each_ms || [];
  const rows = [{ label: 'step now', from: 0, to: plan.step_before_ms, kind: 'now',
    text: figure('plan.step_before_ms', ms(plan.step_before_ms)) }];
  let before = plan.step_before_ms;
  plan.ids.forEach((id, index) => {
    const after = index < each.length ? each[index] : plan.step_after_ms;
    if (index >= each.length && index + 1 < plan.ids.length) return;
    rows.push({ label: id, from: Math.min(before, after), to: Math.max(before, after), kind: after <= before ? 'saves' : 'costs',
      text: figure(`plan.after_each_ms.${index}`, signedMs(after - before), { 'data-value': after }) });
    before = after;
  });
  rows.push({ label: 'step after', from: 0, to: plan.step_after_ms, kind: 'after', low: plan.low_ms, high: plan.high_ms,
    text: figure('plan.step_after_ms', ms(plan.step_after_ms)) });
  return sub('From now to after', waterfall(rows, whole), note(plan.low_ms > 0
    ? `The thin line is the ${plan.pairs > 0 ? 'likely range' : 'model\u2019s own, rough range'} of the step after all changes: ${
      number(plan.low_ms)} to ${ms(plan.high_ms)}. ` : '', 'Each change is replayed on top of those above it.'));
}

function verdictSection(report, details, words_) {
  const split = report.time_split_ms;
  const steps = report.steps;
  const busy = (split.compute || 0) + (report.has_gpu ? (split.communication || 0) + (split.copy || 0) : 0);
  const tiles = steps.count ? [
    tile(steps.count === 1 ? 'step' : 'mean step', figure('steps.mean_ms', ms(steps.mean_ms)), steps.unprofiled_ms > 0 && steps.mean_ms > 1.05 * steps.unprofiled_ms
      ? `about ${ms(steps.unprofiled_ms)} without the profiler` : `median ${ms(steps.median_ms)}`),
    report.plan.ids.length ? tile('after the plan', ms(report.plan.step_after_ms),
      factor(report.plan.step_before_ms / report.plan.step_after_ms) + ' faster, predicted') : null,
    tile(report.has_gpu ? 'GPU busy' : 'computing', percent(busy / Math.max(steps.mean_ms, 1e-9)), ms(busy) + ' of the step'),
    tile('steps', figure('steps.steady', String(steps.steady)), `steady, of ${steps.count}${steps.steady > 1 ? `; vary by ${percent(steps.cov)}` : ''}`),
    report.ranks ? tile('ranks', String(report.ranks.rows.length), `wait ${ms(report.ranks.waiting_ms)} for each other`) : null,
  ] : [];
  return section('verdict', 'Verdict', 'Verdict', h('p', { class: 'headline' }, words_.headline),
    words_.plan && words_.plan !== words_.headline ? h('p', { class: 'lead' }, words_.plan) : null,
    words_.held_back ? note(words_.held_back) : null,
    tiles.length ? h('dl', { class: 'tiles' }, tiles) : null, planWaterfall(report.plan));
}
