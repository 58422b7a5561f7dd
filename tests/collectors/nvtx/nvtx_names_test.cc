#include "nvtx_names.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace stepscope::nvtx_names_test {
namespace {

TEST(NvtxNamesTest, AHandleIsTheSameForTheSameTextOfADomain) {
  NvtxNames& names = NvtxNames::Get();
  const void* const domain = names.Domain("d");
  EXPECT_EQ(names.String(domain, "s"), names.String(domain, "s"));
  EXPECT_NE(names.String(domain, "s"), names.String(nullptr, "s"));
  EXPECT_NE(names.String(domain, "s"), names.String(domain, "t"));
  EXPECT_EQ(NvtxNames::TextOf(domain), "d");
  EXPECT_EQ(NvtxNames::TextOf(names.String(domain, "s")), "s");
}

TEST(NvtxNamesTest, ASnapshotHoldsWhatWasToldLast) {
  NvtxNames& names = NvtxNames::Get();
  const void* const domain = names.Domain("snapshot");
  const void* const text = names.String(domain, "text");
  names.NameCategory(domain, 3, "old");
  names.NameCategory(domain, 3, "new");
  names.NameThread(gettid(), "me");
  names.NameStream(1, 2, "copies");
  const NvtxNameTable table = names.Snapshot();
  const auto handle = [](const void* of) {
    return reinterpret_cast<uint64_t>(of);
  };
  EXPECT_EQ(table.domains.at(handle(domain)), "snapshot");
  EXPECT_EQ(table.strings.at(handle(text)), "text");
  EXPECT_EQ(table.categories.at({handle(domain), 3}), "new");
  EXPECT_EQ(table.threads.at(gettid()), "me");
  ASSERT_EQ(table.streams.size(), 1u);
  EXPECT_EQ(table.streams[0].context, 1u);
  EXPECT_EQ(table.streams[0].stream, 2u);
  EXPECT_EQ(table.streams[0].name, "copies");
}

}  // namespace
}  // namespace stepscope::nvtx_names_test
