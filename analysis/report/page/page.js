// Puts the page together.

// Light, dark, or as the system has it. Remembered where the browser allows it.
function themeButton() {
  const themes = ['auto', 'light', 'dark'];
  let chosen = 'auto';
  const button = h('button', { type: 'button', class: 'quiet theme', onclick: () => use(themes[(themes.indexOf(chosen) + 1) % 3], true) });
  function use(theme, keep) {
    chosen = themes.includes(theme) ? theme : 'auto';
    if (chosen === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    button.textContent = `theme: ${chosen}`;
    if (keep) try { localStorage.setItem('stepscope-theme', chosen); } catch (error) { /* a file may have no storage */ }
  }
  let kept = 'auto';
  try { kept = localStorage.getItem('stepscope-theme') || 'auto'; } catch (error) { /* likewise */ }
  use(kept, false);
  return button;
}

function masthead(title, facts) {
  return h('header', { class: 'masthead' }, h('div', { class: 'brand' }, h('span', null, 'stepscope'), themeButton()),
    h('h1', null, breakable(title)), h('p', { class: 'facts' }, facts.filter((fact) => fact).map((fact) => h('span', null, fact))));
}

const navigation = () => h('nav', { 'aria-label': 'sections' }, h('ul', null, sections.map((one) =>
  h('li', null, h('a', { href: '#' + one.id }, one.short)))));

function reportPage(report, details, words_) {
  const steps = report.steps;
  const head = masthead(words_.name, [words_.machine, words_.rank, report.ranks ? plural(report.ranks.rows.length, 'rank') : '',
    steps.count ? `${plural(steps.count, 'step')} of ${ms(steps.mean_ms)}` : '', report.run.host,
    report.run.torch_version ? `torch ${report.run.torch_version}` : '']);
  if (!steps.count) perStep = ', over the recording';
  const content = [verdictSection(report, details, words_), findingsSection(report, details, words_), stepSection(report, details, words_),
    tablesSection(report, details), memorySection(report, details), loadSection(details), ranksSection(report), limitsSection(report, words_),
    methodSection(report, details, words_)];
  return [head, navigation(), content];
}

const runName = (side) => side.name || side.source.split('/').pop();

const page = document.getElementById('page');
const words_ = dataOf('words');
causeWords = words_.causes;
const report = dataOf('report');
const comparison = dataOf('comparison');
const drawn = report ? reportPage(report, dataOf('details'), words_)
  : [masthead('Before and after', [`${runName(comparison.before)} \u2192 ${runName(comparison.after)}`]), comparisonPage(comparison, words_)];
if (comparison) drawn.splice(1, 0, navigation());
append(page, drawn);
document.documentElement.dataset.drawn = 'true';
// Details are closed on a screen and open on paper.
const folded = () => [...document.querySelectorAll('details')];
let opened = [];
addEventListener('beforeprint', () => {
  unfold.forEach((one) => one());
  opened = folded().filter((one) => !one.open);
  opened.forEach((one) => { one.open = true; });
});
addEventListener('afterprint', () => opened.forEach((one) => { one.open = false; }));
})();
