#include "torch_names.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace stepscope::torch_names_test {
namespace {

struct Seen {
  std::string name;
  bool has_schema;
  bool operator==(const Seen&) const = default;
};
std::vector<Seen> g_read, g_asked;

// Both ways of reading a name must agree, because the LibTorch version at build
// time decides which one is used.
TEST(TorchNamesTest, TellSchemasFromTextsByEitherWay) {
  ProbeNames();
  const at::Tensor a = at::ones({2});
  const at::CallbackHandle handle = at::addGlobalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& fn)
                                     -> std::unique_ptr<at::ObserverContext> {
        const OpName read = NameOf(fn), asked = AskedName(fn);
        g_read.push_back({read.text, read.has_schema});
        g_asked.push_back({asked.text, asked.has_schema});
        return nullptr;
      }));
  a.add(a);  // overload "Tensor"
  a.relu();  // no overload
  { RECORD_USER_SCOPE("short"); }
  { RECORD_USER_SCOPE("a name that does not fit into a string's own bytes"); }
  {
    RECORD_FUNCTION("aten::relu", {});  // a text that looks like an operator
  }
  at::removeCallback(handle);
  EXPECT_EQ(g_asked, g_read);
  const auto has = [](const Seen& seen) {
    return std::find(g_asked.begin(), g_asked.end(), seen) != g_asked.end();
  };
  EXPECT_TRUE(has({"aten::add", true}));
  EXPECT_TRUE(has({"aten::relu", true}));
  EXPECT_TRUE(has({"short", false}));
  EXPECT_TRUE(
      has({"a name that does not fit into a string's own bytes", false}));
  EXPECT_TRUE(has({"aten::relu", false}));
}

}  // namespace
}  // namespace stepscope::torch_names_test
