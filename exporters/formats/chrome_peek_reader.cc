#include "chrome_peek_reader.h"

#include <absl/status/status.h>

#include <memory>

#include "bytes_reader.h"
#include "chrome_header_reader.h"
#include "chrome_trace_reader.h"
#include "file_kind_reader.h"
#include "json_events_reader.h"
#include "json_repair_reader.h"

namespace stepscope {

absl::StatusOr<FileFormat> FormatOfFile(const std::string& path) {
  absl::StatusOr<std::unique_ptr<BytesReader>> bytes = BytesReader::Make(path);
  if (!bytes.ok()) return bytes.status();
  std::string head(kKindBytes, '\0');
  head.resize((*bytes)->Read(head.data(), head.size()));
  if (head.empty() && !(*bytes)->problem().empty()) {
    return absl::DataLossError("cannot read " + path + ": " +
                               (*bytes)->problem() + " at byte " +
                               std::to_string((*bytes)->file_offset()) +
                               ". Copy it again, or record it again");
  }
  if (LooksLikeXSpace(head)) return FileFormat::kXSpace;
  if (const std::string kind = KindOfFile(head); !kind.empty()) {
    return absl::InvalidArgumentError(
        path + " is no trace: it looks like " + kind +
        ". Give it a file of torch.profiler (export_chrome_trace) or of "
        "stepscope");
  }
  return FileFormat::kJson;
}

absl::StatusOr<TracePeek> PeekTrace(const std::string& path) {
  const absl::StatusOr<FileFormat> format = FormatOfFile(path);
  if (!format.ok()) return format.status();
  if (*format != FileFormat::kJson) {
    return absl::InvalidArgumentError(
        path +
        " is an XSpace, which does not say its rank; name it to read it");
  }
  absl::StatusOr<std::unique_ptr<BytesReader>> bytes = BytesReader::Make(path);
  if (!bytes.ok()) return bytes.status();
  JsonEventsReader events(bytes->get());
  events.Next();
  if (!events.found_events()) return NoEventsError(path, **bytes, events);
  ChromeHeader header;
  const std::string json = events.header_before_events();
  if (!ReadChromeHeader(json, &header))
    ReadChromeHeader(RepairJson(json), &header);
  TracePeek peek;
  peek.is_ours = header.is_ours;
  peek.is_tb_flavour = header.is_tb_flavour;
  peek.rank = header.run.rank;
  peek.run_id = header.run.run_id;
  if (header.is_ours) peek.cycle = header.run.cycle;
  return peek;
}

}  // namespace stepscope
