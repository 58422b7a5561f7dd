#include "pointer_names.h"

#include <gtest/gtest.h>

#include <vector>

namespace stepscope::pointer_names_test {
namespace {

TEST(DemangleTest, CppNamesAreReadable) {
  EXPECT_EQ(Demangle("_ZN2at6native6kernelIfEEvT_"),
            "void at::native::kernel<float>(float)");
}

TEST(DemangleTest, OtherNamesStayAsTheyAre) {
  EXPECT_EQ(Demangle("ampere_sgemm_128x64_nn"), "ampere_sgemm_128x64_nn");
  EXPECT_EQ(Demangle("_Znot-a-name"), "_Znot-a-name");
  EXPECT_EQ(Demangle(""), "");
}

TEST(PointerNamesTest, EachPointerIsLookedUpOnce) {
  PointerNames names;
  std::vector<int> things(5000);
  int made = 0;
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < things.size(); ++i) {
      const NameId name =
          names.Of(&things[i], [&] { return static_cast<NameId>(++made); });
      EXPECT_EQ(name, i + 1);
    }
  }
  EXPECT_EQ(made, 5000);
}

TEST(PointerNamesTest, NullIsAPointerLikeAnyOther) {
  PointerNames names;
  EXPECT_EQ(names.Of(nullptr, [] { return NameId{9}; }), 9u);
  EXPECT_EQ(names.Of(nullptr, [] { return NameId{1}; }), 9u);
}

}  // namespace
}  // namespace stepscope::pointer_names_test
