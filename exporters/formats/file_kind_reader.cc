#include "file_kind_reader.h"

#include <algorithm>

namespace stepscope {
namespace {

struct Magic {
  std::string_view begin;
  const char* kind;
};

constexpr Magic kMagic[] = {
    {"PK\x03\x04", "a zip archive (torch.save files are zip archives too)"},
    {"\x80\x02", "a Python pickle"},
    {"\x80\x03", "a Python pickle"},
    {"\x80\x04", "a Python pickle"},
    {"\x80\x05", "a Python pickle"},
    {"SQLite format 3", "an SQLite database (Nsight Systems exports these)"},
    {"\x7f"
     "ELF",
     "a program or library"},
    {"\xfd"
     "7zXZ",
     "an xz archive; decompress it first"},
    {"BZh", "a bzip2 archive; decompress it first"},
    {"\x89PNG", "a picture"},
    {"\xff\xd8\xff", "a picture"},
    {"%PDF", "a PDF document"},
    {"<", "HTML or XML (a download that needed a login?)"},
};

bool IsBinary(std::string_view head) {
  return std::any_of(head.begin(), head.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x09;
  });
}

}  // namespace

// It begins with a length-delimited field 1 (its planes), whose first field is
// an id or a name. JSON may begin with a newline too, but has no "/host:" that
// early without a brace in front.
bool LooksLikeXSpace(std::string_view head) {
  if (head.size() < 4 || head[0] != '\x0a') return false;
  constexpr size_t kNamesWithin = 64;
  const std::string_view front = head.substr(0, kNamesWithin);
  return front.find("/host:") != std::string_view::npos ||
         front.find("/device:") != std::string_view::npos ||
         front.find("Task Environment") != std::string_view::npos;
}

std::string KindOfFile(std::string_view head) {
  if (head.empty()) return "an empty file";
  for (const Magic& magic : kMagic) {
    if (head.starts_with(magic.begin)) return magic.kind;
  }
  if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return "blanks only";
  if (head[first] == '{' || head[first] == '[') return "";
  if (IsBinary(head)) return "binary data of an unknown kind";
  return "text that is no JSON";
}

}  // namespace stepscope
