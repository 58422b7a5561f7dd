#include "torch_comms.h"

#include <stepscope/event_writer.h>

#include <array>
#include <cstring>
#include <string>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include "torch_slots.h"

namespace stepscope {
namespace {

constexpr uint64_t kUnknownDtype = 255;

// Returns the sequence number of a collective. c10d passes (sequence, is
// point-to-point) as the first argument, or as the second if the first is a
// list of tensors. The arguments are visible only if inputs are recorded.
int64_t SequenceOf(const at::RecordFunction& fn) {
  const c10::ArrayRef<const c10::IValue> inputs = fn.inputs();
  for (size_t i = 0; i < inputs.size() && i < 2; ++i) {
    if (inputs[i].isInt()) return inputs[i].toInt();
    if (!inputs[i].isTuple()) continue;
    const auto tuple = inputs[i].toTuple();
    if (!tuple->elements().empty() && tuple->elements()[0].isInt()) {
      return tuple->elements()[0].toInt();
    }
  }
  return -1;
}

std::string RanksText(const std::vector<int64_t>& ranks) {
  std::string text = "[";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
  }
  return text + "]";
}

}  // namespace

bool IsComms(const at::RecordFunction& fn) {
  return fn.scope() == at::RecordScope::FUNCTION &&
         at::kParamCommsCallName == fn.name();
}

void AddComms(const at::RecordFunction& fn) {
  const auto* about = dynamic_cast<const torch::ParamCommsDebugInfo*>(
      c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PARAM_COMMS_INFO));
  if (about == nullptr) return;
  const std::array<std::string, 4> texts = {
      about->getCollectiveName(), about->getProcessGroupName(),
      about->getProcessGroupDesc(), RanksText(about->getGroupRanks())};
  WriteScope scope;
  if (!scope) return;
  std::array<std::string_view, 4> parts;
  uint64_t lengths = 0;
  size_t bytes = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    parts[i] = Bounded(scope.log(), texts[i]);
    // Four lengths of 16 bits share a word. They fit, because Bounded() cuts
    // texts far below 64 KiB.
    lengths |= uint64_t{parts[i].size()} << (16 * i);
    bytes += parts[i].size();
  }
  const size_t words = kCommsWordCount + (bytes + 7) / 8;
  Slot* head = scope.Reserve(1 + SlotsForWords(words));
  if (head == nullptr) return;
  head->word[2] = words;
  head->word[3] = PackTail(kCommsSlot, 0);
  uint64_t* out = (head + 1)->word;
  out[kCommsInElements] = about->getInMessageNelems();
  out[kCommsOutElements] = about->getOutMessageNelems();
  // The number of Undefined differs between versions.
  const at::ScalarType dtype = about->getDType();
  out[kCommsDtype] = dtype == at::ScalarType::Undefined
                         ? kUnknownDtype
                         : static_cast<uint64_t>(dtype);
  out[kCommsGroupSize] = about->getWorldSize();
  out[kCommsSequence] = SequenceOf(fn);
  out[kCommsTextBytes] = lengths;
  char* text = reinterpret_cast<char*>(out + kCommsWordCount);
  for (std::string_view part : parts) {
    std::memcpy(text, part.data(), part.size());
    text += part.size();
  }
}

}  // namespace stepscope
