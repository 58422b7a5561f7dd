// A folder for one test, removed with its contents; and functions that read and
// write bytes of files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace stepscope {

class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Returns the path of `name` in the folder.
  std::string At(const std::string& name) const {
    return (path_ / name).string();
  }
  // Writes a file, creates missing parent folders, and returns the path.
  std::string Write(const std::string& name, std::string_view bytes) const;

 private:
  std::filesystem::path path_;
};

// Returns the bytes as one gzip stream.
std::string Gzip(std::string_view bytes);

// Returns all bytes of a file.
std::string ReadBytes(const std::string& path);

}  // namespace stepscope
