// Tests stream names with a CUPTI and a driver that consist only of the
// functions that number streams. GPU tests check how the real ones number them.
#include "collectors/nvtx/nvtx_streams.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>

#include "nvtx_window.h"

namespace stepscope::nvtx_streams_test {
namespace {

constexpr int32_t kCudaStream = 4 << 16 | 3;

void NameAsResource(void* stream, const char* name) {
  nvtxResourceAttributes_t attributes = {};
  attributes.size = NVTX_RESOURCE_ATTRIB_STRUCT_SIZE;
  attributes.identifierType = kCudaStream;
  attributes.identifier.pValue = stream;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  nvtxDomainResourceCreate(nvtxDomainCreateA("cuda"), &attributes);
}

TEST(NvtxStreamsTest, NamesAStreamByItsNumberOnceCuptiIsThere) {
  void* const stream = reinterpret_cast<void*>(0x70);
  uint32_t context = 0;
  uint32_t id = 0;
  ASSERT_FALSE(FindStream(stream, &context, &id));
  NameAsResource(stream, "too early");
  {
    NvtxWindow window;
    EXPECT_TRUE(window.Take().streams().empty());
  }

  ASSERT_NE(dlopen(FAKE_CUPTI, RTLD_NOW), nullptr) << dlerror();
  ASSERT_FALSE(FindStream(stream, &context, &id)) << "no driver yet";
  ASSERT_NE(dlopen(FAKE_CUDA, RTLD_NOW), nullptr) << dlerror();
  ASSERT_TRUE(FindStream(stream, &context, &id));
  EXPECT_EQ(context, 3u);
  EXPECT_EQ(id, 7u);
  EXPECT_FALSE(FindStream(reinterpret_cast<void*>(0x71), &context, &id));

  NameAsResource(stream, "copies");
  NvtxWindow window;
  const Trace trace = window.Take();
  ASSERT_EQ(trace.streams().size(), 1u);
  EXPECT_EQ(trace.streams()[0].id, 7);
  EXPECT_EQ(trace.streams()[0].context, 3);
  EXPECT_EQ(NameOf(trace, trace.streams()[0].name), "copies");
}

}  // namespace
}  // namespace stepscope::nvtx_streams_test
