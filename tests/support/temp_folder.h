// A folder of a test's own, removed with what is in it, and bytes to and from
// its files.
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

  // The path of `name` in it.
  std::string At(const std::string& name) const {
    return (path_ / name).string();
  }
  // Writes a file, making the folders above it; gives its path.
  std::string Write(const std::string& name, std::string_view bytes) const;

 private:
  std::filesystem::path path_;
};

// The bytes as one gzip stream.
std::string Gzip(std::string_view bytes);

// All bytes of a file.
std::string ReadBytes(const std::string& path);

}  // namespace stepscope
