#include "io/file_damage.h"

#include <utility>

namespace stepscope {
namespace {

std::string Behind(const char* mark, const std::string& text) {
  return text.empty() ? "" : mark + text;
}

}  // namespace

void AddFileDamage(const FileDamage& file, TraceBuilder* builder) {
  using Damage = BytesReader::Damage;
  const auto add = [&](const char* name, std::string detail) {
    builder->Add(Loss{name, std::move(detail), 1, Severity::kError});
  };
  const std::string why = Behind(": ", file.problem);
  const std::string where = Behind("; ", file.where);
  if (file.damage == Damage::kWrongSum) {
    add("wrong-checksum",
        "the file is damaged" + (file.is_cut ? where : "") + why +
            (file.is_cut
                 ? ". Events after that point are missing, and any value"
                 : ". Any value") +
            " may be wrong; copy it again, or record it again");
  } else if (file.damage == Damage::kInside) {
    add("damaged-file", "the file is damaged" + where + why +
                            ". Events after that point are missing");
  } else if (file.damage == Damage::kCut || file.is_cut) {
    add("truncated-file", "the file is " + file.cut_is + where + why +
                              ". Events after that point are missing");
  }
}

}  // namespace stepscope
