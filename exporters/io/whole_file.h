// WholeFile: all bytes of a file in one piece, for formats that cannot be read
// front to back. A plain file is mapped, so the system can drop its pages; a
// compressed file is decompressed into memory, up to a limit.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "io/bytes_reader.h"

namespace stepscope {

class WholeFile {
 public:
  // The most that is decompressed by default, 2 GiB.
  static constexpr size_t kMostBytes = size_t{2} << 30;

  // Reads or maps the file at `path`, which `reader` has opened, from its first
  // byte. `reader` may be destroyed afterwards. REQUIRES: nothing but Head()
  // was called on `reader`. Errors: ResourceExhausted (the file decompresses to
  // more than `most_bytes`).
  static absl::StatusOr<std::unique_ptr<WholeFile>> Make(
      const std::string& path, BytesReader* reader,
      size_t most_bytes = kMostBytes);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  std::string_view bytes() const { return bytes_; }
  // Mean the same as BytesReader's.
  BytesReader::Damage damage() const { return damage_; }
  const std::string& problem() const { return problem_; }
  // Tells the system that `part` of bytes() will not be read again soon, so
  // that it can drop the pages of a mapped file.
  void Release(std::string_view part) const;

 private:
  WholeFile() = default;

  std::string_view bytes_;
  std::string read_;  // what was decompressed
  BytesReader::Damage damage_ = BytesReader::Damage::kNone;
  std::string problem_;
  void* mapped_ = nullptr;
};

// Releases the memory of a part of a file while it is read front to back.
class ReleaseBehind {
 public:
  ReleaseBehind(const WholeFile& file, std::string_view part)
      : file_(file), from_(part.data()) {}

  // Call when the bytes before `at` will not be read again soon.
  void Passed(const char* at) {
    constexpr ptrdiff_t kStepBytes = 4 << 20;
    if (at - from_ < kStepBytes) return;
    file_.Release({from_, static_cast<size_t>(at - from_)});
    from_ = at;
  }

 private:
  const WholeFile& file_;
  const char* from_;
};

}  // namespace stepscope
