#include <absl/status/status.h>
#include <stepscope/read.h>

#include <memory>
#include <string_view>

#include "formats/bytes_reader.h"
#include "formats/chrome_trace_reader.h"
#include "formats/file_kind_reader.h"

namespace stepscope {

absl::StatusOr<Trace> ReadTrace(const std::string& path) {
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
  if (const std::string kind = KindOfFile(head); !kind.empty()) {
    return absl::InvalidArgumentError(
        path + " is no trace: it looks like " + kind +
        ". Give it a file of torch.profiler (export_chrome_trace) or of "
        "stepscope");
  }
  // From the start again: the events are cut out of one stream.
  bytes = BytesReader::Make(path);
  if (!bytes.ok()) return bytes.status();
  return ReadChromeTrace(path, bytes->get());
}

}  // namespace stepscope
