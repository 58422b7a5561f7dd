#include "evidence/call_site.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "words/source_line.h"

namespace stepscope {
namespace {

// As many as fit into one line of a report.
constexpr size_t kRangesShown = 2;
constexpr size_t kOpsShown = 4;

// Returns the rows that `keep` accepts, by thread, in the order of the table.
template <typename Rows, typename Keep>
std::vector<std::vector<Nesting::Row>> ByThread(const Trace& trace,
                                                const Rows& rows, Keep keep) {
  std::vector<std::vector<Nesting::Row>> by_thread(trace.threads().size());
  for (RowId row = 0; row < rows.size(); ++row) {
    if (rows[row].thread < by_thread.size() && keep(rows[row])) {
      by_thread[rows[row].thread].push_back(
          {{rows[row].begin_ns, rows[row].end_ns}, row});
    }
  }
  return by_thread;
}

// A loader range says what the thread waits for, not where it is in the
// program.
bool NamesAPlace(const Range& range) {
  return range.kind != RangeKind::kLoader;
}

// Removes the number from "iteration 17" and "ProfilerStep#17", which name the
// same place in every step. A number that is part of a word ("conv1") stays.
std::string WithoutCounter(std::string_view name) {
  size_t end = name.size();
  while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9') --end;
  const bool counts =
      end < name.size() && end > 0 &&
      (name[end - 1] == ' ' || name[end - 1] == '#' || name[end - 1] == ':');
  if (!counts) return std::string(name);
  std::string_view text = name.substr(0, end - 1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return std::string(text);
}

}  // namespace

// Rows nest, so one parent per row is enough to find all rows open at some
// moment.
Nesting::Nesting(std::vector<std::vector<Row>> by_thread)
    : rows_(std::move(by_thread)), parents_(rows_.size()) {
  for (size_t thread = 0; thread < rows_.size(); ++thread) {
    // The innermost row still open. Following parents_ from it gives the outer
    // ones.
    uint32_t open = kNone;
    for (uint32_t i = 0; i < rows_[thread].size(); ++i) {
      while (open != kNone && rows_[thread][open].span.end_ns <=
                                  rows_[thread][i].span.begin_ns) {
        open = parents_[thread][open];
      }
      parents_[thread].push_back(open);
      open = i;
    }
  }
}

std::vector<RowId> Nesting::At(RowId thread, int64_t time_ns) const {
  std::vector<RowId> found;
  if (thread >= rows_.size()) return found;
  const std::vector<Row>& rows = rows_[thread];
  const auto after = std::ranges::upper_bound(
      rows, time_ns, {}, [](const Row& row) { return row.span.begin_ns; });
  if (after == rows.begin()) return found;
  auto i = static_cast<uint32_t>(after - rows.begin() - 1);
  for (; i != kNone; i = parents_[thread][i]) {
    if (rows[i].span.end_ns > time_ns) found.push_back(rows[i].row);
  }
  return found;
}

CallSites::CallSites(const Trace& trace)
    : trace_(trace), ranges_(ByThread(trace, trace.ranges(), NamesAPlace)) {}

// Without source lines, the program's ranges and the ops say where something
// happened.
std::string CallSites::Chain(RowId thread, int64_t time_ns, RowId op) const {
  std::vector<std::string> parts;  // innermost first
  for (size_t count = 0; op != kNone; op = trace_.ops()[op].parent) {
    // Of a deep chain, keep the three innermost ops and the outermost one.
    if (++count < kOpsShown || trace_.ops()[op].parent == kNone) {
      parts.push_back(std::string(trace_.name(trace_.ops()[op].name)));
    }
  }
  size_t ranges = 0;
  for (RowId row : ranges_.At(thread, time_ns)) {
    if (ranges++ == kRangesShown) break;
    parts.push_back(WithoutCounter(trace_.name(trace_.ranges()[row].name)));
  }
  std::string text;
  for (size_t i = parts.size(); i-- > 0;) {
    text += parts[i] + (i > 0 ? " > " : "");
  }
  return text;
}

// The innermost frame outside the framework is the user's line.
std::string CallSites::Source(RowId thread, int64_t time_ns, RowId op) const {
  for (; op != kNone; op = trace_.ops()[op].parent) {
    const RowId stack = trace_.ops()[op].stack;
    if (stack == kNone) continue;
    std::string line = SourceLine(trace_, trace_.stacks()[stack].frames);
    if (!line.empty()) return line;
  }
  // No op has a stack, but Python frames may have been recorded as events.
  if (trace_.python_frames().empty()) return "";
  if (!frames_) {
    frames_.emplace(ByThread(trace_, trace_.python_frames(),
                             [](const PythonFrame&) { return true; }));
  }
  std::vector<NameId> frames;
  for (RowId row : frames_->At(thread, time_ns)) {
    frames.push_back(trace_.python_frames()[row].name);
  }
  return SourceLine(trace_, frames);
}

std::string CallSites::Place(RowId thread, int64_t time_ns, RowId op) const {
  std::string place = Source(thread, time_ns, op);
  if (place.empty()) place = Chain(thread, time_ns, op);
  return place;
}

}  // namespace stepscope
