// Tells code from prose in the texts of findings.
#pragma once

#include <string_view>
#include <vector>

namespace stepscope {

// True if all of `text` is code, as in "torch.compile(model)" or "x = f(a);
// g()". A sentence that names code ("use torch.compile on the model") is prose:
// it cannot be pasted into a program.
bool IsCode(std::string_view text);

struct TextPart {
  std::string_view text;
  bool is_code = false;
};
// `text` cut where prose and the code that it names meet: "use ",
// "torch.compile", " on the model". The parts refer to `text`.
std::vector<TextPart> TextPartsOf(std::string_view text);

}  // namespace stepscope
