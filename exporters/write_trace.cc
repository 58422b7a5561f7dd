#include <stepscope/export.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "file_sink.h"
#include "formats/chrome_trace_writer.h"
#include "formats/text_writer.h"
#include "formats/xspace_writer.h"

namespace stepscope {
namespace {

absl::Status WriteInto(const Trace& trace,
                       std::span<const Annotation> annotations, Format format,
                       const std::string& path) {
  const bool is_chrome =
      format == Format::kChromeTb || format == Format::kChromeKineto;
  absl::StatusOr<std::unique_ptr<FileSink>> sink = FileSink::Make(
      path, is_chrome && path.ends_with(".gz") ? FileSink::Compression::kGzip
                                               : FileSink::Compression::kNone);
  if (!sink.ok()) return sink.status();
  switch (format) {
    case Format::kChromeTb:
      WriteChromeTrace(trace, annotations, ChromeFlavour::kTb, **sink);
      break;
    case Format::kChromeKineto:
      WriteChromeTrace(trace, annotations, ChromeFlavour::kKineto, **sink);
      break;
    case Format::kXSpace: {
      const size_t folder = path.rfind('/') + 1;  // 0 where there is none
      std::string host = path.substr(folder);
      host.resize(std::min(host.size(), host.find(".xplane.pb")));
      WriteXSpace(trace, annotations, host, **sink);
      break;
    }
    case Format::kText:
      (*sink)->block() = ToTraceText(trace, annotations);
      break;
  }
  return (*sink)->Close();
}

}  // namespace

absl::Status WriteTrace(const Trace& trace,
                        std::span<const Annotation> annotations, Format format,
                        const std::string& path) {
  if (path.empty())
    return absl::InvalidArgumentError(
        "cannot write a trace: its path is empty; give a file name");
  try {
    return WriteInto(trace, annotations, format, path);
  } catch (const std::exception& error) {  // out of memory, out of threads
    return absl::ResourceExhaustedError("cannot write '" + path +
                                        "': " + error.what() +
                                        "; free some memory and export again");
  }
}

}  // namespace stepscope
