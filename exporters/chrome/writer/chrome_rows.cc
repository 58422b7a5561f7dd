#include "chrome/writer/chrome_rows.h"

#include <algorithm>

#include "json/json_writer.h"
#include "rows/file_threads.h"

namespace stepscope {
namespace {

// The pid of the process "stepscope". It is far from any real id, and positive
// because Perfetto takes a negative pid for 0, which is the first GPU.
constexpr int64_t kOwnPid = 2'000'000'000;
// Kineto draws the synchronisations of a stream on the tid a million above it.
constexpr int64_t kSyncTids = 1'000'000;
// Kineto's place for devices: below all processes.
constexpr int64_t kGpuSortIndex = 5'000'000;
// Larger numbers are damage.
constexpr int64_t kMostStreams = int64_t{1} << 60;

}  // namespace

// The last row of threads_ takes events whose thread is not known.
ChromeRows::ChromeRows(const Trace& trace, std::string* out,
                       const ChromeRankPlace& place)
    : trace_(trace),
      out_(*out),
      rank_name_(place.name),
      first_pid_(place.first_pid),
      threads_(trace.threads().size() + 1),
      announced_(trace.threads().size() + 1) {
  const std::vector<ThreadNumbers> drawn = FileThreadsOf(trace);
  for (size_t i = 0; i < drawn.size(); ++i) {
    Row& row = threads_[i];
    row.pid = FilePid(drawn[i].pid);
    used_tids_.emplace(row.pid, drawn[i].tid);
    row.tids = {drawn[i].tid};
    row.sort_index = static_cast<int64_t>(i) + 1;
  }
  for (size_t i = 0; i < trace.threads().size(); ++i) {
    const Thread& thread = trace.threads()[i];
    Row& row = threads_[i];
    row.name = trace.name(thread.name);
    if (row.name.empty()) row.name = "thread " + std::to_string(thread.tid);
    if (i == trace.run().training_thread) {
      row.name += " (training)";
      row.sort_index = 0;
    }
  }
  threads_.back().name = "thread not known";
}

// HTA takes the event with index 0 for "none", so the file begins with
// metadata.
void ChromeRows::WriteFirst() {
  out_ += R"({"ph": "M", "name": "process_sort_index", "pid": )";
  AppendInt(kOwnPid, out_);
  out_ += R"(, "tid": 0, "ts": 0.000, "args": {"sort_index": -1}})";
}

ChromePlace ChromeRows::OnThread(RowId thread, int64_t begin_ns,
                                 int64_t end_ns) {
  const size_t index =
      std::min<size_t>(thread, threads_.size() - 1);  // kNone: the last
  Row& row = threads_[index];
  if (!announced_[index]) {
    announced_[index] = true;
    const std::string& run = trace_.run().name;
    AnnounceProcess(row.pid, run.empty() ? "process" : run, "CPU", row.pid);
    Announce(row, 0);
  }
  ChromePlace place = PlaceOn(row, begin_ns, end_ns);
  place.displaced |= index == threads_.size() - 1;
  return place;
}

ChromeRows::Row& ChromeRows::StreamRow(int32_t device, int64_t stream,
                                       bool is_sync) {
  auto& rows = is_sync ? sync_rows_ : streams_;
  const auto [it, added] = rows.try_emplace({device, stream});
  Row& row = it->second;
  if (!added) return row;
  const std::string label = "GPU " + std::to_string(device);
  std::string name = label;
  for (const Device& known : trace_.run().devices) {
    if (known.ordinal == device && !known.name.empty())
      name += ": " + known.name;
  }
  row.pid = FilePid(device);
  AnnounceProcess(row.pid, name, label, kGpuSortIndex + device);
  row.name = stream < 0 ? "no stream" : "stream " + std::to_string(stream);
  if (is_sync) row.name += " (waited for)";
  const int64_t number = std::clamp(stream, -kMostStreams, kMostStreams);
  row.tids = {UnusedTid(row.pid, number + (is_sync ? kSyncTids : 0))};
  row.sort_index = number * 2 + (is_sync ? 1 : 0);
  Announce(row, 0);
  return row;
}

ChromePlace ChromeRows::OnStream(int32_t device, int64_t stream,
                                 int64_t begin_ns, int64_t end_ns) {
  return PlaceOn(StreamRow(device, stream, false), begin_ns, end_ns);
}

ChromePlace ChromeRows::OnSyncRow(int32_t device, int64_t stream,
                                  int64_t begin_ns, int64_t end_ns) {
  return PlaceOn(StreamRow(device, stream, true), begin_ns, end_ns);
}

ChromePlace ChromeRows::OnOwnRow(const std::string& name, int64_t begin_ns,
                                 int64_t end_ns) {
  const auto [it, added] = own_rows_.try_emplace(name);
  Row& row = it->second;
  if (added) {
    row.pid = FilePid(kOwnPid);
    AnnounceProcess(row.pid, "stepscope", "advice", -1);
    row.name = name;
    row.tids = {UnusedTid(row.pid, static_cast<int64_t>(own_rows_.size()))};
    row.sort_index = static_cast<int64_t>(own_rows_.size());
    Announce(row, 0);
  }
  return PlaceOn(row, begin_ns, end_ns);
}

// Slices on one row must nest: Perfetto drops or moves a slice that crosses
// another one, and the plugin loses its children. A crossing slice goes to an
// extra tid next to the row.
ChromePlace ChromeRows::PlaceOn(Row& row, int64_t begin_ns, int64_t end_ns) {
  const size_t lane = row.lanes.Place(begin_ns, end_ns);
  while (lane >= row.tids.size()) {
    row.tids.push_back(UnusedTid(row.pid, kFirstExtraTid));
    Announce(row, row.tids.size() - 1);
  }
  return {row.pid, row.tids[lane], lane > 0};
}

int64_t ChromeRows::UnusedTid(int64_t pid, int64_t wanted) {
  if (used_tids_.emplace(pid, wanted).second) return wanted;
  // Remembered, because a row may need thousands of extra tids.
  int64_t& next = next_extra_.try_emplace(pid, kFirstExtraTid).first->second;
  while (!used_tids_.emplace(pid, next).second) ++next;
  return next++;
}

// Ranks may share pids, and each numbers its GPUs from 0.
int64_t ChromeRows::FilePid(int64_t pid) {
  if (first_pid_ == 0) return pid;
  const auto next = first_pid_ + static_cast<int64_t>(file_pids_.size());
  return file_pids_.try_emplace(pid, next).first->second;
}

void ChromeRows::AnnounceProcess(int64_t pid, std::string name,
                                 std::string_view label, int64_t sort_index) {
  if (!processes_.insert(pid).second) return;
  if (first_pid_ != 0) {
    // Sorts the ranks one below the other, each with its advice, its CPU and
    // its GPUs.
    constexpr int64_t kPlaces = 100;
    sort_index = first_pid_ * kPlaces + (sort_index < 0 ? 0
                                         : sort_index < kGpuSortIndex
                                             ? 1
                                             : 2 + sort_index - kGpuSortIndex);
    name = rank_name_ + ": " + name;
  }
  Meta(pid, 0, "process_name", "name", name);
  Meta(pid, 0, "process_labels", "labels", label);
  if (pid == kOwnPid) return;  // WriteFirst() has written its place
  out_ += R"(,
{"ph": "M", "name": "process_sort_index", "pid": )";
  AppendInt(pid, out_);
  out_ += R"(, "tid": 0, "ts": 0.000, "args": {"sort_index": )";
  AppendInt(sort_index, out_);
  out_ += "}}";
}

void ChromeRows::Announce(const Row& row, size_t lane) {
  std::string name = row.name;
  if (lane > 0) name += " (overlap " + std::to_string(lane) + ")";
  Meta(row.pid, row.tids[lane], "thread_name", "name", name);
  out_ += R"(,
{"ph": "M", "name": "thread_sort_index", "pid": )";
  AppendInt(row.pid, out_);
  out_ += R"(, "tid": )";
  AppendInt(row.tids[lane], out_);
  out_ += R"(, "ts": 0.000, "args": {"sort_index": )";
  AppendInt(row.sort_index, out_);
  out_ += "}}";
}

void ChromeRows::Meta(int64_t pid, int64_t tid, const char* what,
                      const char* key, std::string_view text) {
  out_ += R"(,
{"ph": "M", "name": ")";
  out_ += what;
  out_ += R"(", "pid": )";
  AppendInt(pid, out_);
  out_ += R"(, "tid": )";
  AppendInt(tid, out_);
  out_ += R"(, "ts": 0.000, "args": {")";
  out_ += key;
  out_ += R"(": )";
  AppendQuoted(text, out_);
  out_ += "}}";
}

}  // namespace stepscope
