// TopTables as columns, CSV and JSON. The schema is docs/json.md, `top`,
// version 1.
#include <stepscope/compiled_kernel.h>
#include <stepscope/printable.h>
#include <stepscope/top.h>

#include <algorithm>
#include <cstdio>

#include "report/json_text.h"
#include "report/layout/text_table.h"
#include "words/compiled_names.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

struct Column {
  TableColumn table;
  std::vector<std::string> cells;
};

// Which columns are left out first where the terminal is too narrow.
enum Spare { kNever, kTotals, kShare, kDeviceTotal, kMean, kLongest };

std::string Fixed(double value, int decimals) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

double Microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

// "12.3 us", "1.204 ms", "3.100 s": about four digits for any size.
std::string Time(int64_t ns) {
  const auto value = static_cast<double>(ns);
  if (value < 1e6) return Fixed(value / 1e3, 1) + " us";
  if (value < 1e9) return Fixed(value / 1e6, 3) + " ms";
  return Fixed(value / 1e9, 3) + " s";
}

// The rate in GB/s; empty if a row has no bytes or no time. A byte per
// nanosecond is 1 GB/s.
std::string Rate(const TopRow& row) {
  if (row.bytes <= 0 || row.total_ns <= 0) return "";
  return Fixed(
             static_cast<double>(row.bytes) / static_cast<double>(row.total_ns),
             1) +
         " GB/s";
}

template <typename Cell>
void Add(const TopTable& table, std::string heading, Spare spare,
         std::vector<Column>& columns, Cell cell) {
  Column column = {{std::move(heading), 0, spare}, {}};
  for (const TopRow& row : table.rows) column.cells.push_back(cell(row));
  columns.push_back(std::move(column));
}

std::vector<Column> ColumnsOf(const TopTable& table) {
  std::vector<Column> columns;
  Add(table, "self", kNever, columns,
      [](const TopRow& row) { return Time(row.self_ns); });
  Add(table, "share", kShare, columns,
      [](const TopRow& row) { return Fixed(row.share_frac * 100, 1) + " %"; });
  // Total and self time differ only in these two tables, because only their
  // rows nest.
  if (table.name == "ops" || table.name == "ranges") {
    // The rows are sorted by it only if somebody asks for it.
    Add(table, "total", table.order == TopOrder::kTotal ? kNever : kTotals,
        columns, [](const TopRow& row) { return Time(row.total_ns); });
  }
  if (table.has_device) {
    Add(table, "GPU self", kNever, columns,
        [](const TopRow& row) { return Time(row.device_self_ns); });
    Add(table, "GPU total", kDeviceTotal, columns,
        [](const TopRow& row) { return Time(row.device_total_ns); });
  }
  Add(table, "calls", kNever, columns,
      [](const TopRow& row) { return std::to_string(row.calls); });
  Add(table, "mean", kMean, columns, [](const TopRow& row) {
    return Time(row.total_ns / std::max<int64_t>(row.calls, 1));
  });
  Add(table, "longest", kLongest, columns,
      [](const TopRow& row) { return Time(row.max_ns); });
  if (table.has_bytes) {
    Add(table, "bytes", kTotals, columns, [](const TopRow& row) {
      return row.bytes > 0 ? Bytes(static_cast<double>(row.bytes)) : "";
    });
    Add(table, "rate", kNever, columns, Rate);
  }
  return columns;
}

// Adds the headings that find no room to `left_out`.
void AppendTable(const TopTable& table, int width,
                 std::vector<std::string>& left_out, std::string& out) {
  const std::vector<Column> columns = ColumnsOf(table);
  std::vector<TableColumn> headings;
  headings.reserve(columns.size());
  for (const Column& column : columns) headings.push_back(column.table);
  const bool has_shapes = std::ranges::any_of(
      table.rows, [](const TopRow& row) { return !row.shape.empty(); });
  // Names with shapes get more room: shapes are long, and the table is printed
  // to show them.
  TextTable text("name", has_shapes ? 72 : 24, std::move(headings));
  for (size_t row = 0; row < table.rows.size(); ++row) {
    std::string name = WithFusedOps(table.rows[row].name);
    if (!table.rows[row].shape.empty()) name += "  " + table.rows[row].shape;
    std::vector<std::string> cells;
    cells.reserve(columns.size());
    for (const Column& column : columns) cells.push_back(column.cells[row]);
    text.Add(std::move(name), std::move(cells));
  }
  out += table.name + ": " +
         Count(static_cast<int64_t>(table.row_count), "row") + ", " +
         Time(table.self_ns) + " self time\n";
  // The name is the last column, so that a long one does not move the others.
  for (const std::string& line : text.LinesWithNamesLast(width)) {
    out += line + "\n";
  }
  if (table.row_count > table.rows.size()) {
    out += "(" + std::to_string(table.row_count - table.rows.size()) +
           " more; --limit 0 shows all)\n";
  }
  for (const std::string& heading : text.LeftOutWithNamesLast(width)) {
    if (std::ranges::count(left_out, heading) == 0) left_out.push_back(heading);
  }
}

