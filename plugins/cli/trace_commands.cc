#include "trace_commands.h"

namespace stepscope {

std::optional<int> RunTraceCommand(std::span<const std::string> words) {
  if (words.empty()) return std::nullopt;
  if (words[0] == "info") return InfoCommand(words);
  if (words[0] == "top") return TopCommand(words);
  if (words[0] == "convert") return ConvertCommand(words);
  return std::nullopt;
}

}  // namespace stepscope
