// TextTable: rows of numbers with names, in columns that fit a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stepscope {

// Returns `text`, made printable and at most `columns` wide: the middle of a
// longer one is replaced by "...", because the names of operators and kernels
// differ at their ends. REQUIRES: columns > 3.
std::string Shortened(std::string_view text, size_t columns);

// A column of numbers, aligned to the right.
struct TableColumn {
  std::string heading;
  // How wide it is at least where there is room, with the blanks before it.
  size_t columns = 0;
  // Where the width has no room for all columns, the one with the highest
  // number is left out first; 0 never.
  int spare = 0;
};

// One thread at a time.
class TextTable {
 public:
  // `title` heads the names, which take at least `name_columns` where there is
  // room. Names and headings may have any length.
  TextTable(std::string title, size_t name_columns,
            std::vector<TableColumn> columns)
      : title_(std::move(title)),
        name_columns_(name_columns),
        columns_(std::move(columns)) {}

  // Names keep their leading blanks. REQUIRES: a cell for each column.
  void Add(std::string name, std::vector<std::string> cells) {
    rows_.push_back({std::move(name), std::move(cells)});
  }
  // A line of text between the rows, printed as it is.
  void AddText(std::string text) { rows_.push_back({std::move(text), {}}); }

  // The heading and the rows, at most `width` columns wide where the columns
  // that are never left out have room; any width if it is 0. If it is too
  // narrow, the blanks between columns shrink, names are shortened, and columns
  // are left out. A title that is longer than the names gets its own line.
  std::vector<std::string> Lines(int width) const;

  // Likewise, with the names after the numbers, so that they get all the room
  // that is left. REQUIRES: no AddText().
  std::vector<std::string> LinesWithNamesLast(int width) const;
  // The headings of the columns that LinesWithNamesLast() leaves out.
  std::vector<std::string> LeftOutWithNamesLast(int width) const;

 private:
  struct Row {
    std::string name;
    std::vector<std::string> cells;  // none: a line of text
  };
  struct Layout {
    size_t name = 0;
    std::vector<size_t> columns;  // 0: left out
  };
  // The columns that the widest name takes.
  size_t WidestName() const;
  // The column to leave out next; columns.size() if all must stay.
  size_t ColumnToSpare(const std::vector<size_t>& columns) const;
  Layout LayoutFor(int width, bool names_last) const;

  std::string title_;
  size_t name_columns_;
  std::vector<TableColumn> columns_;
  std::vector<Row> rows_;
};

}  // namespace stepscope
