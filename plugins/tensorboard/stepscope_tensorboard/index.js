// The tab "Advice": the runs on the left, the report of the chosen one on the right. TensorBoard calls render() in an
// iframe of its own. Names come from traces: they only ever become text.

const POLL_MS = 5000;

const STYLE = `
  :root { color-scheme: light dark; font: 14px system-ui, sans-serif; }
  body { margin: 0; height: 100vh; display: flex; background: Canvas; color: CanvasText; }
  nav { flex: 0 0 20rem; overflow: auto; padding: 0.75rem; border-right: 1px solid GrayText; box-sizing: border-box; }
  main { flex: 1; display: flex; flex-direction: column; min-width: 0; }
  iframe { flex: 1; border: 0; width: 100%; background: Canvas; }
  h1 { font-size: 1.1rem; margin: 0 0 0.5rem; }
  ul { list-style: none; margin: 0 0 0.75rem; padding: 0; }
  li { margin: 0.15rem 0; }
  .run { font-size: 1rem; font-weight: 600; margin: 0.75rem 0 0.15rem; overflow-wrap: anywhere; }
  .start, .note { color: GrayText; font-weight: normal; font-size: 0.85rem; }
  button { font: inherit; text-align: left; border: 1px solid transparent; border-radius: 4px; background: none;
           color: inherit; padding: 0.2rem 0.4rem; cursor: pointer; }
  button:hover, button:focus-visible { border-color: Highlight; }
  button[aria-current="true"] { background: Highlight; color: HighlightText; }
  .window { display: flex; align-items: baseline; gap: 0.3rem; }
  .trace button { font-size: 0.85rem; margin-left: 1.6rem; }
  #compare { border-color: GrayText; width: 100%; text-align: center; }
  #compare:disabled { color: GrayText; cursor: default; }
  #status { padding: 0.75rem; }
  @media (max-width: 40rem) { body { flex-direction: column; } nav { flex: 0 0 auto; max-height: 40vh; } }
`;

function element(tag, properties = {}, children = []) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function startInWords(start) {
  const parts = start.split("_");
  return parts.length === 6 ? `${parts.slice(0, 3).join("-")} ${parts.slice(3).join(":")}` : "";
}

// Runs of older versions have no name, and a log directory may be one itself.
function nameOf(window) {
  return window.name || window.id.split("/stepscope/")[0] || "run";
}

function noteOf(window) {
  if (window.steps < 0) return "no report yet";
  if (window.steps === 0) return "no steps";
  const step = `${window.step_ms.toPrecision(3)} ms`;
  if (!window.first_finding) return `${step}, nothing to change`;
  const most = window.gain_kind === "bound" ? "at most " : "";
  return `${step}, ${window.first_finding}: ${most}${window.first_gain_ms_per_step.toPrecision(3)} ms`;
}

export async function render() {
  document.head.append(element("style", {textContent: STYLE}));
  const list = element("div", {id: "runs"});
  const compare = element("button", {id: "compare", textContent: "Compare two windows", disabled: true});
  const status = element("p", {id: "status"});
  status.setAttribute("role", "status");
  const frame = element("iframe", {title: "Report"});
  // The page may run its own scripts, and reach nothing of TensorBoard.
  frame.setAttribute("sandbox", "allow-scripts");
  const nav = element("nav", {}, [element("h1", {textContent: "Runs"}), compare, list]);
  nav.setAttribute("aria-label", "Runs");
  document.body.append(nav, element("main", {}, [status, frame]));

  let shown = "";       // the address in the frame
  let known = "";       // the list, as it was drawn last
  let chosen = [];      // ids of windows to compare, in the order of the clicks

  function show(address) {
    shown = address;
    status.textContent = "Reading the trace\u2026";
    status.hidden = false;
    frame.src = address;
    mark();
  }
  frame.addEventListener("load", () => { status.hidden = shown !== ""; });

  function mark() {
    for (const button of list.querySelectorAll("button"))
      button.setAttribute("aria-current", String(button.dataset.address === shown));
    compare.disabled = chosen.length !== 2;
  }

  function link(text, parameters, label) {
    const address = "page?" + new URLSearchParams(parameters);
    const button = element("button", {textContent: text, onclick: () => show(address)});
    button.dataset.address = address;
    if (label) button.setAttribute("aria-label", label);
    return button;
  }

  function rowsOf(window) {
    const name = window.cycle < 0 ? "window" : `window ${window.cycle}`;
    const box = element("input", {type: "checkbox", checked: chosen.includes(window.id)});
    box.setAttribute("aria-label", `compare ${nameOf(window)} ${name}`);
    box.addEventListener("change", () => {
      chosen = chosen.filter((id) => id !== window.id);
      if (box.checked) chosen.push(window.id);
      for (const id of chosen.splice(0, chosen.length - 2))
        for (const other of list.querySelectorAll("input")) if (other.value === id) other.checked = false;
      mark();
    });
    box.value = window.id;
    const ranks = window.traces.length === 1 ? "1 rank" : `${window.traces.length} ranks`;
    const rows = [element("li", {className: "window"}, [
      box, link(`${name}, ${ranks}`, {window: window.id}, `${nameOf(window)}, ${name}, ${ranks}`),
      element("span", {className: "note", textContent: noteOf(window)})])];
    if (window.traces.length > 1) {
      for (const trace of window.traces) {
        const rank = trace.replace(/\.(pt\.trace\.)?json.*$/, "").replace(/^rank(\d)/, "rank $1");
        rows.push(element("li", {className: "trace"}, [link(rank, {window: window.id, trace})]));
      }
    }
    return rows;
  }

  function draw(windows) {
    list.replaceChildren();
    let run = null, rows = null;
    for (const window of windows) {
      const folder = window.id.replace(/(^|\/)c\d+$/, "");
      if (folder !== run) {
        run = folder;
        rows = element("ul");
        const title = element("h2", {className: "run", textContent: nameOf(window) + " "});
        title.append(element("span", {className: "start", textContent: startInWords(window.start)}));
        list.append(title, rows);
      }
      rows.append(...rowsOf(window));
    }
    mark();
  }

  async function refresh() {
    try {
      const answer = await fetch("./runs");
      const text = await answer.text();
      if (text === known) return;
      known = text;
      const {windows, error} = JSON.parse(text);
      if (error) throw new Error(error);
      chosen = chosen.filter((id) => windows.some((window) => window.id === id));
      draw(windows);
      if (!windows.length) status.textContent = "No runs of stepscope in the log directory yet.";
      else if (!shown) show("page?" + new URLSearchParams({window: windows[0].id}));
    } catch (error) {
      status.hidden = false;
      status.textContent = `The list of runs cannot be read: ${error.message}`;
    }
  }

  // The earlier of the two comes first, whichever was clicked first: the list has the newest on top.
  compare.addEventListener("click", () => {
    const order = [...list.querySelectorAll("input")].map((box) => box.value);
    const [after, before] = [...chosen].sort((a, b) => order.indexOf(a) - order.indexOf(b));
    show("compare?" + new URLSearchParams({before, after}));
  });

  await refresh();
  setInterval(refresh, POLL_MS);
}
