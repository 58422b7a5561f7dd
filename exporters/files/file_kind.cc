#include "files/file_kind.h"

#include <absl/status/status.h>

#include <algorithm>
#include <string_view>

namespace stepscope {
namespace {

// The first bytes of files that people give by mistake, so that the message can
// say what they are.
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

// An XSpace begins with a length-delimited field 1 (its planes), whose first
// field is an id or a name. JSON may begin with a newline too, but has no
// "/host:" that early without a brace before it.
bool LooksLikeXSpace(std::string_view head) {
  if (head.size() < 4 || head[0] != '\x0a') return false;
  constexpr size_t kNamesWithin = 64;
  const std::string_view front = head.substr(0, kNamesWithin);
  return front.find("/host:") != std::string_view::npos ||
         front.find("/device:") != std::string_view::npos ||
         front.find("Task Environment") != std::string_view::npos;
}

// Returns what `head` looks like, in words for a message; "" if it could be the
// start of JSON.
std::string KindOf(std::string_view head) {
  if (head.empty()) return "an empty file";
  for (const Magic& magic : kMagic) {
    if (head.starts_with(magic.begin)) return magic.kind;
  }
  // A byte order mark may precede JSON.
  if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return "blanks only";
  if (head[first] == '{' || head[first] == '[') return "";
  if (IsBinary(head)) return "binary data of an unknown kind";
  return "text that is not JSON";
}

}  // namespace

absl::StatusOr<FileFormat> FormatOf(const std::string& path,
                                    BytesReader* bytes) {
  // This is enough to see past blanks and a byte order mark.
  constexpr size_t kHeadBytes = 4096;
  const std::string_view head = bytes->Head(kHeadBytes);
  if (head.empty() && !bytes->problem().empty()) {
    return absl::DataLossError("cannot read " + path + ": " + bytes->problem() +
                               " at byte " +
                               std::to_string(bytes->file_offset()) +
                               ". Copy it again, or record it again");
  }
  if (LooksLikeXSpace(head)) return FileFormat::kXSpace;
  if (const std::string kind = KindOf(head); !kind.empty()) {
    return absl::InvalidArgumentError(
        path + " is not a trace: it looks like " + kind +
        ". Use a file of torch.profiler (export_chrome_trace) or of "
        "stepscope");
  }
  return FileFormat::kJson;
}

}  // namespace stepscope
