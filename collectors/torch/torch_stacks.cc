#include "torch_stacks.h"

#include <stepscope/event_writer.h>
#include <torch/csrc/profiler/unwind/unwind.h>

#include <algorithm>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "torch_slots.h"

namespace stepscope {
namespace {

constexpr size_t kMaxFrames = 128;

// True for frames between the operator and the sampling, which are the same in
// all stacks.
bool IsOwnFrame(std::string_view function) {
  return function.find("torch::unwind::") != std::string_view::npos ||
         function.find("stepscope::") != std::string_view::npos ||
         function.find("at::RecordFunction::") != std::string_view::npos ||
         function.find("record_function_with_scope") != std::string_view::npos;
}

std::vector<std::string> FramesOf(
    const std::vector<uint64_t>& stack,
    const std::unordered_map<uint64_t, torch::unwind::Frame>& named) {
  std::vector<std::string> frames;
  bool is_leading = true;
  for (uint64_t address : stack) {
    const auto it = named.find(address);
    if (it == named.end()) continue;
    const torch::unwind::Frame& frame = it->second;
    if (is_leading && IsOwnFrame(frame.funcname)) continue;
    is_leading = false;
    frames.push_back(frame.filename + "(" + std::to_string(frame.lineno) +
                     "): " + frame.funcname);
  }
  return frames;
}

std::vector<std::vector<std::string>> Symbolize(
    std::span<const std::vector<uint64_t>> stacks) {
  // Look up each address only once, because the stacks of a step share most of
  // them.
  std::vector<void*> addresses;
  for (const std::vector<uint64_t>& stack : stacks) {
    for (uint64_t address : stack) {
      addresses.push_back(reinterpret_cast<void*>(address));
    }
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()),
                  addresses.end());
  std::unordered_map<uint64_t, torch::unwind::Frame> named;
  try {
    // Mode "fast" reads the debug sections in this process. Torch's default
    // mode would start a child process.
    const std::vector<torch::unwind::Frame> frames =
        torch::unwind::symbolize(addresses, torch::unwind::Mode::fast);
    for (size_t i = 0; i < frames.size(); ++i) {
      named.emplace(reinterpret_cast<uint64_t>(addresses[i]), frames[i]);
    }
  } catch (const std::exception&) {
    // Operators whose frames have no names get no stack.
  }
  std::vector<std::vector<std::string>> result;
  for (const std::vector<uint64_t>& stack : stacks) {
    result.push_back(FramesOf(stack, named));
  }
  return result;
}

}  // namespace

void AddStack() {
  const std::vector<void*> frames = torch::unwind::unwind();
  const size_t count = std::min(frames.size(), kMaxFrames);
  if (count == 0) return;
  WriteScope scope;
  if (!scope) return;
  Slot* head = scope.Reserve(1 + SlotsForWords(count));
  if (head == nullptr) return;
  head->word[2] = count;
  head->word[3] = PackTail(kStackSlot, 0);
  uint64_t* out = (head + 1)->word;
  for (size_t i = 0; i < count; ++i) {
    out[i] = reinterpret_cast<uint64_t>(frames[i]);
  }
}

Symbolizer MakeTorchSymbolizer() { return &Symbolize; }

}  // namespace stepscope
