#include "words/source_line.h"

#include <gtest/gtest.h>
#include <stepscope/trace_builder.h>

#include <string>
#include <vector>

namespace stepscope::source_line_test {
namespace {

TEST(SourceLineTest, DistinguishesFrameworkFramesFromProgramFrames) {
  for (const char* frame :
       {"torch/nn/modules/module.py(1739): _call_impl",
        "/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py(9): f",
        "/src/torch/optim/adam.py(5): step",
        "/usr/lib/python3.11/threading.py(975): run", "<frozen runpy>(88): run",
        "<built-in method linear>", "nn.Module: Linear_3",
        "?\?(0): at::_ops::add_Tensor::call(at::Tensor const&)",
        "/b/libtorch_cpu.so(0): some_function",
        "a.cc(3): at::Tensor c10::Dispatcher::call<at::Tensor, "
        "at::Tensor const&>(at::Tensor const&)",
        "?\?(0): _start"}) {
    EXPECT_TRUE(IsFrameworkFrame(frame)) << frame;
  }
  for (const char* frame :
       {"train.py(31): step", "/home/me/torch/train.py(3): step",
        "/home/me/train.py(1): <module>",
        // Namespaces in parameter and return types do not say where the
        // function is.
        "/src/train.cc(12): Train(at::Tensor const&, c10::Device)",
        "/src/train.cc(12): at::Tensor net::Forward<at::Tensor>(at::Tensor)",
        "?\?(0): main",
        // Code that was typed, or passed to Python, has no file.
        "<stdin>(8): step", "<string>(3): step",
        "<ipython-input-7-0a1b>(2): train"}) {
    EXPECT_FALSE(IsFrameworkFrame(frame)) << frame;
  }
}

TEST(SourceLineTest, SaysFileLineAndFunction) {
  EXPECT_EQ(FrameInWords("train.py(31): step"), "train.py:31 in step");
  EXPECT_EQ(FrameInWords("/home/me/models/net.py(8): forward", "/home/me/"),
            "models/net.py:8 in forward");
  EXPECT_EQ(FrameInWords("train.py(1): <module>"), "train.py:1 in <module>");
  EXPECT_EQ(FrameInWords("a.cc(12): at::Tensor net::Forward<int>(at::Tensor)"),
            "a.cc:12 in net::Forward<int>");
  EXPECT_EQ(FrameInWords("a.cc(2): (anonymous namespace)::Step(int)"),
            "a.cc:2 in (anonymous namespace)::Step");
  EXPECT_EQ(FrameInWords("a.cc(2): main::{lambda(int)#1}::operator()(int)"),
            "a.cc:2 in main::{lambda(int)#1}::operator()");
  EXPECT_EQ(FrameInWords("?\?(0): Train(int)"), "in Train");  // without -g
  EXPECT_EQ(FrameInWords("<built-in function item>"),
            "<built-in function item>");
}

TEST(SourceLineTest, NamesTheInnermostOwnFrameFromTheScriptsFolder) {
  TraceBuilder builder;
  std::vector<NameId> frames;
  for (const char* frame :
       {"/venv/site-packages/torch/nn/modules/linear.py(125): forward",
        "/home/me/proj/models/net.py(8): forward",
        "/venv/site-packages/torch/nn/modules/module.py(1): _call_impl",
        "/home/me/proj/train.py(40): train",
        "/home/me/proj/train.py(90): <module>"}) {
    frames.push_back(builder.Intern(frame));
  }
  const std::vector<NameId> foreign(frames.begin(), frames.begin() + 1);
  const Trace trace = builder.Build();
  EXPECT_EQ(SourceLine(trace, frames), "models/net.py:8 in forward");
  EXPECT_EQ(SourceLine(trace, foreign), "");
  EXPECT_EQ(SourceLine(trace, {}), "");
}

}  // namespace
}  // namespace stepscope::source_line_test
