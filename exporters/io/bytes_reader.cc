#include "io/bytes_reader.h"

#include <absl/status/status.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace stepscope {
namespace {

// Large enough that system calls cost nothing compared with decompression.
constexpr size_t kInputBytes = size_t{256} << 10;
constexpr std::string_view kGzip = "\x1f\x8b";
constexpr std::string_view kZstd = "\x28\xb5\x2f\xfd";

absl::Status OpenError(const std::string& path, int error) {
  const std::string message =
      "cannot read " + path + ": " + std::strerror(error);
  if (error == ENOENT || error == ENOTDIR)
    return absl::NotFoundError(message + "; check the path");
  if (error == EACCES || error == EPERM)
    return absl::PermissionDeniedError(message + "; check its permissions");
  return absl::UnavailableError(message + "; check the disk and try again");
}

}  // namespace

absl::StatusOr<std::unique_ptr<BytesReader>> BytesReader::Make(
    const std::string& path) {
  struct stat about = {};
  if (stat(path.c_str(), &about) != 0) return OpenError(path, errno);
  if (S_ISDIR(about.st_mode)) {
    return absl::InvalidArgumentError(
        path + " is a directory; give a trace file in it, or use `stepscope " +
        "analyze`, which finds the traces of a directory");
  }
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return OpenError(path, errno);
  std::unique_ptr<BytesReader> reader(new BytesReader(file));
  reader->FillInput();
  // The content decides and not the name, because people rename files.
  const bool is_gzip = reader->left_.starts_with(kGzip);
  const bool is_zstd = reader->left_.starts_with(kZstd);
  if (is_zstd && !kHasZstd) {
    return absl::InvalidArgumentError(
        path +
        " is a zstd archive, which this build of stepscope cannot read "
        "(it was built without libzstd); decompress it first: unzstd " +
        path);
  }
  if (is_gzip) reader->decompressor_ = MakeGzipDecompressor();
  if (is_zstd) reader->decompressor_ = MakeZstdDecompressor();
  if ((is_gzip || is_zstd) && reader->decompressor_ == nullptr)
    return absl::ResourceExhaustedError("cannot decompress " + path +
                                        ": out of memory; free some memory");
  return reader;
}

BytesReader::BytesReader(std::FILE* file) : file_(file), input_(kInputBytes) {}

BytesReader::~BytesReader() { std::fclose(file_); }

bool BytesReader::FillInput() {
  const size_t count = std::fread(input_.data(), 1, input_.size(), file_);
  file_offset_ += count;
  left_ = {input_.data(), count};
  if (count == 0 && std::ferror(file_))
    SetProblem(Damage::kCut,
               std::string("reading failed: ") + std::strerror(errno));
  return count > 0;
}

// Keeps the bytes, so that Read() can return them again.
std::string_view BytesReader::Head(size_t size) {
  head_.resize(size);
  head_.resize(ReadMore(head_.data(), size));
  return head_;
}

size_t BytesReader::Read(char* out, size_t size) {
  const size_t count = std::min(size, head_.size() - head_used_);
  std::memcpy(out, head_.data() + head_used_, count);
  head_used_ += count;
  const size_t all = count + ReadMore(out + count, size - count);
  offset_ += all;
  return all;
}

size_t BytesReader::ReadMore(char* out, size_t size) {
  if (ended_ || size == 0) return 0;
  const size_t count =
      is_compressed() ? ReadCompressed(out, size) : ReadPlain(out, size);
  if (count == 0) ended_ = true;
  return count;
}

// Returns first the bytes that Make() has read, then reads from the file.
size_t BytesReader::ReadPlain(char* out, size_t size) {
  if (!left_.empty()) {
    const size_t count = std::min(size, left_.size());
    std::memcpy(out, left_.data(), count);
    left_.remove_prefix(count);
    return count;
  }
  const size_t count = std::fread(out, 1, size, file_);
  file_offset_ += count;
  if (count == 0 && std::ferror(file_))
    SetProblem(Damage::kCut,
               std::string("reading failed: ") + std::strerror(errno));
  return count;
}

// Keeps the first problem, which is the cause of later ones.
void BytesReader::SetProblem(Damage damage, std::string problem) {
  if (damage_ != Damage::kNone) return;
  damage_ = damage;
  problem_ = std::move(problem);
}

// A gzip file may be several members in a row, as concatenated files are, so
// the end of one is not the end of the file.
size_t BytesReader::ReadCompressed(char* out, size_t size) {
  Decompressor::Step step = {left_, out, size};
  while (step.room > 0) {
    const bool no_more = left_.empty() && !FillInput();
    if (no_more && !inside_) break;
    if (!inside_) {
      // After the last member, anything but another member is padding.
      if (!decompressor_->Begins(left_)) break;
      decompressor_->Restart();
      inside_ = true;
    }
    step.in = left_;
    const size_t room = step.room;
    const Decompressor::State state = decompressor_->Decompress(&step);
    left_ = step.in;
    inside_ = state == Decompressor::State::kInside;
    const std::string stream =
        std::string("the ") + decompressor_->name() + " stream is ";
    if (state == Decompressor::State::kWrongSum) {
      SetProblem(Damage::kWrongSum,
                 std::string("the ") + decompressor_->name() +
                     " checksum does not match the content (" +
                     decompressor_->problem() + ")");
      break;
    }
    if (state == Decompressor::State::kDamaged) {
      SetProblem(Damage::kInside,
                 stream + "damaged (" + decompressor_->problem() + ")");
      break;
    }
    // A decompressor may still have output when there is no more input.
    if (no_more && inside_ && step.room == room) {
      SetProblem(Damage::kCut, stream + "cut off");
      break;
    }
  }
  return size - step.room;
}

}  // namespace stepscope
