#include "files/trace_peek.h"

#include <absl/status/status.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "chrome/reader/chrome_header_reader.h"
#include "chrome/reader/chrome_trace_reader.h"
#include "files/file_kind.h"
#include "io/bytes_reader.h"
#include "json/json_events_reader.h"
#include "json/json_repair.h"

namespace stepscope {
namespace {

// True if the last bytes of an open file can be the end of JSON, or if they
// cannot be read.
bool EndsLikeJson(int file) {
  constexpr off_t kTailBytes = 4096;
  struct stat about = {};
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) return true;
  char tail[kTailBytes];
  const off_t from = std::max<off_t>(0, about.st_size - kTailBytes);
  const ssize_t count = pread(file, tail, sizeof(tail), from);
  if (count <= 0) return true;
  const std::string_view text(tail, static_cast<size_t>(count));
  const size_t last = text.find_last_not_of(" \t\r\n");
  return last == std::string_view::npos || text[last] == '}' ||
         text[last] == ']';
}

}  // namespace

absl::StatusOr<TracePeek> PeekTrace(const std::string& path) {
  absl::StatusOr<std::unique_ptr<BytesReader>> bytes = BytesReader::Make(path);
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<FileFormat> format = FormatOf(path, bytes->get());
  if (!format.ok()) return format.status();
  if (*format != FileFormat::kJson) {
    return absl::InvalidArgumentError(
        path +
        " is an XSpace, which has no rank; give the file itself to read it");
  }
  // A header is a few kilobytes, and the reader stops at the first event, so
  // this costs the same for any size of file.
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
  peek.is_timeline = header.is_timeline;
  peek.rank = header.run.rank;
  peek.run_id = header.run.run_id;
  peek.is_cut =
      !(*bytes)->is_compressed() && !EndsLikeJson((*bytes)->file_number());
  if (header.is_ours) peek.cycle = header.run.cycle;
  return peek;
}

}  // namespace stepscope
