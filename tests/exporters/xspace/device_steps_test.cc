// Tests XSpaces in which each device shows steps of its own.
#include <gtest/gtest.h>
#include <stepscope/read.h>

#include <string>

#include "support/temp_folder.h"
#include "xplane.pb.h"

namespace stepscope::device_steps_test {
namespace {

// Adds a device with one step of 100 us, in which one kernel runs.
void AddDevice(int64_t begin_us, int64_t kernel_us, xplane::XSpace& space) {
  constexpr int64_t kStepsId = -559038737;  // of the line "Steps"
  constexpr int64_t kPs = 1'000'000;        // per us
  xplane::XPlane& plane = *space.add_planes();
  plane.set_name("/device:GPU:" + std::to_string(space.planes_size()));
  int64_t names = 0;
  const auto add = [&](int64_t line_id, const std::string& line_name,
                       const std::string& name, int64_t us) {
    xplane::XLine& line = *plane.add_lines();
    line.set_id(line_id);
    line.set_name(line_name);
    xplane::XEventMetadata& entry = (*plane.mutable_event_metadata())[++names];
    entry.set_id(names);
    entry.set_name(name);
    xplane::XEvent& event = *line.add_events();
    event.set_metadata_id(names);
    event.set_offset_ps(begin_us * kPs);
    event.set_duration_ps(us * kPs);
  };
  add(kStepsId, "Steps", "7", 100);
  add(13, "Stream #13", "gemm", kernel_us);
}

TEST(DeviceStepsTest, TakesTheStepsOfTheBusiestDevice) {
  xplane::XSpace space;
  AddDevice(1'000, 40, space);
  AddDevice(5'000, 60, space);
  AddDevice(9'000, 50, space);
  const TempFolder folder;
  const absl::StatusOr<Trace> trace =
      ReadTrace(folder.Write("t.xplane.pb", space.SerializeAsString()));
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->steps().size(), 1);
  EXPECT_EQ(trace->steps()[0].begin_ns - trace->kernels()[0].begin_ns,
            4'000'000);
}

}  // namespace
}  // namespace stepscope::device_steps_test
