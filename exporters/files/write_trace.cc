// Writes a Trace to a file: opens the sink, calls the writer of the format, and
// puts the file in place.
#include <stepscope/export.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "chrome/writer/chrome_trace_writer.h"
#include "io/file_sink.h"
#include "text/text_writer.h"
#include "xspace/writer/xspace_writer.h"

namespace stepscope {
namespace {

absl::Status WriteInto(const Trace& trace,
                       std::span<const Annotation> annotations, Format format,
                       const std::string& path, const ExportOptions& options) {
  const bool is_chrome =
      format == Format::kChromeTb || format == Format::kChromeKineto;
  absl::StatusOr<std::unique_ptr<FileSink>> sink = FileSink::Make(
      path,
      is_chrome && path.ends_with(".gz") ? FileSink::Compression::kGzip
                                         : FileSink::Compression::kNone,
      options.unnamed_until_whole ? FileSink::Temporary::kUnnamed
                                  : FileSink::Temporary::kNamed);
  if (!sink.ok()) return sink.status();
  switch (format) {
    case Format::kChromeTb:
      WriteChromeTrace(trace, annotations, ChromeFlavour::kTb, **sink);
      break;
    case Format::kChromeKineto:
      WriteChromeTrace(trace, annotations, ChromeFlavour::kKineto, **sink);
      break;
    case Format::kXSpace: {
      // XProf shows the file's name before ".xplane.pb" as the host.
      const size_t folder = path.rfind('/') + 1;  // 0 where there is none
      std::string host = path.substr(folder);
      host.resize(std::min(host.size(), host.find(".xplane.pb")));
      absl::Status status = WriteXSpace(
          trace, annotations,
          {.host = std::move(host), .input_wait = options.input_wait}, **sink);
      if (!status.ok()) return status;
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
                        const std::string& path, const ExportOptions& options) {
  if (path.empty())
    return absl::InvalidArgumentError(
        "cannot write a trace: its path is empty; give a file name");
  // A writer runs inside the training process, so it must not throw into the
  // program.
  try {
    return WriteInto(trace, annotations, format, path, options);
  } catch (const std::exception& error) {  // out of memory, out of threads
    return absl::ResourceExhaustedError("cannot write '" + path +
                                        "': " + error.what() +
                                        "; free some memory and export again");
  }
}

}  // namespace stepscope
