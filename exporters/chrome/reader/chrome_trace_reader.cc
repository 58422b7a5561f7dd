#include "chrome/reader/chrome_trace_reader.h"

#include <absl/status/status.h>
#include <stepscope/trace_builder.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "chrome/reader/chrome_event_reader.h"
#include "chrome/reader/chrome_header_reader.h"
#include "chrome/reader/chrome_rows_reader.h"
#include "io/file_damage.h"
#include "json/json_repair.h"

namespace stepscope {
namespace {

// Older files round times to whole microseconds. As a begin and a duration are
// both rounded, a child may seem to end this much after its parent.
constexpr int64_t kRoundingNs = 2000;
// A `ts` beyond this counts from 1970, even if the file has a base time. 1e18
// ns is the year 2001; no time since a base is that large.
constexpr int64_t kAbsoluteNs = int64_t{1'000'000'000'000'000'000};

struct Damage {
  int64_t damaged = 0;
  int64_t repaired = 0;
};

// Feeds every event of `events` to `rows`. An event that is not valid JSON is
// repaired and tried again. If that fails, the event is counted as damaged, and
// its end is not trusted either.
Damage ReadEvents(std::string_view first, JsonEventsReader* events,
                  ChromeRowReader* rows) {
  Damage damage;
  ChromeEventParser parser;
  ChromeEvent event;
  std::string repaired;
  for (std::string_view text = first; !text.empty(); text = events->Next()) {
    if (parser.Parse(text, &event)) {
      rows->Add(event);
      continue;
    }
    repaired = RepairJson(text);
    const size_t size = repaired.size();
    repaired.resize(size + JsonEventsReader::kPadding);
    if (parser.Parse(std::string_view(repaired).substr(0, size), &event)) {
      rows->Add(event);
      ++damage.repaired;
      continue;
    }
    ++damage.damaged;
    events->Distrust();
  }
  return damage;
}

// Returns the host in a file name of torch.profiler's
// tensorboard_trace_handler: "node3" for
// "/log/node3_4711.1700000000000000000.pt.trace.json.gz". Returns "" if 4711 is
// not `pid`, the recorded process, because a program may choose other names.
std::string HostInName(std::string_view path, int64_t pid) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  const size_t ending = name.find(".pt.trace.json");
  if (ending == std::string_view::npos) return "";
  name = name.substr(0, ending);
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos ||
      name.find_first_not_of("0123456789", dot + 1) != std::string_view::npos) {
    return "";
  }
  name = name.substr(0, dot);
  const std::string worker_ending = "_" + std::to_string(pid);
  if (pid < 0 || !name.ends_with(worker_ending)) return "";
  return std::string(name.substr(0, name.size() - worker_ending.size()));
}

std::string Where(const BytesReader& bytes, uint64_t offset) {
  std::string where = "byte " + std::to_string(offset);
  if (bytes.is_compressed()) {
    where += " of its decompressed text (byte " +
             std::to_string(bytes.file_offset()) + " of the file)";
  }
  return where;
}

void AddLoss(std::string name, std::string detail, int64_t count,
             Severity severity, TraceBuilder* builder) {
  if (count == 0) return;
  builder->Add(Loss{std::move(name), std::move(detail), count, severity});
}

void AddLosses(const ChromeRowReader::Counts& counts, const Damage& damage,
               TraceBuilder* builder) {
  AddLoss("damaged-events", "events that are not valid JSON were left out",
          damage.damaged, Severity::kWarning, builder);
  AddLoss("repaired-events",
          "events had control characters, invalid UTF-8, NaN or the like; they "
          "were repaired and read",
          damage.repaired, Severity::kNote, builder);
  AddLoss("negative-durations",
          "events that end before they begin were left out; the profiler that "
          "wrote the file lost track of them",
          counts.negative_durations, Severity::kWarning, builder);
  AddLoss("unreadable-times",
          "events without a kind, or with a time that is not a number, were "
          "left out",
          counts.bad_times, Severity::kWarning, builder);
  AddLoss("missing-durations", "events without a duration were left out",
          counts.no_duration, Severity::kWarning, builder);
  AddLoss("duplicate-steps", "step marks that occur twice were counted once",
          counts.duplicate_steps, Severity::kNote, builder);
  AddLoss("unreadable-step-numbers",
          "step marks have a number that cannot be read (\"" +
              counts.unnumbered_example +
              "\"); these steps are numbered in the order of their times",
          counts.unnumbered_steps, Severity::kWarning, builder);
  AddLoss(
      "unpaired-events",
      "separate begin and end events (ph B, E) are not read; torch.profiler "
      "writes none",
      counts.unpaired, Severity::kNote, builder);
  AddLoss("unread-device-rows",
          "device activity is not read (" + counts.accelerator.name +
              "): what follows is about the host alone",
          counts.device_tasks, Severity::kWarning, builder);
  AddLoss("merged-ranks",
          "processes of several ranks were merged into this file, and their "
          "calls and devices share numbers: do not trust what follows; read "
          "the files of the ranks instead",
          counts.merged_ranks, Severity::kError, builder);
  AddLoss(
      "unknown-events",
      "events of unknown categories were skipped; the first category is \"" +
          counts.unknown_example + "\"",
      counts.unknown_categories, Severity::kNote, builder);
}

// Reads a compressed file to its end, where the checksum is. The search for
// events may stop before it.
void CheckSum(BytesReader& bytes) {
  char rest[4096];
  if (bytes.is_compressed()) bytes.Read(rest, sizeof(rest));
}

