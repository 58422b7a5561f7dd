#include "proc_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

namespace stepscope {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

int64_t ParseNumber(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return -1;
  text.remove_prefix(begin);
  int64_t value = -1;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? value : -1;
}

}  // namespace

ProcFile::ProcFile(const std::string& path)
    : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}

ProcFile::~ProcFile() {
  if (fd_ >= 0) close(fd_);
}

ProcFile::ProcFile(ProcFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

ProcFile& ProcFile::operator=(ProcFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

// The kernel generates the text again at each read from offset 0. A read may
// return only a part, so reading goes on until nothing more comes.
bool ProcFile::AppendTo(std::string& text, size_t limit) const {
  if (fd_ < 0) return false;
  const size_t before = text.size();
  text.resize(before + limit);
  size_t got = 0;
  while (got < limit) {
    const ssize_t n = pread(fd_, text.data() + before + got, limit - got,
                            static_cast<off_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      // After an error drop everything: half a text would be parsed as if it
      // were whole.
      if (n < 0) got = 0;
      break;
    }
    got += static_cast<size_t>(n);
  }
  text.resize(before + got);
  return got > 0;
}

// One read is enough for files that seq_file's single_open() serves. A file of
// lists (such as children) may come in parts.
bool ProcFile::AppendRecord(std::string& text, size_t limit) const {
  if (fd_ < 0) return false;
  const size_t before = text.size();
  text.resize(before + limit);
  ssize_t n;
  do {
    n = pread(fd_, text.data() + before, limit, 0);
  } while (n < 0 && errno == EINTR);
  text.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return n > 0;
}

std::string ReadSmallFile(const std::string& path) {
  std::string text;
  ProcFile(path).AppendTo(text, size_t{1} << 16);
  return text;
}

std::string_view TextOf(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.starts_with(key)) continue;
    std::string_view rest = line.substr(key.size());
    // Only blanks may follow the key, because "Cpus_allowed" is also the start
    // of the line "Cpus_allowed_list".
    const size_t colon = rest.find_first_not_of(" \t");
    if (colon == std::string_view::npos || rest[colon] != ':') continue;
    rest.remove_prefix(colon + 1);
    const size_t begin = rest.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return "";
    return rest.substr(begin, rest.find_last_not_of(kBlanks) + 1 - begin);
  }
  return "";
}

int64_t FieldOf(std::string_view text, std::string_view key) {
  return ParseNumber(TextOf(text, key));
}

int64_t NumberAt(std::string_view text, int n) {
  for (;; --n) {
    const size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return -1;
    text.remove_prefix(begin);
    if (n == 0) return ParseNumber(text);
    text.remove_prefix(std::min(text.size(), text.find_first_of(kBlanks)));
  }
}

}  // namespace stepscope
