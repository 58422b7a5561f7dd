// Writes several Traces into one Chrome trace: each with its own processes and
// arrows, all on one clock.
#include <stepscope/timeline.h>

#include <utility>

#include "chrome/writer/chrome_event_writer.h"
#include "chrome/writer/chrome_header_writer.h"
#include "chrome/writer/chrome_trace_writer.h"
#include "io/file_sink.h"
#include "json/json_writer.h"

namespace stepscope {
namespace {

// The ids reserved for each rank. For up to 2^21 ranks the ids of arrows are
// exact in a double.
constexpr int64_t kPidsOfRank = 1000;
constexpr int64_t kArrowsOfRank = int64_t{1} << 32;
constexpr int64_t kDayNs = int64_t{24} * 3600 * 1'000'000'000;

}  // namespace

struct TimelineWriter::File {
  std::unique_ptr<FileSink> sink;
  int64_t base_ns = 0;  // the time of ts 0; known from the first Trace on
  int64_t ranks = 0;
};

TimelineWriter::TimelineWriter(std::unique_ptr<File> file)
    : file_(std::move(file)) {}
TimelineWriter::~TimelineWriter() = default;

absl::StatusOr<std::unique_ptr<TimelineWriter>> TimelineWriter::Make(
    const std::string& path, double residual_us) {
  absl::StatusOr<std::unique_ptr<FileSink>> sink =
      FileSink::Make(path,
                     path.ends_with(".gz") ? FileSink::Compression::kGzip
                                           : FileSink::Compression::kNone,
                     FileSink::Temporary::kUnnamed);
  if (!sink.ok()) return sink.status();
  auto file = std::make_unique<File>();
  file->sink = *std::move(sink);
  std::string& out = file->sink->block();
  out +=
      "{\n  \"schemaVersion\": 1,\n  \"stepscope.timeline\": 1,\n"
      "  \"displayTimeUnit\": \"ms\",\n";
  if (residual_us >= 0) {
    out += "  \"stepscope.clock_residual_us\": ";
    AppendDouble(residual_us, out);
    out += ",\n";
  }
  out += "  \"traceEvents\": [\n";
  return std::unique_ptr<TimelineWriter>(new TimelineWriter(std::move(file)));
}

void TimelineWriter::Add(const Trace& trace, const TimelineRank& rank) {
  const TimeSpan span = SpanOf(trace);
  if (file_->ranks == 0) {
    // A day earlier, because other ranks may have begun before midnight, and
    // Perfetto drops events before ts 0.
    file_->base_ns =
        ChromeBaseTime(trace, span) - kDayNs - rank.clock_offset_ns;
  }
  const int64_t number = ++file_->ranks;
  const ChromeRankPlace place = {.name = rank.name,
                                 .first_pid = number * kPidsOfRank,
                                 .first_arrow = number * kArrowsOfRank,
                                 .arrows = rank.arrows};
  std::string& out = file_->sink->block();
  ChromeRows rows(trace, &out, place);
  // Every event of a rank begins with a comma.
  if (number == 1) out += R"({"ph": "M", "name": "timeline", "pid": 0})";
  ChromeEventWriter events(trace, ChromeFlavour::kKineto,
                           file_->base_ns + rank.clock_offset_ns, &rows, &out,
                           place);
  events.WriteLosses(span);
  events.WriteAnnotations(rank.annotations, span);
  events.WriteCounters();
  WriteChromeRows(trace, events, *file_->sink);
}

absl::Status TimelineWriter::Close() {
  file_->sink->block() += file_->ranks == 0 ? "  ]\n}\n" : "\n  ]\n}\n";
  return file_->sink->Close();
}

}  // namespace stepscope
