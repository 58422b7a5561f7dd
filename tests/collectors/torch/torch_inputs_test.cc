#include <ATen/ATen.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "torch_input_words.h"
#include "torch_window.h"

namespace stepscope::torch_inputs_test {
namespace {

using testing::SizeIs;

// The arguments of one call in the JSON that Kineto writes, without spaces.
struct CallText {
  std::string name, dims = {}, strides = {}, types = {}, values = {};
  bool operator==(const CallText&) const = default;
};
std::ostream& operator<<(std::ostream& out, const CallText& call) {
  return out << call.name << " " << call.dims << " " << call.strides << " "
             << call.types << " " << call.values;
}

template <typename Items, typename ToText>
std::string List(const Items& items, ToText&& to_text) {
  std::string text = "[";
  for (const auto& item : items) {
    if (text.size() > 1) text += ",";
    text += to_text(item);
  }
  return text + "]";
}

std::string Numbers(const std::vector<int64_t>& values) {
  return List(values, [](int64_t value) { return std::to_string(value); });
}

CallText TextOf(const Trace& trace, const Op& op) {
  CallText call{.name = std::string(trace.name(op.name))};
  if (op.inputs == kNone) return call;
  const auto& arguments = trace.op_inputs()[op.inputs].arguments;
  const auto quoted = [&](NameId id) {
    return "\"" + std::string(trace.name(id)) + "\"";
  };
  const auto nested = [&](std::vector<int64_t> Argument::*field) {
    return List(arguments, [&](const Argument& argument) {
      if (argument.elements.empty()) return Numbers(argument.*field);
      return List(argument.elements, [&](const Argument& element) {
        return Numbers(element.*field);
      });
    });
  };
  call.dims = nested(&Argument::dims);
  call.strides = nested(&Argument::strides);
  call.types =
      List(arguments, [&](const Argument& a) { return quoted(a.type); });
  call.values =
      List(arguments, [&](const Argument& a) { return quoted(a.concrete); });
  return call;
}

// Returns the calls of `workload` as Kineto reports them.
template <typename Workload>
std::vector<CallText> ByKineto(Workload&& workload) {
  using namespace torch::autograd::profiler;
  const ProfilerConfig config(ProfilerState::KINETO,
                              /*report_input_shapes=*/true);
  prepareProfiler(config, {ActivityType::CPU});
  enableProfiler(config, {ActivityType::CPU});
  workload();
  const auto result = disableProfiler();
  const std::string path =
      testing::TempDir() + "kineto" + std::to_string(getpid()) + ".json";
  result->save(path);
  simdjson::dom::parser parser;
  std::vector<CallText> calls;
  for (simdjson::dom::object event : parser.load(path)["traceEvents"]) {
    std::string_view category;
    if (event["cat"].get(category) || category != "cpu_op") continue;
    const auto text = [&](const char* key) {
      simdjson::dom::element value;
      return event["args"][key].get(value) ? std::string()
                                           : simdjson::minify(value);
    };
    calls.push_back({.name = std::string(std::string_view(event["name"])),
                     .dims = text("Input Dims"),
                     .strides = text("Input Strides"),
                     .types = text("Input type"),
                     .values = text("Concrete Inputs")});
  }
  std::filesystem::remove(path);
  return calls;
}

template <typename Workload>
std::vector<CallText> ByUs(Workload&& workload) {
  TorchWindow window({.record_shapes = true});
  workload();
  const Trace trace = window.CloseAndBuild();
  EXPECT_TRUE(trace.losses().empty());
  std::vector<CallText> calls;
  for (const Op& op : trace.ops()) calls.push_back(TextOf(trace, op));
  return calls;
}

TEST(TorchInputsTest, ReadAsKinetoWritesThem) {
  at::manual_seed(1);
  const at::Tensor x = at::ones({4, 8});
  const at::Tensor half = at::ones({2, 3}, at::kBFloat16);
  const at::Tensor image = at::ones({1, 2, 8, 8});
  const at::Tensor weight = at::ones({3, 2, 3, 3});
  const at::Tensor bias = at::ones({3});
  const at::Tensor index = at::arange(2);
  const auto workload = [&] {
    EXPECT_THROW(at::cat({x, x.t()}), c10::Error);
    at::cat({x, x});
    x.sum({1}, /*keepdim=*/true);
    x.expand({4, 4, 8});
    x.clamp_min(0.1);
    half.to(at::kDouble);
    at::conv2d(image, weight, bias);
    x.index_select(0, index);
    x.index({index});
    x.to_sparse();
    at::full({2}, 1e20);
    at::full({2}, -1.5);
    x.add(at::Scalar(c10::complex<double>(1, 2)));
    at::einsum("ij,kj->ik", {x, x});
    at::upsample_nearest2d(image, c10::OptionalIntArrayRef{},
                           std::vector<double>{2.5, 2.5});
    at::arange(40).reshape({2, 20});
    x.permute({1, 0}).contiguous();
    at::empty({0, 3}, at::kLong).sum();
    at::dropout(x, 0.5, /*train=*/true);
  };
  const std::vector<CallText> expected = ByKineto(workload);
  const std::vector<CallText> found = ByUs(workload);
  ASSERT_GT(expected.size(), 50u);
  EXPECT_THAT(found, testing::ElementsAreArray(expected));
}

TEST(TorchInputsTest, KeepMoreOfALongTensorListThanKinetoAndSayWhatIsCut) {
  const at::Tensor x = at::ones({4});
  TorchWindow window({.record_shapes = true});
  at::stack(std::vector<at::Tensor>(64, x));
  at::stack(std::vector<at::Tensor>(65, x));
  const Trace trace = window.CloseAndBuild();
  for (const Op* op : OpsNamed(trace, "aten::stack")) {
    const Argument& list = trace.op_inputs()[op->inputs].arguments[0];
    EXPECT_EQ(trace.name(list.type), "TensorList");
    EXPECT_THAT(list.elements, SizeIs(64));
  }
  ASSERT_THAT(trace.losses(), SizeIs(1));
  EXPECT_EQ(trace.losses()[0].name, "text-cut");
  // stack() calls cat() with the same list.
  EXPECT_EQ(trace.losses()[0].count, 2);
}

TEST(TorchInputsTest, CutARecordThatIsTooLong) {
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 64; ++i) {
    tensors.push_back(at::ones(std::vector<int64_t>(10, 1)));
  }
  TorchWindow window({.record_shapes = true});
  at::stack(tensors);
  const Trace trace = window.CloseAndBuild();
  const Op& op = *OpsNamed(trace, "aten::stack")[0];
  const Argument& list = trace.op_inputs()[op.inputs].arguments[0];
  EXPECT_GT(list.elements.size(), 10u);
  EXPECT_LT(list.elements.size(), 64u);
  for (const Argument& element : list.elements) {
    EXPECT_EQ(element.dims, std::vector<int64_t>(10, 1));
  }
  EXPECT_EQ(trace.losses()[0].name, "text-cut");
}

TEST(TorchInputsTest, StoreEqualArgumentListsOnce) {
  const at::Tensor x = at::ones({4});
  TorchWindow window({.record_shapes = true});
  for (int i = 0; i < 100; ++i) x.add(x);
  const Trace trace = window.CloseAndBuild();
  EXPECT_THAT(trace.op_inputs(), SizeIs(1));
}

TEST(TorchInputsTest, DtypeNamesAreThoseOfTorch) {
  const int count = static_cast<int>(c10::ScalarType::NumOptions);
  for (int i = 0; i < count; ++i) {
    const auto type = static_cast<c10::ScalarType>(i);
    if (type == c10::ScalarType::Undefined) continue;
    EXPECT_EQ(DtypeName(i),
              std::string(c10::scalarTypeToTypeMeta(type).name()));
  }
  EXPECT_EQ(DtypeName(255), "");
}

TEST(TorchInputsTest, NumbersReadAsTorchPrintsThem) {
  std::vector<double> numbers = {
      0.0,      -0.0,
      1,        -1,
      0.1,      1e-7,
      2.5,      123456789,
      1e300,    -1e-300,
      INFINITY, -INFINITY,
      NAN,      std::numeric_limits<double>::denorm_min()};
  for (double scale = 1e8; scale < 1e25; scale *= 10) {
    numbers.insert(numbers.end(),
                   {scale, scale - 1, scale + 1, -scale, scale * 1.5});
  }
  numbers.push_back(9223372036854775808.0);
  for (double number : numbers) {
    std::ostringstream expected;
    expected << c10::IValue(number);
    TraceBuilder builder;
    OpInputs inputs;
    const uint64_t words[] = {static_cast<uint64_t>(InputTag::kDouble),
                              std::bit_cast<uint64_t>(number)};
    ASSERT_TRUE(DecodeInputs(words, builder, inputs));
    const NameId id = inputs.arguments[0].concrete;
    EXPECT_EQ(builder.Build().name(id), expected.str());
  }
}

}  // namespace
}  // namespace stepscope::torch_inputs_test
