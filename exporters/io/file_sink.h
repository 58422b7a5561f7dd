// FileSink: a file that appears whole or not at all.
//
// Bytes go to a temporary file in the folder of `path`, which Close() renames;
// a sink that is destroyed earlier removes it. If the process is killed, a
// named file stays, and readers of a log directory see from it that a window
// was not finished; an unnamed one vanishes. If `path` is a symbolic link,
// what it points to is replaced. A pipe or a device is written to directly,
// because it must not be replaced. The sink's own thread compresses
// and writes blocks from a short queue, so memory is bounded and the caller
// only formats. One thread drives a sink; after a fork the child must not touch
// it.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <string>

namespace stepscope {

class FileSink {
 public:
  enum class Compression { kNone, kGzip };
  enum class Temporary { kNamed, kUnnamed };
  static constexpr size_t kBlockBytes = 1 << 20;

  // Opens the temporary file, pipe or device. Waits for a pipe's reader. The
  // file has a name, whatever `temporary` says, if the file system has no
  // unnamed ones. Errors: see FileError().
  static absl::StatusOr<std::unique_ptr<FileSink>> Make(
      const std::string& path, Compression compression,
      Temporary temporary = Temporary::kNamed);
  ~FileSink();
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  // The block to append to. Call Flush() between events.
  std::string& block() { return block_; }
  // Passes the block to the sink's thread once it is full. After a write error
  // blocks are discarded and Close() returns the error; failed() lets a long
  // export stop early.
  void Flush() {
    if (block_.size() >= kBlockBytes) HandOver();
  }
  bool failed() const;

  // Writes the rest and renames the file. Returns the first error that
  // happened; then no file is left.
  absl::Status Close();

 private:
  struct Worker;
  explicit FileSink(std::unique_ptr<Worker> worker);
  void HandOver();

  std::string block_;
  std::unique_ptr<Worker> worker_;
};

}  // namespace stepscope
