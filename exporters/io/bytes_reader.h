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

  // Returns the first `size` bytes, or fewer if the file has fewer. Read()
  // returns them again. Valid until the next call. REQUIRES: called before
  // Read().
  std::string_view Head(size_t size);

  // Fills `out` with up to `size` bytes and returns how many. 0 means the end,
  // or that no more bytes can be read (see problem()).
  size_t Read(char* out, size_t size);

  // The open file, for mapping. Reading from it would disturb this reader.
  int file_number() const { return fileno(file_); }
  bool is_compressed() const { return decompressor_ != nullptr; }
  // The bytes that Read() has returned so far, and how many bytes of the file
  // they took.
  uint64_t offset() const { return offset_; }
  uint64_t file_offset() const { return file_offset_ - left_.size(); }
  // What is wrong with the bytes that Read() returned.
  enum class Damage : uint8_t {
    kNone,
    kCut,       // they end early, because the file does
    kInside,    // they end early, before bytes that make no sense
    kWrongSum,  // they are complete, but their checksum does not match
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
  std::string_view left_;  // the part of input_ not used yet
  std::unique_ptr<Decompressor> decompressor_;
  std::string head_;      // what Head() returned; Read() returns it first
  size_t head_used_ = 0;  // bytes of head_ that Read() has returned
  bool inside_ = false;   // true inside a compressed member
  bool ended_ = false;
  uint64_t offset_ = 0;
  uint64_t file_offset_ = 0;  // bytes read from the file
  Damage damage_ = Damage::kNone;
  std::string problem_;
};

}  // namespace stepscope
