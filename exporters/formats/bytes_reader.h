// BytesReader: the bytes of a file in order, decompressed if it is gzip. Memory
// is bounded by two blocks. One thread drives a reader.
#pragma once

#include <absl/status/statusor.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace stepscope {

class BytesReader {
 public:
  // Opens `path`. Errors: NotFound, InvalidArgument (a directory),
  // PermissionDenied.
  static absl::StatusOr<std::unique_ptr<BytesReader>> Make(
      const std::string& path);
  ~BytesReader();
  BytesReader(const BytesReader&) = delete;
  BytesReader& operator=(const BytesReader&) = delete;

  // Fills `out` with up to `size` bytes and returns how many; 0 at the end, or
  // where nothing more can be had (see problem()).
  size_t Read(char* out, size_t size);

  bool is_gzip() const { return is_gzip_; }
  // Bytes handed out so far; bytes of the file used for them.
  uint64_t offset() const { return offset_; }
  uint64_t file_offset() const { return file_offset_ - input_left(); }
  // Why the bytes ended before the file said they would; empty if they did not.
  const std::string& problem() const { return problem_; }

 private:
  BytesReader(std::FILE* file, std::string path);
  bool FillInput();
  size_t ReadGzip(char* out, size_t size);
  size_t input_left() const { return is_gzip_ ? stream_.avail_in : 0; }

  std::FILE* file_;
  std::string path_;
  std::vector<unsigned char> input_;
  z_stream stream_ = {};
  bool is_gzip_ = false;
  bool member_open_ = false;  // inside a gzip member
  bool ended_ = false;
  uint64_t offset_ = 0;
  uint64_t file_offset_ = 0;  // bytes read from the file
  std::string problem_;
};

}  // namespace stepscope