absl::Status NoTraceError(const std::string& path, const std::string& looks) {
  return absl::InvalidArgumentError(path + " is not a trace: it looks like " +
                                    looks +
                                    ". Use a file of torch.profiler "
                                    "(export_chrome_trace) or of stepscope");
}

// Returns what the file looks like if it is no trace of torch.profiler or
// stepscope, so that reading it would give an empty Trace. Returns "" for a
// file that should be read.
std::string LooksForeign(const ChromeRowReader::Counts& counts,
                         const JsonEventsReader& events,
                         const ChromeHeader& header) {
  if (events.is_array() && counts.events == 0) {
    return "a JSON list without events (PyTorch's memory timeline is such a "
           "list)";
  }
  const bool is_known = header.is_ours || header.is_kineto;
  if (is_known || counts.rows > 0) return "";
  if (counts.unknown_categories == 0) {
    return counts.unpaired == 0
               ? ""
               : "a Chrome trace of another program: its events are separate "
                 "begins and ends";
  }
  if (counts.unknown_example.empty()) {
    return "a Chrome trace of another program: its events have no category "
           "(rocprof and JAX write such files)";
  }
  return "a Chrome trace of another program, with events of category \"" +
         counts.unknown_example + "\"";
}

}  // namespace

absl::Status NoEventsError(const std::string& path, const BytesReader& bytes,
                           const JsonEventsReader& events) {
  const std::string header = events.header_before_events();
  if (!events.complete()) {
    return absl::DataLossError(
        "cannot read " + path + ": it " +
        (bytes.damage() == BytesReader::Damage::kInside ? "is damaged"
                                                        : "ends") +
        " at " + Where(bytes, bytes.offset()) + ", before the first event" +
        (bytes.problem().empty() ? "" : "; " + bytes.problem()) +
        ". Copy it again, or record it again");
  }
  const auto has = [&](std::string_view text) {
    return header.find(text) != std::string::npos;
  };
  std::string looks = "JSON without \"traceEvents\"";
  if (has("speedscope.app")) looks = "a speedscope profile";
  if (has("\"schema\"") && has("\"nodes\""))
    looks = "a PyTorch execution trace (operators and tensors, no times)";
  if (has("rocprofiler")) looks = "a result file of rocprof";
  return NoTraceError(path, looks);
}

absl::StatusOr<Trace> ReadChromeTrace(const std::string& path,
                                      BytesReader* bytes) {
  JsonEventsReader events(bytes);
  const std::string_view first = events.Next();
  if (!events.found_events()) return NoEventsError(path, *bytes, events);

  TraceBuilder builder;
  // Some versions of Kineto write keys before the events, others after them.
  // The rows are read with the keys in front; the whole header is read again at
  // the end.
  ChromeHeader before;
  bool header_ok =
      ReadChromeHeader(events.header_before_events(), &before) ||
      ReadChromeHeader(RepairJson(events.header_before_events()), &before);
  const int64_t early_base = before.base_ns;
  // Our own header is complete before the events, and its base always counts.
  if (!before.is_ours) before.base_ns = 0;
  ChromeRowReader rows(&builder, before);
  const Damage damage = ReadEvents(first, &events, &rows);

  ChromeHeader whole;
  const std::string header = events.header();
  if (!ReadChromeHeader(header, &whole) &&
      !ReadChromeHeader(RepairJson(header), &whole)) {
    header_ok = false;
    whole = before;
    whole.base_ns = early_base;
  }

  ChromeRowReader::Counts counts = rows.counts();
  if (whole.is_timeline) counts.merged_ranks = 1;
  CheckSum(*bytes);
  const bool complete = events.complete() && bytes->problem().empty();
  if (const std::string looks = LooksForeign(counts, events, whole);
      complete && damage.damaged == 0 && !looks.empty()) {
    return NoTraceError(path, looks);
  }
  if (counts.events == 0 && (!complete || damage.damaged > 0)) {
    return absl::DataLossError(
        "cannot read " + path + ": no event could be read up to " +
        Where(*bytes, complete ? events.offset() : bytes->offset()) + ", " +
        (complete ? "all of them are damaged"
         : bytes->damage() == BytesReader::Damage::kInside
             ? "where the file is damaged"
             : "where the file is truncated") +
        (bytes->problem().empty() ? "" : "; " + bytes->problem()) +
        ". Copy it again, or record it again");
  }

  if (before.is_ours) {
    rows.Finish(before, 0);
    AddHeaderRows(events.header_before_events(), &builder);
  } else {
    // Times that already count from 1970 are not shifted.
    const bool is_absolute = rows.earliest_ns() >= kAbsoluteNs;
    rows.Finish(whole, is_absolute ? 0 : whole.base_ns);
  }
  builder.run().source = path;
  if (builder.run().host.empty()) {
    builder.run().host = HostInName(path, builder.run().pid);
  }
  AddFileDamage({.damage = bytes->damage(),
                 .problem = bytes->problem(),
                 .is_cut = !events.complete(),
                 .where = "the last event read ends at " +
                          Where(*bytes, events.offset())},
                &builder);
  if (!header_ok) {
    AddLoss("damaged-header",
            "the keys beside the events are not valid JSON: rank, devices and "
            "the time base may be missing",
            1, Severity::kWarning, &builder);
  }
  Damage all = damage;
  all.damaged += events.lost_events();
  AddLosses(counts, all, &builder);

  TraceBuilder::Options options;
  // Our own files have whole nanoseconds.
  options.nesting_tolerance_ns = before.is_ours ? 0 : kRoundingNs;
  return builder.Build(options);
}

}  // namespace stepscope
