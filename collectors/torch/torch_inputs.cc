#include "torch_inputs.h"

#include <ATen/core/TensorBase.h>
#include <ATen/core/ivalue.h>

#include <bit>

#include "torch_input_words.h"
#include "torch_slots.h"

namespace stepscope {
namespace {

// Longer lists of numbers are left out, as in Kineto.
constexpr size_t kMaxScalars = 30;

class WordWriter {
 public:
  WordWriter(uint64_t* begin, size_t capacity)
      : begin_(begin), next_(begin), limit_(begin + capacity) {}

  bool Has(size_t words) const {
    return static_cast<size_t>(limit_ - next_) >= words;
  }
  void Put(uint64_t word) { *next_++ = word; }
  void Put(c10::IntArrayRef values) {
    for (int64_t value : values) *next_++ = static_cast<uint64_t>(value);
  }
  size_t size() const { return next_ - begin_; }

 private:
  uint64_t* begin_;
  uint64_t* next_;
  uint64_t* limit_;
};

// Gives access to a protected method of TensorImpl.
struct TensorPolicy : c10::TensorImpl {
  static constexpr auto kMatchesPython = &TensorPolicy::matches_python_custom;
};

// True if asking the tensor for sizes or strides calls Python: those of some
// tensor subclasses run operators, which must not happen while a record is
// written.
bool AsksPython(const c10::TensorImpl& impl) {
  return impl.is_python_dispatch() &&
         (impl.*TensorPolicy::kMatchesPython)(
             c10::TensorImpl::SizesStridesPolicy::CustomStrides);
}

// As layout() == kStrided, which calls Python for some tensor subclasses.
bool IsStrided(const c10::TensorImpl& impl) {
  if (!impl.is_python_dispatch()) return impl.layout() == at::kStrided;
  return !impl.key_set().has_any(c10::sparse_ks | c10::sparse_csr_ks |
                                 c10::mkldnn_ks);
}

// The Put functions return false, and write nothing, if the words do not fit.
bool PutTensor(const at::TensorBase& tensor, WordWriter& out) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  // Nested and symbolic tensors have no plain sizes, and asking for them would
  // throw.
  if (!tensor.defined() || tensor.is_nested() ||
      impl->has_symbolic_sizes_strides() || AsksPython(*impl)) {
    if (!out.Has(1)) return false;
    out.Put(static_cast<uint64_t>(InputTag::kNoTensor));
    return true;
  }
  const c10::IntArrayRef sizes = impl->sizes();
  // The number of dimensions has eight bits (PackTensor()).
  if (sizes.size() > 0xff || !out.Has(1 + 2 * sizes.size())) return false;
  const bool has_strides = IsStrided(*impl);
  out.Put(PackTensor(static_cast<uint8_t>(tensor.scalar_type()),
                     static_cast<uint8_t>(sizes.size()),
                     has_strides ? kHasStrides : 0));
  out.Put(sizes);
  if (has_strides) out.Put(impl->strides());
  return true;
}

bool PutTensorList(c10::ArrayRef<c10::IValue> list, WordWriter& out,
                   bool& is_whole) {
  const size_t count = std::min(list.size(), kMaxListElements);
  is_whole = count == list.size();
  if (!out.Has(1 + count)) return false;
  // Written through a copy, because the first word contains the count, which is
  // known only at the end.
  WordWriter body = out;
  body.Put(0);
  uint32_t kept = 0;
  for (const c10::IValue& element : list.slice(0, count)) {
    const bool is_tensor = element.isTensor();
    if (is_tensor ? !PutTensor(element.toTensor(), body) : !body.Has(1)) {
      is_whole = false;
      break;
    }
    if (!is_tensor) body.Put(static_cast<uint64_t>(InputTag::kNoTensor));
    ++kept;
  }
  out.Put(PackList(InputTag::kTensorList, InputTag::kTensor, kept));
  out = body;
  return true;
}

InputTag ScalarTag(const c10::IValue& value) {
  if (value.isInt()) return InputTag::kInt;
  if (value.isDouble()) return InputTag::kDouble;
  if (value.isBool()) return InputTag::kBool;
  if (value.isComplexDouble()) return InputTag::kComplex;
  return InputTag::kOther;  // symbolic
}

uint64_t ScalarWord(const c10::IValue& value, InputTag tag) {
  switch (tag) {
    case InputTag::kInt:
      return static_cast<uint64_t>(value.toInt());
    case InputTag::kDouble:
      return std::bit_cast<uint64_t>(value.toDouble());
    default:
      return value.toBool() ? 1 : 0;
  }
}

bool PutScalar(const c10::IValue& value, WordWriter& out) {
  // 3 words: room for the longest scalar, a complex number.
  if (!out.Has(3)) return false;
  const InputTag tag = ScalarTag(value);
  out.Put(static_cast<uint64_t>(tag));
  if (tag == InputTag::kComplex) {
    const c10::complex<double> number = value.toComplexDouble();
    out.Put(std::bit_cast<uint64_t>(number.real()));
    out.Put(std::bit_cast<uint64_t>(number.imag()));
  } else if (tag != InputTag::kOther) {
    out.Put(ScalarWord(value, tag));
  }
  return true;
}

bool PutList(c10::ArrayRef<c10::IValue> list, WordWriter& out) {
  // An empty list reads "[]" for every type.
  const InputTag tag = list.empty()         ? InputTag::kInt
                       : list[0].isScalar() ? ScalarTag(list[0])
                                            : InputTag::kOther;
  const bool is_kept = list.size() <= kMaxScalars && tag != InputTag::kOther &&
                       tag != InputTag::kComplex;
  if (!out.Has(1 + (is_kept ? list.size() : 0))) return false;
  if (!is_kept) {
    out.Put(static_cast<uint64_t>(InputTag::kOther));
    return true;
  }
  out.Put(
      PackList(InputTag::kScalarList, tag, static_cast<uint32_t>(list.size())));
  for (const c10::IValue& value : list) {
    // A list should have one type. If it does not, nothing may throw here.
    out.Put(ScalarTag(value) == tag ? ScalarWord(value, tag) : 0);
  }
  return true;
}

bool PutArgument(const c10::IValue& value, WordWriter& out, bool& is_whole) {
  if (value.isTensor()) return PutTensor(value.toTensor(), out);
  if (value.isScalar()) return PutScalar(value, out);
  if (value.isTensorList()) {
    return PutTensorList(value.toListRef(), out, is_whole);
  }
  if (value.isList()) return PutList(value.toListRef(), out);
  if (!out.Has(1)) return false;
  out.Put(static_cast<uint64_t>(value.isNone() ? InputTag::kNone
                                               : InputTag::kOther));
  return true;
}

}  // namespace

void AddInputs(WriteScope& scope, const at::RecordFunction& fn) {
  const c10::ArrayRef<const c10::IValue> inputs = fn.inputs();
  if (inputs.empty()) return;
  // Asks once for the room of the longest record. Commit() gives back the rest.
  Slot* head = scope.Room(1 + SlotsForWords(kMaxRecordWords));
  if (head == nullptr) return;
  WordWriter out((head + 1)->word, kMaxRecordWords);
  bool is_cut = false;
  for (const c10::IValue& value : inputs) {
    bool is_whole = true;
    if (!PutArgument(value, out, is_whole)) {
      // The complete arguments before this one are kept.
      is_cut = true;
      break;
    }
    is_cut |= !is_whole;
  }
  if (is_cut) ++scope.log()->cut;
  head->word[2] = out.size();
  head->word[3] = PackTail(kInputsSlot, 0);
  scope.Commit(1 + SlotsForWords(out.size()));
}

}  // namespace stepscope
