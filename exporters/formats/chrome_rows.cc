#include "chrome_rows.h"

#include <algorithm>

#include "../json_writer.h"

namespace stepscope {
namespace {

// Viewers take pid 0 to 63 for GPUs; HTA and Perfetto have trouble with
// negative ones.
constexpr int64_t kFirstHostPid = 64;
constexpr int64_t kMovedPids = 1'000'000'000;
constexpr int64_t kOwnPid = 2'000'000'000;
constexpr int64_t kExtraTids = 900'000'000;
constexpr int64_t kSyncTids = 1'000'000;
constexpr int64_t kGpuSortIndex = 5'000'000;
// No device has more; a damaged trace may say so.
constexpr int64_t kMostStreams = int64_t{1} << 60;

}  // namespace

ChromeRows::ChromeRows(const Trace& trace, std::string* out)
    : trace_(trace),
      out_(*out),
      threads_(trace.threads().size() + 1),
      announced_(trace.threads().size() + 1) {
  const auto host_pid = [](int64_t pid) {
    if (pid >= kFirstHostPid) return pid;
    return kMovedPids + (pid >= 0 ? pid : kFirstHostPid - pid % kMovedPids);
  };
  for (size_t i = 0; i < trace.threads().size(); ++i) {
    const Thread& thread = trace.threads()[i];
    Row& row = threads_[i];
    row.pid = host_pid(thread.pid);
    row.tids = {UnusedTid(row.pid, thread.tid > 0 ? thread.tid : kExtraTids)};
    row.name = trace.name(thread.name);
    if (row.name.empty()) row.name = "thread " + std::to_string(thread.tid);
    if (i == trace.run().training_thread) row.name += " (training)";
    row.sort_index =
        i == trace.run().training_thread ? 0 : static_cast<int64_t>(i) + 1;
  }
  Row& unknown = threads_.back();
  unknown.pid =
      host_pid(trace.threads().empty() ? std::max<int64_t>(trace.run().pid, 0)
                                       : trace.threads()[0].pid);
  unknown.tids = {UnusedTid(unknown.pid, kExtraTids)};
  unknown.name = "thread not known";
  unknown.sort_index = static_cast<int64_t>(threads_.size());
}

void ChromeRows::WriteFirst() {
  out_ += R"({"ph": "M", "name": "process_sort_index", "pid": )";
  AppendInt(kOwnPid, out_);
  out_ += R"(, "tid": 0, "ts": 0.000, "args": {"sort_index": -1}})";
}

ChromePlace ChromeRows::OnThread(RowId thread, int64_t begin_ns,
                                 int64_t end_ns) {
  const size_t index =
      std::min<size_t>(thread, threads_.size() - 1);  // kNone is beyond all
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
  AnnounceProcess(device, name, label, kGpuSortIndex + device);
  row.pid = device;
  row.name = stream < 0 ? "no stream" : "stream " + std::to_string(stream);
  if (is_sync) row.name += " (waited for)";
  const int64_t number = std::clamp(stream, -kMostStreams, kMostStreams);
  row.tids = {UnusedTid(device, number + (is_sync ? kSyncTids : 0))};
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
    AnnounceProcess(kOwnPid, "stepscope", "advice", -1);
    row.pid = kOwnPid;
    row.name = name;
    row.tids = {UnusedTid(kOwnPid, static_cast<int64_t>(own_rows_.size()))};
    row.sort_index = static_cast<int64_t>(own_rows_.size());
    Announce(row, 0);
  }
  return PlaceOn(row, begin_ns, end_ns);
}

ChromePlace ChromeRows::PlaceOn(Row& row, int64_t begin_ns, int64_t end_ns) {
  const size_t lane = row.lanes.Place(begin_ns, end_ns);
  while (lane >= row.tids.size()) {
    row.tids.push_back(UnusedTid(row.pid, kExtraTids));
    Announce(row, row.tids.size() - 1);
  }
  return {row.pid, row.tids[lane], lane > 0};
}

int64_t ChromeRows::UnusedTid(int64_t pid, int64_t wanted) {
  while (!used_tids_.emplace(pid, wanted).second)
    wanted = std::max(wanted + 1, kExtraTids);
  return wanted;
}

void ChromeRows::AnnounceProcess(int64_t pid, std::string_view name,
                                 std::string_view label, int64_t sort_index) {
  if (!processes_.insert(pid).second) return;
  Meta(pid, 0, "process_name", "name", name);
  Meta(pid, 0, "process_labels", "labels", label);
  if (pid == kOwnPid) return;  // WriteFirst has said where it stands
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
