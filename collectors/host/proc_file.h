// ProcFile: a file of /proc that stays open and is read repeatedly from its
// start. Also functions that find numbers in its text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stepscope {

// The kernel generates the text at each read from offset 0, so keeping the file
// open saves a path look-up per step. Move-only; used by one thread.
class ProcFile {
 public:
  ProcFile() = default;
  explicit ProcFile(
      const std::string& path);  // if it is absent, reads are empty
  ~ProcFile();
  ProcFile(ProcFile&& other) noexcept;
  ProcFile& operator=(ProcFile&& other) noexcept;

  bool is_open() const { return fd_ >= 0; }
  // Appends the text, at most `limit` bytes. False if it cannot be read.
  bool AppendTo(std::string& text, size_t limit = 4096) const;
  // The same for a file that is one record, such as schedstat and io, which one
  // read returns completely. AppendTo() needs a second read, for which the
  // kernel generates the text again. REQUIRES: the record is shorter than
  // `limit`.
  bool AppendRecord(std::string& text, size_t limit) const;

 private:
  int fd_ = -1;
};

// Returns the whole text of a small file; "" if it cannot be read.
std::string ReadSmallFile(const std::string& path);

// Returns the number after "key:" at the start of a line; -1 if there is none.
int64_t FieldOf(std::string_view text, std::string_view key);
// Returns the n-th number of a line of numbers, from 0; -1 if there is none.
int64_t NumberAt(std::string_view text, int n);
// Returns the text after "key:", without blanks around it; "" if there is none.
// Blanks and tabs may precede the colon.
std::string_view TextOf(std::string_view text, std::string_view key);

}  // namespace stepscope
