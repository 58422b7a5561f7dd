// An injection that accepts every call and does nothing. Shows what NVTX itself
// costs once a tool is loaded.
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

namespace {

int PushA(const char*) { return 0; }
int Pop() { return 0; }
nvtxRangeId_t StartA(const char*) { return 1; }
void End(nvtxRangeId_t) {}
int DomainPush(nvtxDomainHandle_t, const nvtxEventAttributes_t*) { return 0; }
int DomainPop(nvtxDomainHandle_t) { return 0; }

template <typename Function>
void Put(NvtxFunctionTable table, size_t id, Function* function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(
      get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable core = nullptr;
  NvtxFunctionTable core2 = nullptr;
  unsigned int size = 0;
  callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &size);
  callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &core2, &size);
  Put(core, NVTX_CBID_CORE_RangePushA, &PushA);
  Put(core, NVTX_CBID_CORE_RangePop, &Pop);
  Put(core, NVTX_CBID_CORE_RangeStartA, &StartA);
  Put(core, NVTX_CBID_CORE_RangeEnd, &End);
  Put(core2, NVTX_CBID_CORE2_DomainRangePushEx, &DomainPush);
  Put(core2, NVTX_CBID_CORE2_DomainRangePop, &DomainPop);
  return 1;
}
