#include "nvtx_name_hooks.h"

#include <stepscope/slot.h>

#include <cstdint>
#include <string_view>

#include "nvtx_names.h"
#include "nvtx_streams.h"
#include "nvtx_text.h"

namespace stepscope {
namespace {

// The longest name of a thread or domain that is kept. Texts of events are
// shorter.
constexpr size_t kWideNameBytes = 2048;

// A text in either of NVTX's two forms.
class NameText {
 public:
  NameText(const char* text) : text_(text != nullptr ? text : "") {}
  NameText(const wchar_t* text) : text_(ToUtf8(text, wide_)) {}
  NameText(const NameText&) = delete;
  NameText& operator=(const NameText&) = delete;
  operator std::string_view() const { return text_; }

 private:
  char wide_[kWideNameBytes];
  std::string_view text_;
};

NvtxNames& Names() { return NvtxNames::Get(); }

template <typename Char>
void NameCategory(uint32_t category, const Char* name) noexcept {
  Names().NameCategory(nullptr, category, NameText(name));
}
template <typename Char>
void DomainNameCategory(nvtxDomainHandle_t domain, uint32_t category,
                        const Char* name) noexcept {
  Names().NameCategory(domain, category, NameText(name));
}
template <typename Char>
void NameOsThread(uint32_t tid, const Char* name) noexcept {
  Names().NameThread(tid, NameText(name));
}
// cudaStream_t and CUstream are the same pointer. If CUPTI is not loaded yet,
// the stream has no number, and its name is lost.
template <typename Char>
void NameStream(void* stream, const Char* name) noexcept {
  uint32_t context = 0;
  uint32_t id = 0;
  if (!FindStream(stream, &context, &id)) return;
  Names().NameStream(context, id, NameText(name));
}
template <typename Char>
nvtxDomainHandle_t DomainCreate(const Char* name) noexcept {
  return static_cast<nvtxDomainHandle_t>(
      const_cast<void*>(Names().Domain(NameText(name))));
}
template <typename Char>
nvtxStringHandle_t DomainRegisterString(nvtxDomainHandle_t domain,
                                        const Char* text) noexcept {
  return static_cast<nvtxStringHandle_t>(
      const_cast<void*>(Names().String(domain, NameText(text))));
}

// A resource is another way to name a thread or a stream. The program gets no
// handle, because it could use one only to destroy the resource.
nvtxResourceHandle_t DomainResourceCreate(
    nvtxDomainHandle_t, nvtxResourceAttributes_t* resource) noexcept {
  // From nvToolsExtCuda.h and nvToolsExtCudaRt.h, which need CUDA's headers.
  constexpr int32_t kCudaStream = 4 << 16 | 3;
  constexpr int32_t kCudartStream = 5 << 16 | 1;
  if (resource == nullptr || resource->size < sizeof(*resource)) return nullptr;
  const auto with_name = [&](auto use) {
    switch (resource->messageType) {
      case NVTX_MESSAGE_TYPE_ASCII:
        use(resource->message.ascii);
        break;
      case NVTX_MESSAGE_TYPE_UNICODE:
        use(resource->message.unicode);
        break;
      case NVTX_MESSAGE_TYPE_REGISTERED:
        if (resource->message.registered == nullptr) break;
        // Registered texts are std::strings, so they end with a zero.
        use(NvtxNames::TextOf(resource->message.registered).data());
        break;
      default:
        break;
    }
  };
  switch (resource->identifierType) {
    case NVTX_RESOURCE_TYPE_GENERIC_THREAD_NATIVE:
      with_name([&](const auto* name) {
        NameOsThread(static_cast<uint32_t>(resource->identifier.ullValue),
                     name);
      });
      break;
    case kCudaStream:
    case kCudartStream:
      with_name([&](const auto* name) {
        NameStream(const_cast<void*>(resource->identifier.pValue), name);
      });
      break;
    default:
      break;
  }
  return nullptr;
}

}  // namespace

void PutNameHooks(NvtxTable core, NvtxTable core2, NvtxTable cuda,
                  NvtxTable cudart) noexcept {
  PutHook(core, NVTX_CBID_CORE_NameCategoryA, &NameCategory<char>);
  PutHook(core, NVTX_CBID_CORE_NameCategoryW, &NameCategory<wchar_t>);
  PutHook(core, NVTX_CBID_CORE_NameOsThreadA, &NameOsThread<char>);
  PutHook(core, NVTX_CBID_CORE_NameOsThreadW, &NameOsThread<wchar_t>);
  PutHook(core2, NVTX_CBID_CORE2_DomainNameCategoryA,
          &DomainNameCategory<char>);
  PutHook(core2, NVTX_CBID_CORE2_DomainNameCategoryW,
          &DomainNameCategory<wchar_t>);
  PutHook(core2, NVTX_CBID_CORE2_DomainCreateA, &DomainCreate<char>);
  PutHook(core2, NVTX_CBID_CORE2_DomainCreateW, &DomainCreate<wchar_t>);
  PutHook(core2, NVTX_CBID_CORE2_DomainRegisterStringA,
          &DomainRegisterString<char>);
  PutHook(core2, NVTX_CBID_CORE2_DomainRegisterStringW,
          &DomainRegisterString<wchar_t>);
  PutHook(core2, NVTX_CBID_CORE2_DomainResourceCreate, &DomainResourceCreate);
  PutHook(cuda, NVTX_CBID_CUDA_NameCuStreamA, &NameStream<char>);
  PutHook(cuda, NVTX_CBID_CUDA_NameCuStreamW, &NameStream<wchar_t>);
  PutHook(cudart, NVTX_CBID_CUDART_NameCudaStreamA, &NameStream<char>);
  PutHook(cudart, NVTX_CBID_CUDART_NameCudaStreamW, &NameStream<wchar_t>);
}

}  // namespace stepscope
