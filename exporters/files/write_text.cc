#include <stepscope/export.h>

#include <memory>

#include "io/file_sink.h"

namespace stepscope {

absl::Status WriteText(std::string_view text, const std::string& path) {
  absl::StatusOr<std::unique_ptr<FileSink>> sink =
      FileSink::Make(path, FileSink::Compression::kNone);
  if (!sink.ok()) return sink.status();
  (*sink)->block().append(text);
  return (*sink)->Close();
}

}  // namespace stepscope
