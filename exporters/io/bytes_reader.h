// BytesReader: reads a file from front to back, decompressing gzip and zstd.
// Memory is bounded by two blocks and the decompressor's window. One thread
// drives a reader.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/decompressor.h"

namespace stepscope {

class BytesReader {
 public:
  // Opens `path`. Errors: NotFound, InvalidArgument (a directory; zstd where
  // this build has none), PermissionDenied, ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<BytesReader>> Make(
      const std::string& path);
  ~BytesReader();
  BytesReader(const BytesReader&) = delete;
  BytesReader& operator=(const BytesReader&) = delete;

  // The first `size` bytes, or fewer if the file has fewer; Read() gives them
  // again. Valid until the next call. REQUIRES: called before Read().
  std::string_view Head(size_t size);

  // Fills `out` with up to `size` bytes and returns how many. 0 means the end,
  // or that no more bytes can be read (see problem()).
  size_t Read(char* out, size_t size);

  // The open file, for mapping; reading from it would disturb this reader.
  int file_number() const { return fileno(file_); }
  bool is_compressed() const { return decompressor_ != nullptr; }
  // Bytes that Read() gave so far, and bytes of the file used for them.
  uint64_t offset() const { return offset_; }
  uint64_t file_offset() const { return file_offset_ - left_.size(); }
  // What is wrong with the bytes that Read() gave.
  enum class Damage : uint8_t {
    kNone,
    kCut,       // they end early, as those of a file that was cut do
    kInside,    // they end early, at bytes that make no sense
    kWrongSum,  // all are there, but their checksum says that some are wrong
  };
  Damage damage() const { return damage_; }
  // The same in words; empty if nothing is wrong.
  const std::string& problem() const { return problem_; }

 private:
  explicit BytesReader(std::FILE* file);
  bool FillInput();
  size_t ReadMore(char* out, size_t size);
  size_t ReadPlain(char* out, size_t size);
  size_t ReadCompressed(char* out, size_t size);
  void SetProblem(Damage damage, std::string problem);

  std::FILE* file_;
  std::vector<char> input_;
  std::string_view left_;  // of input_, not used yet
  std::unique_ptr<Decompressor> decompressor_;
  std::string head_;      // what Head() gave; Read() gives it first
  size_t head_used_ = 0;  // of head_, by Read()
  bool inside_ = false;   // a compressed member
  bool ended_ = false;
  uint64_t offset_ = 0;
  uint64_t file_offset_ = 0;  // bytes read from the file
  Damage damage_ = Damage::kNone;
  std::string problem_;
};

}  // namespace stepscope
