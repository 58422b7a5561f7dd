// Tests ranges that are steps. A process can start listening only once, so all
// tests share a listener, and each starts when no step is open.
#include "nvtx_steps.h"

#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>
#include <stepscope/nvtx.h>

#include <string>
#include <thread>

#include "nvtx_names.h"
#include "nvtx_window.h"

namespace stepscope::nvtx_steps_test {
namespace {

class Log : public NvtxStepListener {
 public:
  void OnStepBegin() noexcept override { text += '<'; }
  void OnStepEnd() noexcept override { text += '>'; }
  std::string text;
};

TEST(NvtxStepsTest, AStepIsOneRangeHoweverMuchIsPushedInside) {
  Log log;
  NvtxSteps steps("step", &log);
  steps.OnPush(nullptr, "step");
  steps.OnPush(nullptr, "forward");
  steps.OnPush(nullptr, "step");
  steps.OnPop(nullptr);
  steps.OnPop(nullptr);
  EXPECT_EQ(log.text, "<");
  steps.OnPop(nullptr);
  EXPECT_EQ(log.text, "<>");
  steps.OnPush(nullptr, "other");
  steps.OnPop(nullptr);
  steps.OnPop(nullptr);
  EXPECT_EQ(log.text, "<>");
  steps.OnPush(nullptr, "step");
  steps.OnPop(nullptr);
  EXPECT_EQ(log.text, "<><>");
}

TEST(NvtxStepsTest, PopsOfOtherDomainsEndNothing) {
  Log log;
  const void* const domain = NvtxNames::Get().Domain("steps");
  NvtxSteps steps("step", &log);
  steps.OnPush(domain, "step");
  steps.OnPush(nullptr, "x");
  steps.OnPop(nullptr);
  steps.OnPop(nullptr);
  EXPECT_EQ(log.text, "<");
  steps.OnPop(domain);
  EXPECT_EQ(log.text, "<>");
}

TEST(NvtxStepsTest, ANameMayAskForADomain) {
  Log log;
  NvtxSteps steps("a@b@train", &log);
  steps.OnPush(nullptr, "a@b");
  steps.OnPop(nullptr);
  steps.OnPush(NvtxNames::Get().Domain("test"), "a@b");
  steps.OnPop(NvtxNames::Get().Domain("test"));
  EXPECT_EQ(log.text, "");
  steps.OnPush(NvtxNames::Get().Domain("train"), "a@b");
  steps.OnPop(NvtxNames::Get().Domain("train"));
  EXPECT_EQ(log.text, "<>");
}

TEST(NvtxStepsTest, OnlyTheFirstThreadHasSteps) {
  Log log;
  NvtxSteps steps("step", &log);
  steps.OnPush(nullptr, "step");
  std::thread([&] {
    steps.OnPop(nullptr);
    steps.OnPush(nullptr, "step");
    steps.OnPop(nullptr);
    steps.OnMark(nullptr, "step");
    EXPECT_FALSE(steps.OnStart(nullptr, "step"));
  }).join();
  EXPECT_EQ(log.text, "<");
  steps.OnPop(nullptr);
  EXPECT_EQ(log.text, "<>");
}

TEST(NvtxStepsTest, StartedRangesAndMarksAreStepsToo) {
  Log log;
  NvtxSteps steps("step", &log);
  EXPECT_FALSE(steps.OnStart(nullptr, "other"));
  ASSERT_TRUE(steps.OnStart(nullptr, "step"));
  steps.SetStartedId(42);
  EXPECT_FALSE(steps.OnStart(nullptr, "step"));
  steps.OnPop(nullptr);
  steps.OnEnd(41);
  EXPECT_EQ(log.text, "<");
  steps.OnEnd(42);
  steps.OnEnd(42);
  EXPECT_EQ(log.text, "<>");

  Log marks;
  NvtxSteps marked("step", &marks);
  marked.OnMark(nullptr, "step");
  marked.OnMark(nullptr, "other");
  marked.OnMark(nullptr, "step");
  EXPECT_EQ(marks.text, "<><");
}

TEST(NvtxStepsTest, TheHooksTellTheListenerWithAndWithoutAWindow) {
  static Log* const log = new Log;
  ListenForNvtxSteps("the step@listened", log);
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("listened");
  nvtxEventAttributes_t attributes = {};
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = nvtxDomainRegisterStringA(domain, "the step");
  const auto three_steps = [&] {
    nvtxDomainRangePushEx(domain, &attributes);
    nvtxRangePushA("inner");
    nvtxRangePop();
    nvtxDomainRangePop(domain);
    const nvtxRangeId_t id = nvtxDomainRangeStartEx(domain, &attributes);
    EXPECT_NE(id, 0u);
    nvtxDomainRangeEnd(domain, id);
    nvtxDomainMarkEx(domain, &attributes);
  };
  three_steps();
  EXPECT_EQ(log->text, "<><><");
  NvtxWindow window;
  three_steps();
  EXPECT_EQ(log->text, "<><><<><>><");
  EXPECT_EQ(window.Take().ranges().size(), 4u);
}

}  // namespace
}  // namespace stepscope::nvtx_steps_test
