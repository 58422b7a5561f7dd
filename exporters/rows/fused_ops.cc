#include "rows/fused_ops.h"

#include <stepscope/compiled_kernel.h>

#include <utility>

namespace stepscope {

const std::string& FusedOps::Of(NameId name) {
  uint32_t& at = index_[name];
  if (at == 0) {
    // 0 means "not asked yet"; 1 is the empty text, which most names have.
    std::string text = FusedOpsInWords(trace_.name(name));
    at = 1;
    if (!text.empty()) {
      texts_.push_back(std::move(text));
      at = static_cast<uint32_t>(texts_.size());
    }
  }
  return texts_[at - 1];
}

}  // namespace stepscope
