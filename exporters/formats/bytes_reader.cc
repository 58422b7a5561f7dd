#include "bytes_reader.h"

#include <absl/status/status.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace stepscope {
namespace {

constexpr size_t kInputBytes = size_t{256} << 10;
constexpr int kGzipWindow = 15 + 16;  // zlib: expect a gzip header

absl::Status OpenError(const std::string& path, int error) {
  const std::string message =
      "cannot read " + path + ": " + std::strerror(error);
  if (error == ENOENT || error == ENOTDIR)
    return absl::NotFoundError(message + "; check the path");
  if (error == EACCES || error == EPERM)
    return absl::PermissionDeniedError(message + "; check its permissions");
  return absl::UnavailableError(message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<BytesReader>> BytesReader::Make(
    const std::string& path) {
  struct stat about = {};
  if (stat(path.c_str(), &about) != 0) return OpenError(path, errno);
  if (S_ISDIR(about.st_mode)) {
    return absl::InvalidArgumentError(
        path + " is a directory; name a trace file in it, or give the " +
        "directory to `stepscope analyze`, which looks for traces inside");
  }
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return OpenError(path, errno);
  std::unique_ptr<BytesReader> reader(new BytesReader(file, path));
  reader->FillInput();
  const auto* head = reader->stream_.next_in;
  if (reader->stream_.avail_in >= 2 && head[0] == 0x1f && head[1] == 0x8b) {
    if (inflateInit2(&reader->stream_, kGzipWindow) != Z_OK)
      return absl::ResourceExhaustedError("no memory to decompress " + path);
    reader->is_gzip_ = reader->member_open_ = true;
  }
  return reader;
}

BytesReader::BytesReader(std::FILE* file, std::string path)
    : file_(file), path_(std::move(path)), input_(kInputBytes) {}

BytesReader::~BytesReader() {
  if (is_gzip_) inflateEnd(&stream_);
  std::fclose(file_);
}

bool BytesReader::FillInput() {
  const size_t count = std::fread(input_.data(), 1, input_.size(), file_);
  file_offset_ += count;
  stream_.next_in = input_.data();
  stream_.avail_in = static_cast<unsigned>(count);
  if (count == 0 && std::ferror(file_))
    problem_ = std::string("reading failed: ") + std::strerror(errno);
  return count > 0;
}

size_t BytesReader::Read(char* out, size_t size) {
  if (ended_) return 0;
  size_t count = 0;
  if (is_gzip_) {
    count = ReadGzip(out, size);
  } else {
    // What Make() looked at comes first, then straight from the file.
    count = std::min<size_t>(size, stream_.avail_in);
    if (count > 0) {
      std::memcpy(out, stream_.next_in, count);
      stream_.next_in += count;
      stream_.avail_in -= static_cast<unsigned>(count);
    } else {
      count = std::fread(out, 1, size, file_);
      file_offset_ += count;
      if (count == 0 && std::ferror(file_))
        problem_ = std::string("reading failed: ") + std::strerror(errno);
    }
  }
  if (count == 0) ended_ = true;
  offset_ += count;
  return count;
}

size_t BytesReader::ReadGzip(char* out, size_t size) {
  stream_.next_out = reinterpret_cast<unsigned char*>(out);
  stream_.avail_out = static_cast<unsigned>(size);
  while (stream_.avail_out > 0) {
    if (stream_.avail_in == 0 && !FillInput()) {
      if (member_open_ && problem_.empty())
        problem_ = "the gzip stream is cut off";
      break;
    }
    if (!member_open_) {
      // Files may be several gzip members in a row; anything else behind the
      // last one is padding.
      if (stream_.next_in[0] != 0x1f) break;
      inflateReset(&stream_);
      member_open_ = true;
    }
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      member_open_ = false;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      problem_ = std::string("the gzip stream is damaged (") +
                 (stream_.msg != nullptr ? stream_.msg : "no reason given") +
                 ")";
      break;
    }
  }
  const size_t count = size - stream_.avail_out;
  if (!problem_.empty() && count == 0) ended_ = true;
  return count;
}

}  // namespace stepscope
