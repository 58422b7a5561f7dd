// Stands in for the Google Charts loader, which viewers fetch from the network:
// every chart is drawn as the table of its data. For screenshots without
// internet; what the numbers are is up to the viewer.
(() => {
  class DataTable {
    constructor(json) {
      this.cols = [];
      this.rows = [];
      this.props = {};
      if (json && json.cols) {
        this.cols = json.cols.map((c) => ({...c}));
        this.rows = (json.rows || []).map((r) => r.c.map((v) => v || {v: null}));
        this.props = json.p || {};
      }
    }
    addColumn(type, label, id) {
      this.cols.push(typeof type === 'object' ? {...type} : {type, label, id});
      return this.cols.length - 1;
    }
    addRow(row) {
      this.rows.push((row || []).map((v) => (v && typeof v === 'object' && 'v' in v) ? v : {v}));
      return this.rows.length - 1;
    }
    addRows(rows) {
      if (typeof rows === 'number') for (let i = 0; i < rows; i++) this.addRow(this.cols.map(() => null));
      else rows.forEach((row) => this.addRow(row));
    }
    insertColumn(at, type, label, id) {
      this.cols.splice(at, 0, {type, label, id});
      this.rows.forEach((row) => row.splice(at, 0, {v: null}));
    }
    removeColumn(at) { this.removeColumns(at, 1); }
    removeColumns(at, n) {
      this.cols.splice(at, n);
      this.rows.forEach((row) => row.splice(at, n));
    }
    removeRow(at) { this.rows.splice(at, 1); }
    removeRows(at, n) { this.rows.splice(at, n); }
    getNumberOfColumns() { return this.cols.length; }
    getNumberOfRows() { return this.rows.length; }
    getColumnLabel(c) { return (this.cols[c] || {}).label || ''; }
    getColumnId(c) { return (this.cols[c] || {}).id || ''; }
    getColumnType(c) { return (this.cols[c] || {}).type || 'string'; }
    getColumnIndex(id) { return this.cols.findIndex((c) => c.id === id || c.label === id); }
    getColumnProperty() { return null; }
    getColumnRole(c) { return (this.cols[c] || {}).role || ''; }
    setColumnLabel(c, label) { this.cols[c].label = label; }
    setColumnProperty() {}
    setColumnProperties() {}
    getValue(r, c) { return (this.rows[r][c] || {}).v; }
    getFormattedValue(r, c) { const cell = this.rows[r][c] || {}; return cell.f || String(cell.v); }
    setValue(r, c, v) { this.rows[r][c] = {v}; }
    setCell(r, c, v, f) { this.rows[r][c] = {v, f}; }
    setFormattedValue(r, c, f) { this.rows[r][c].f = f; }
    setProperty() {}
    setRowProperty() {}
    getProperty() { return null; }
    getProperties() { return {}; }
    getRowProperty() { return null; }
    getTableProperty(name) { return this.props[name]; }
    getTableProperties() { return this.props; }
    setTableProperty(name, value) { this.props[name] = value; }
    getColumnRange(c) {
      const values = this.rows.map((r) => r[c].v);
      return {min: Math.min(...values), max: Math.max(...values)};
    }
    getDistinctValues(c) { return [...new Set(this.rows.map((r) => r[c].v))]; }
    getFilteredRows(filters) {
      return this.rows.map((_, i) => i).filter((i) => filters.every((f) => {
        const v = this.getValue(i, f.column);
        return !('value' in f) || v === f.value;
      }));
    }
    getSortedRows(by) {
      const first = Array.isArray(by) ? by[0] : by;
      const c = typeof first === 'object' ? first.column : first;
      const sign = first.desc ? -1 : 1;
      return this.rows.map((_, i) => i).sort((a, b) => {
        const x = this.getValue(a, c), y = this.getValue(b, c);
        return x < y ? -sign : x > y ? sign : 0;
      });
    }
    sort(by) { this.rows = this.getSortedRows(by).map((i) => this.rows[i]); }
    clone() { return new DataTable(JSON.parse(this.toJSON())); }
    toJSON() { return JSON.stringify({cols: this.cols, rows: this.rows.map((c) => ({c})), p: this.props}); }
    toDataTable() { return this; }
  }
  class DataView extends DataTable {
    constructor(table) {
      super();
      this.source = table;
      this.cols = table.cols;
      this.rows = table.rows;
      this.props = table.props;
    }
    setColumns(list) {
      const of = this.source;
      this.cols = list.map((c) => typeof c === 'object' ? c : of.cols[c]);
      this.rows = of.rows.map((row, r) => list.map((c) => typeof c !== 'object' ? row[c] :
        typeof c.calc === 'function' ? {v: c.calc(of, r)} : (c.sourceColumn !== undefined ? row[c.sourceColumn] : {v: ''})));
    }
    setRows(list) { this.rows = list.map((r) => this.rows[r]); }
    hideColumns(list) { this.setColumns(this.source.cols.map((_, i) => i).filter((i) => !list.includes(i))); }
    hideRows(list) { this.rows = this.rows.filter((_, i) => !list.includes(i)); }
    getTableColumnIndex(c) { return c; }
    getTableRowIndex(r) { return r; }
  }
  class Chart {
    constructor(container) { this.container = container; }
    draw(data) {
      if (!this.container || !data || !data.rows) return;
      const text = (v) => v === null || v === undefined ? '' : typeof v === 'number' ? String(+v.toFixed(4)) : String(v);
      const cell = (tag, html) => `<${tag} style="border:1px solid #ccc;padding:1px 6px;font:12px sans-serif;text-align:left">${html}</${tag}>`;
      const shown = data.rows.slice(0, 24);
      this.container.innerHTML = '<table style="border-collapse:collapse"><tr>' +
        data.cols.map((c) => cell('th', text(c.label || c.id))).join('') + '</tr>' +
        shown.map((row) => '<tr>' + row.map((c) => cell('td', text(c && (c.f || c.v)).slice(0, 160))).join('') + '</tr>').join('') + '</table>';
    }
    clearChart() { if (this.container) this.container.innerHTML = ''; }
    getSelection() { return []; }
    setSelection() {}
    setAction() {}
    getImageURI() { return ''; }
    getChartLayoutInterface() { return {getBoundingBox: () => ({left: 0, top: 0, width: 0, height: 0}), getXLocation: () => 0, getYLocation: () => 0}; }
    getContainer() { return this.container; }
  }
  class Anything { constructor() {} format() {} draw() {} bind() {} setState() {} getState() { return {}; } addRange() {} }
  const known = {
    DataTable, DataView,
    arrayToDataTable(rows) {
      const table = new DataTable();
      rows[0].forEach((label) => table.addColumn(typeof label === 'object' ? label : {label}));
      rows.slice(1).forEach((row) => table.addRow(row));
      return table;
    },
    events: {
      addListener: (_, name, done) => { if (name === 'ready') setTimeout(done, 0); return {}; },
      addOneTimeListener: () => ({}), removeListener() {}, removeAllListeners() {}, trigger() {},
    },
    data: {group: (table) => table, sum: () => 0, join: (a) => a, avg: () => 0, count: () => 0},
  };
  const charts = ['Table', 'PieChart', 'ColumnChart', 'AreaChart', 'LineChart', 'BarChart', 'ScatterChart', 'ComboChart', 'SteppedAreaChart', 'Histogram'];
  charts.forEach((name) => { known[name] = class extends Chart {}; });
  window.google = {
    charts: {
      load: () => Promise.resolve(), safeLoad: () => {},
      setOnLoadCallback: (done) => setTimeout(done, 0),
    },
    visualization: new Proxy(known, {get: (all, name) => all[name] || Anything}),
  };
})();
