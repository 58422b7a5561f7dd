#include "words/compiled_names.h"

#include <stepscope/compiled_kernel.h>

namespace stepscope {

std::string WithFusedOps(std::string_view name) {
  std::string text = FusedOpsInWords(name);
  if (!text.empty()) text += ", ";
  return text += name;
}

}  // namespace stepscope
