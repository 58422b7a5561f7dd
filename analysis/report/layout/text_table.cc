#include "report/layout/text_table.h"

#include <stepscope/printable.h>

#include <algorithm>
#include <numeric>

#include "report/layout/text_page.h"

namespace stepscope {
namespace {

// Longer names are shortened even where there is room.
constexpr size_t kMostName = 58;
// Names need no more than this share of the width.
constexpr double kLeastNameFrac = 0.4;
constexpr size_t kLeastName = 8;
// Of a table that is not for a terminal.
constexpr size_t kUsualWidth = 110;
constexpr size_t kGap = 2;  // blanks between columns

bool IsInsideCharacter(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

// The byte at which character number `count` of `text` begins.
size_t BytesOf(std::string_view text, size_t count) {
  size_t at = 0;
  while (at < text.size() && (count > 0 || IsInsideCharacter(text[at]))) {
    if (!IsInsideCharacter(text[at])) --count;
    ++at;
  }
  return at;
}

size_t SumOf(const std::vector<size_t>& columns) {
  return std::accumulate(columns.begin(), columns.end(), size_t{0});
}

}  // namespace

std::string Shortened(std::string_view raw, size_t columns) {
  std::string text = Printable(raw);
  const size_t all = Columns(text);
  if (all <= columns) return text;
  const size_t tail = columns / 3;
  return text.substr(0, BytesOf(text, columns - tail - 3)) + "..." +
         text.substr(BytesOf(text, all - tail));
}

size_t TextTable::WidestName() const {
  size_t widest = 0;
  for (const Row& row : rows_) {
    if (!row.cells.empty()) widest = std::max(widest, Columns(row.name));
  }
  return widest;
}

size_t TextTable::ColumnToSpare(const std::vector<size_t>& columns) const {
  size_t spared = columns.size();
  int most = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] == 0 || columns_[i].spare <= most) continue;
    spared = i;
    most = columns_[i].spare;
  }
  return spared;
}

TextTable::Layout TextTable::LayoutFor(int width, bool names_last) const {
  std::vector<size_t> roomy, tight;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t widest = Columns(columns_[i].heading);
    for (const Row& row : rows_) {
      if (!row.cells.empty()) widest = std::max(widest, Columns(row.cells[i]));
    }
    tight.push_back(widest + kGap);
    roomy.push_back(std::max(columns_[i].columns, widest + kGap));
  }
  const size_t title = names_last ? 0 : Columns(title_);
  const size_t widest = WidestName();
  const size_t names = std::max(std::min(widest, kMostName), name_columns_);
  if (width <= 0) {
    const size_t used = std::min(kUsualWidth, SumOf(tight));
    return {std::max({names_last ? name_columns_ : names, title,
                      names_last ? kUsualWidth - used : 0}),
            names_last ? tight : roomy};
  }
  const auto all = static_cast<size_t>(width);
  const size_t least = std::min(
      {widest, name_columns_, static_cast<size_t>(kLeastNameFrac * width)});
  while (true) {
    for (const std::vector<size_t>* columns : {&roomy, &tight}) {
      const size_t used = SumOf(*columns);
      if (used + least > all) continue;
      // The title gets a line of its own where names are shorter.
      const size_t wanted = names_last ? all : std::max(names, title);
      return {used + wanted <= all
                  ? wanted
                  : std::min(names_last ? all : names, all - used),
              *columns};
    }
    const size_t spared = ColumnToSpare(tight);
    if (spared == tight.size()) break;
    tight[spared] = roomy[spared] = 0;
  }
  // Too narrow for the numbers alone: lines are longer than the width.
  return {std::min(names, kLeastName), tight};
}

std::vector<std::string> TextTable::Lines(int width) const {
  const Layout layout = LayoutFor(width, /*names_last=*/false);
  std::vector<std::string> lines;
  const auto line = [&](const std::string& name, const auto& cell) {
    std::string text = PadRight(Shortened(name, layout.name), layout.name);
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (layout.columns[i] > 0) text += PadLeft(cell(i), layout.columns[i]);
    }
    // The last cells of a row may be empty.
    text.erase(text.find_last_not_of(' ') + 1);
    lines.push_back(std::move(text));
  };
  const bool title_alone = Columns(title_) > layout.name;
  if (title_alone) lines.push_back(title_);
  line(title_alone ? "" : title_,
       [&](size_t i) { return columns_[i].heading; });
  for (const Row& row : rows_) {
    if (row.cells.empty()) {
      lines.push_back(row.name);
    } else {
      line(row.name, [&](size_t i) { return row.cells[i]; });
    }
  }
  return lines;
}

std::vector<std::string> TextTable::LinesWithNamesLast(int width) const {
  const Layout layout = LayoutFor(width, /*names_last=*/true);
  std::vector<std::string> lines;
  const auto line = [&](const std::string& name, const auto& cell) {
    std::string text;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (layout.columns[i] == 0) continue;
      text +=
          PadLeft(cell(i), layout.columns[i] - kGap) + std::string(kGap, ' ');
    }
    lines.push_back(text + Shortened(name, layout.name));
  };
  line(title_, [&](size_t i) { return columns_[i].heading; });
  for (const Row& row : rows_) {
    line(row.name, [&](size_t i) { return row.cells[i]; });
  }
  return lines;
}

std::vector<std::string> TextTable::LeftOutWithNamesLast(int width) const {
  const Layout layout = LayoutFor(width, /*names_last=*/true);
  std::vector<std::string> headings;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (layout.columns[i] == 0) headings.push_back(columns_[i].heading);
  }
  return headings;
}

}  // namespace stepscope