// Appends `text` with quotes as RFC 4180 requires. A spreadsheet would evaluate
// a text that starts like a formula, and names are untrusted. An apostrophe in
// front makes it a plain text (OWASP, "CSV Injection").
void AppendCell(std::string text, std::string& out) {
  const bool is_formula =
      !text.empty() &&
      std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos;
  text = (is_formula ? "'" : "") + Printable(text);
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    out += text;
    return;
  }
  out += '"';
  for (char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

}  // namespace

std::string ToText(const std::vector<TopTable>& tables, int width) {
  std::string out;
  std::vector<std::string> left_out;
  for (const TopTable& table : tables) {
    if (!out.empty()) out += '\n';
    AppendTable(table, width, left_out, out);
  }
  if (!left_out.empty()) {
    out += "\n(no room for " + ListedWithAnd(left_out) +
           "; a wider terminal or --format csv has them)\n";
  }
  return out;
}

std::string ToCsv(const std::vector<TopTable>& tables) {
  // All tables have the same columns, so that the file is one table to a
  // spreadsheet.
  std::string out =
      "table,name,shape,calls,self_us,total_us,mean_us,min_us,max_us,share,"
      "device_self_us,device_total_us,bytes,fused_ops,code_file\n";
  for (const TopTable& table : tables) {
    for (const TopRow& row : table.rows) {
      const auto number = [&](const std::string& text) { out += "," + text; };
      out += table.name + ",";
      AppendCell(row.name, out);
      out += ',';
      AppendCell(row.shape, out);
      number(std::to_string(row.calls));
      number(Fixed(Microseconds(row.self_ns), 3));
      number(Fixed(Microseconds(row.total_ns), 3));
      number(Fixed(Microseconds(row.total_ns) /
                       static_cast<double>(std::max<int64_t>(row.calls, 1)),
                   3));
      number(Fixed(Microseconds(row.min_ns), 3));
      number(Fixed(Microseconds(row.max_ns), 3));
      number(Fixed(row.share_frac, 6));
      number(Fixed(Microseconds(row.device_self_ns), 3));
      number(Fixed(Microseconds(row.device_total_ns), 3));
      number(std::to_string(row.bytes));
      out += ',';
      AppendCell(FusedOpsInWords(row.name), out);
      out += ',';
      AppendCell(row.code_file, out);
      out += '\n';
    }
  }
  return out;
}

std::string ToJson(const std::vector<TopTable>& tables) {
  JsonText json;
  json.Open('{');
  json.Field("version", 1);
  for (const TopTable& table : tables) {
    json.Key(table.name);
    json.Open('{');
    json.Field("rows_in_all", static_cast<int64_t>(table.row_count));
    json.Field("self_us", Microseconds(table.self_ns));
    json.Key("rows");
    json.Open('[');
    for (const TopRow& row : table.rows) {
      json.Open('{');
      json.Field("name", row.name);
      WriteFusedOps(row.name, json);
      if (!row.code_file.empty()) json.Field("code_file", row.code_file);
      if (!row.code_parameters.empty()) {
        json.Field("code_parameters", row.code_parameters);
      }
      if (!row.shape.empty()) json.Field("shape", row.shape);
      json.Field("calls", row.calls);
      json.Field("self_us", Microseconds(row.self_ns));
      json.Field("total_us", Microseconds(row.total_ns));
      json.Field("min_us", Microseconds(row.min_ns));
      json.Field("max_us", Microseconds(row.max_ns));
      json.Field("share", row.share_frac);
      if (table.has_device) {
        json.Field("device_self_us", Microseconds(row.device_self_ns));
        json.Field("device_total_us", Microseconds(row.device_total_ns));
      }
      if (table.has_bytes) json.Field("bytes", row.bytes);
      json.Close('}');
    }
    json.Close(']');
    json.Close('}');
  }
  json.Close('}');
  return json.Take();
}

}  // namespace stepscope
