// DrawnNames: collects the names that drawings refer to, each only once.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace stepscope {

// One thread at a time.
class DrawnNames {
 public:
  // `names` is PageDetails::names and must outlive this object.
  DrawnNames(const Trace& trace, std::vector<std::string>& names)
      : trace_(trace), names_(names) {}

  // The index of a name in `names`.
  uint32_t Of(NameId id) {
    const auto [at, is_new] =
        by_id_.try_emplace(id, static_cast<uint32_t>(names_.size()));
    if (is_new) names_.emplace_back(Clipped(trace_.name(id)));
    return at->second;
  }
  uint32_t Of(const std::string& text) {
    if (text.empty()) return 0;
    const auto [at, is_new] =
        by_text_.try_emplace(text, static_cast<uint32_t>(names_.size()));
    if (is_new) names_.emplace_back(Clipped(text));
    return at->second;
  }

 private:
  // A page cuts names anyway, so copying all of a very long one would only
  // waste memory.
  static std::string_view Clipped(std::string_view text) {
    constexpr size_t kMost = 2000;
    return text.substr(0, kMost);
  }

  const Trace& trace_;
  std::vector<std::string>& names_;
  std::unordered_map<NameId, uint32_t> by_id_;
  std::unordered_map<std::string, uint32_t> by_text_;
};

}  // namespace stepscope
