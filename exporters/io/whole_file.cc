#include "io/whole_file.h"

#include <absl/status/status.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

namespace stepscope {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;

// Maps a plain file and returns its bytes; nullptr if it cannot be mapped (a
// pipe, an empty file).
void* Map(int file, size_t* size) {
  struct stat about = {};
  void* mapped = MAP_FAILED;
  if (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0) {
    *size = static_cast<size_t>(about.st_size);
    mapped = mmap(nullptr, *size, PROT_READ, MAP_PRIVATE, file, 0);
  }
  return mapped == MAP_FAILED ? nullptr : mapped;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WholeFile>> WholeFile::Make(
    const std::string& path, BytesReader* reader, size_t most_bytes) {
  std::unique_ptr<WholeFile> file(new WholeFile);
  if (!reader->is_compressed()) {
    size_t size = 0;
    file->mapped_ = Map(reader->file_number(), &size);
    if (file->mapped_ != nullptr) {
      file->bytes_ = {static_cast<const char*>(file->mapped_), size};
      return file;
    }
  }
  std::string& read = file->read_;
  while (true) {
    const size_t before = read.size();
    // A small archive may decompress to more memory than any machine has.
    if (before > most_bytes) {
      return absl::ResourceExhaustedError(
          "cannot read " + path + ": it decompresses to more than " +
          std::to_string(most_bytes >> 20) +
          " MiB; decompress it into a file first");
    }
    read.resize(before + kBlockBytes);
    const size_t count = reader->Read(read.data() + before, kBlockBytes);
    read.resize(before + count);
    if (count == 0) break;
  }
  file->damage_ = reader->damage();
  file->problem_ = reader->problem();
  file->bytes_ = read;
  return file;
}

WholeFile::~WholeFile() {
  if (mapped_ != nullptr) munmap(mapped_, bytes_.size());
}

// Releases only whole pages inside the part, because its first and last page
// may also hold other bytes.
void WholeFile::Release(std::string_view part) const {
  if (mapped_ == nullptr || part.empty()) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + part.size()) / page * page;
  if (first < last)
    madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace stepscope
