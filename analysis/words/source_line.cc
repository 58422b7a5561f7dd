#include "words/source_line.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace stepscope {
namespace {

struct FrameParts {
  std::string_view file;
  std::string_view line;
  std::string_view function;
};

bool IsNumber(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isdigit(c) != 0;
  });
}

// Splits "file(line): function"; the parts are empty if the frame has another
// form. Splits at the first "): ", because a C++ function may also contain it,
// but a file hardly ever does.
FrameParts PartsOf(std::string_view frame) {
  const size_t close = frame.find("): ");
  if (close == std::string_view::npos) return {};
  const size_t open = frame.rfind('(', close);
  if (open == std::string_view::npos) return {};
  const std::string_view line = frame.substr(open + 1, close - open - 1);
  if (!IsNumber(line)) return {};
  return {frame.substr(0, open), line, frame.substr(close + 3)};
}

// Removes the return type and the parameters:
// "at::Tensor train<int>(at::Tensor const&)" -> "train<int>".
std::string_view QualifiedName(std::string_view function) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  size_t begin = 0, end = function.size();
  int depth = 0;
  for (size_t i = 0; i < function.size(); ++i) {
    if (function.substr(i).starts_with(kAnonymous)) {
      i += kAnonymous.size() - 1;
    } else if (function[i] == '<' || function[i] == '{') {
      // Template arguments and lambdas ("{lambda(int)#1}") hold blanks and
      // parentheses of their own.
      ++depth;
    } else if ((function[i] == '>' || function[i] == '}') && depth > 0) {
      --depth;
    } else if (depth == 0 && function[i] == '(') {
      // The first "()" after "operator" is part of the name, not the
      // parameters.
      if (!function.substr(0, i).ends_with("operator")) {
        end = i;
        break;
      }
    } else if (depth == 0 && function[i] == ' ') {
      begin = i + 1;
    }
  }
  return begin < end ? function.substr(begin, end - begin) : function;
}

// The program itself may be in a folder named torch, so only the folders of the
// installed package count.
bool IsFrameworkFile(std::string_view file) {
  constexpr std::array kParts = {"site-packages/",
                                 "dist-packages/",
                                 "/lib/python3",
                                 "/lib64/python3",
                                 "libtorch",
                                 "libc10",
                                 "libc.so",
                                 "libgomp",
                                 "libstdc++",
                                 "libpython3",
                                 "/pytorch/",
                                 "/torch/nn/",
                                 "/torch/optim/",
                                 "/torch/utils/",
                                 "/torch/autograd/",
                                 "/torch/cuda/",
                                 "/torch/amp/",
                                 "/torch/distributed/",
                                 "/torch/profiler/",
                                 "/torch/jit/",
                                 "/torch/fx/",
                                 "/torch/csrc/",
                                 "/torch/lib/",
                                 "/torch/include/",
                                 "/torch/_",
                                 "/torch/overrides.py",
                                 "/torch/functional.py"};
  return file.starts_with("<") || file.starts_with("torch/") ||
         std::ranges::any_of(kParts, [&](std::string_view part) {
           return file.find(part) != std::string_view::npos;
         });
}

// True for code that the user typed or passed to Python, which has no file.
bool IsTyped(std::string_view file) {
  constexpr std::array kNames = {"<stdin>", "<string>", "<ipython-input"};
  return std::ranges::any_of(
      kNames, [&](std::string_view name) { return file.starts_with(name); });
}

bool IsFrameworkFunction(std::string_view function) {
  constexpr std::array kSpaces = {
      "at::", "c10::", "torch::", "std::", "__gnu_cxx::", "caffe2::"};
  constexpr std::array kEntries = {"_start", "clone3", "start_thread",
                                   "__libc_start_main",
                                   "__libc_start_call_main"};
  const std::string_view name = QualifiedName(function);
  return std::ranges::any_of(
             kSpaces,
             [&](std::string_view space) { return name.starts_with(space); }) ||
         std::ranges::find(kEntries, name) != kEntries.end();
}

}  // namespace

bool IsFrameworkFrame(std::string_view frame) {
  if (IsTyped(frame)) return false;
  if (frame.starts_with("<") || frame.starts_with("nn.Module:")) return true;
  const FrameParts parts = PartsOf(frame);
  if (parts.function.empty()) return IsFrameworkFile(frame);
  return IsFrameworkFile(parts.file) || IsFrameworkFunction(parts.function);
}

std::string FrameInWords(std::string_view frame, std::string_view folder) {
  auto [file, line, function] = PartsOf(frame);
  if (function.empty()) return std::string(frame);
  const std::string name(QualifiedName(function));
  // Code compiled without -g has no line numbers.
  if (file.empty() || file == "??") return "in " + name;
  if (file.starts_with(folder)) file.remove_prefix(folder.size());
  std::string text(file);
  if (line != "0") text += ":" + std::string(line);
  return text + " in " + name;
}

std::string SourceLine(const Trace& trace, std::span<const NameId> frames) {
  std::string_view innermost, outermost;
  for (NameId id : frames) {
    const std::string_view frame = trace.name(id);
    if (IsFrameworkFrame(frame)) continue;
    if (innermost.empty()) innermost = frame;
    outermost = frame;
  }
  if (innermost.empty()) return "";
  // The outermost frame that is not the framework's is the program's main file.
  // Paths are shown relative to its folder.
  const std::string_view file = PartsOf(outermost).file;
  const size_t folder = file.rfind('/');
  return FrameInWords(innermost, folder == std::string_view::npos
                                     ? std::string_view()
                                     : file.substr(0, folder + 1));
}

}  // namespace stepscope
