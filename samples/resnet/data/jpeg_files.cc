#include "data/jpeg_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include "data/picture.h"

namespace resnet {
namespace {

// Writes under another name until the file is complete. A run that is killed,
// or another run at the same time, must not leave half a picture.
absl::Status WriteWhole(const std::string& path,
                        const std::vector<uint8_t>& bytes) {
  std::string partial = path + "." + std::to_string(::getpid()) + ".part";
  std::FILE* file = std::fopen(partial.c_str(), "wb");
  bool ok = file != nullptr &&
            std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  int error = errno;
  if (file != nullptr && std::fclose(file) != 0 && ok) {
    ok = false;
    error = errno;
  }
  if (ok && std::rename(partial.c_str(), path.c_str()) != 0) {
    ok = false;
    error = errno;
  }
  if (ok) return absl::OkStatus();
  std::remove(partial.c_str());
  return absl::UnavailableError(
      "cannot write " + path + ": " + std::strerror(error) +
      "; free some space or choose another folder with --data-cache");
}

absl::Status MakeOne(const JpegSet& set, int index, const std::string& path) {
  absl::StatusOr<std::vector<uint8_t>> bytes =
      EncodeJpeg(MakePicture(index, index % set.kinds, set.width, set.height),
                 set.quality);
  if (!bytes.ok()) return bytes.status();
  return WriteWhole(path, *bytes);
}

}  // namespace

absl::StatusOr<std::vector<uint8_t>> ReadFile(const std::string& path) {
  std::vector<uint8_t> bytes;
  int error = 0;
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat about = {};
  if (file < 0 || ::fstat(file, &about) != 0) {
    error = errno;
  } else if (S_ISDIR(about.st_mode)) {
    // open() succeeds on a folder, and its size is then that of its list.
    error = EISDIR;
  } else {
    bytes.resize(static_cast<size_t>(about.st_size));
    ssize_t got = ::read(file, bytes.data(), bytes.size());
    if (got < 0) error = errno;
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  }
  if (file >= 0) ::close(file);
  if (error == 0) return bytes;
  return absl::NotFoundError("cannot read " + path + ": " +
                             std::strerror(error));
}

std::string DefaultJpegCache(const JpegSet& set) {
  std::string name =
      "jpeg-" + std::to_string(set.width) + "x" + std::to_string(set.height);
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  // The XDG specification says that relative paths are to be ignored.
  if (cache != nullptr && cache[0] == '/') {
    return std::string(cache) + "/stepscope/" + name;
  }
  if (home != nullptr && home[0] == '/') {
    return std::string(home) + "/.cache/stepscope/" + name;
  }
  return "runs/.data/" + name;
}

absl::StatusOr<std::vector<std::string>> MakeJpegFiles(
    const std::string& dir, const JpegSet& set,
    const std::function<void(int done)>& on_progress) {
  std::error_code code;
  std::filesystem::create_directories(dir, code);
  if (code) {
    return absl::UnavailableError("cannot make the folder " + dir + ": " +
                                  code.message() +
                                  "; choose another with --data-cache");
  }
  std::vector<std::string> paths;
  std::vector<int> missing;
  for (int i = 0; i < set.count; ++i) {
    char name[32];
    std::snprintf(name, sizeof(name), "/%05d.jpg", i);
    paths.push_back(dir + name);
    // A file with its final name is complete, because WriteWhole() renames it
    // last.
    if (!std::filesystem::exists(paths.back(), code)) missing.push_back(i);
  }
  if (missing.empty()) return paths;

  std::atomic<size_t> next = 0;
  std::mutex mutex;  // guards `first_error` and `running`
  std::condition_variable finished;
  absl::Status first_error;
  unsigned running = std::clamp(std::thread::hardware_concurrency(), 1u, 8u);
  auto work = [&] {
    for (size_t i = next++; i < missing.size(); i = next++) {
      // A picture depends only on its number, so it does not matter which
      // thread or which run makes it.
      absl::Status status = MakeOne(set, missing[i], paths[missing[i]]);
      if (status.ok()) continue;
      std::lock_guard lock(mutex);
      if (first_error.ok()) first_error = status;
      next = missing.size();  // the other threads stop, too
    }
    std::lock_guard lock(mutex);
    --running;
    finished.notify_one();
  };
  std::vector<std::jthread> threads;
  for (unsigned i = running; i > 0; --i) threads.emplace_back(work);
  // This thread makes no pictures. It reports the progress, so that
  // `on_progress` is called from only one thread.
  std::unique_lock lock(mutex);
  while (!finished.wait_for(lock, std::chrono::milliseconds(200),
                            [&] { return running == 0; })) {
    // `next` may be too large, because each thread that finds no more work has
    // increased it once more.
    on_progress(static_cast<int>(std::min(next.load(), missing.size())));
  }
  if (!first_error.ok()) return first_error;
  return paths;
}

}  // namespace resnet
