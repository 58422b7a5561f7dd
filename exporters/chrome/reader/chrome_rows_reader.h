// ChromeRowReader: turns the events of a Chrome trace into rows of a
// TraceBuilder. It reads Kineto's dialects since 2021 and ours in both flavours
// (docs/chrome_trace.md). One thread drives a reader.
#pragma once

#include <stepscope/trace_builder.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chrome/reader/chrome_event_reader.h"
#include "chrome/reader/chrome_header_reader.h"
#include "chrome/reader/chrome_inputs_reader.h"

namespace stepscope {

class ChromeRowReader {
 public:
  // Counts the events that were read and, by reason, those left out. The counts
  // become losses and show whether another program wrote the file.
  struct Counts {
    int64_t rows = 0;
    int64_t events = 0;  // all events that have a phase
    int64_t negative_durations = 0;
    int64_t bad_times = 0;  // no phase, or no usable time
    int64_t no_duration = 0;
    int64_t unpaired = 0;  // separate begin and end events, which torch
                           // never writes
    int64_t duplicate_steps = 0;
    int64_t unnumbered_steps = 0;  // the number cannot be read
    std::string unnumbered_example;
    int64_t merged_ranks = 0;  // 1 if the file holds several ranks
    int64_t device_tasks = 0;  // device work that is not read
    Device accelerator;        // a device whose work is not read; its name is
                               // empty if there is none
    int64_t unknown_categories = 0;
    std::string unknown_example;
  };

  // `header` has the keys before the events. `builder` must outlive this.
  ChromeRowReader(TraceBuilder* builder, const ChromeHeader& header);

  void Add(const ChromeEvent& event);

  // Call once, after the last event: names threads, adds rows that had to wait
  // for later events, moves all times by `shift_ns`, and notes which kinds were
  // recorded. `header` also has the keys after the events.
  void Finish(const ChromeHeader& header, int64_t shift_ns);

  const Counts& counts() const { return counts_; }
  // The smallest time of any row, before Finish() moved it.
  int64_t earliest_ns() const { return earliest_ns_; }

 private:
  struct Times {
    int64_t begin_ns;
    int64_t end_ns;
  };
  bool ReadTimes(const ChromeEvent& event, Times* times);
  void NoteAccelerator(std::string_view name, std::string_view vendor);
  // Adds the base time to `since_base_ns`. Counts the time and returns false if
  // it is missing or out of bounds.
  bool ReadTime(std::optional<int64_t> since_base_ns, int64_t* time_ns);
  RowId ThreadOf(const ChromeEvent& event);
  int64_t ThreadNumber(const Field& tid);
  NameId NameOf(const ChromeEvent& event);
  NameId InternArg(const ChromeEvent& event, ArgKey key);
  NameId CapturedModule(const ChromeEvent& event, const Kernel& kernel);

  void AddComplete(const ChromeEvent& event);
  void AddOp(const ChromeEvent& event, const Times& times);
  void AddAnnotation(const ChromeEvent& event, const Times& times);
  void AddRange(const ChromeEvent& event, const Times& times, NameId name);
  void AddStep(const ChromeEvent& event, const Times& times, int64_t number);
  void AddUnnumberedSteps();
  void AddCommunication(const ChromeEvent& event, const Times& times);
  void KeepSize(const ChromeEvent& event, const Range& range);
  void AddPythonFrame(const ChromeEvent& event, const Times& times);
  void AddCall(const ChromeEvent& event, const Times& times);
  void AddKernel(const ChromeEvent& event, const Times& times);
  void AddCopy(const ChromeEvent& event, const Times& times);
  void AddMemset(const ChromeEvent& event, const Times& times);
  void AddSync(const ChromeEvent& event, const Times& times);
  void AddOverhead(const ChromeEvent& event, const Times& times);
  void AddMemory(const ChromeEvent& event);
  void AddDeviceMemory(const ChromeEvent& event);
  void AddMetadata(const ChromeEvent& event);
  void AwaitLink(const ChromeEvent& event, DeviceWork* work);
  void LinkLater(const ChromeEvent& event);
  void NoteMergedRank(std::string_view pid);
  void Watch(const ChromeHeader& header);

  TraceBuilder* builder_;
  const bool is_ours_;
  const int64_t base_ns_;
  ChromeInputsReader inputs_;
  std::map<std::pair<int64_t, int64_t>, RowId> threads_;
  std::map<std::pair<int64_t, int64_t>, std::string> thread_names_;
  std::unordered_map<std::string, int64_t> text_threads_;
  int64_t host_pid_ = -1;
  int64_t last_pid_ = 0;  // the previous event's thread, often the same
  int64_t last_tid_ = 0;
  RowId last_thread_ = kNone;
  struct WaitingOverhead {
    Overhead row;
    int64_t tid;
  };
  std::vector<WaitingOverhead> overheads_;
  // The device activity just read if it has no correlation, and the text of its
  // `ts`.
  DeviceWork* unlinked_ = nullptr;
  std::string unlinked_begin_;
  std::string merged_rank_;
  // Collectives made from "nccl:..." ranges, for files whose ops have no
  // metadata of collectives.
  std::vector<Communication> range_communications_;
  std::set<std::tuple<int64_t, int64_t, int64_t>> steps_;
  std::vector<Step> unnumbered_steps_;
  uint64_t seen_ = 0;  // bit per Kind
  Counts counts_;
  int64_t earliest_ns_ = INT64_MAX;
  int64_t latest_ns_ = INT64_MIN;
  std::string scratch_;
};

}  // namespace stepscope
