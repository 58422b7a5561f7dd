// Tests XSpaces made to be expensive: few bytes to which many events refer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/export.h>
#include <stepscope/read.h>

#include <filesystem>
#include <string>
#include <utility>

#include "support/losses.h"
#include "support/temp_folder.h"
#include "xplane.pb.h"

namespace stepscope::hostile_xspace_test {
namespace {

using testing::HasSubstr;

class HostileXSpaceTest : public testing::Test {
 protected:
  // Makes a space with one host plane of `events` events of the same name.
  explicit HostileXSpaceTest() : plane_(*space_.add_planes()) {
    plane_.set_name("/host:CPU");
    line_ = plane_.add_lines();
    line_->set_id(7);
    line_->set_timestamp_ns(1000);
    name_ = &(*plane_.mutable_event_metadata())[1];
    name_->set_id(1);
    name_->set_name("name");
  }

  xplane::XEvent& AddEvent(int64_t begin_ns) {
    xplane::XEvent& event = *line_->add_events();
    event.set_metadata_id(1);
    event.set_offset_ps(begin_ns * 1000);
    event.set_duration_ps(1000);
    return event;
  }

  int64_t AddText(const std::string& text) {
    const int64_t id = ++last_text_;
    (*plane_.mutable_stat_metadata())[id].set_id(id);
    (*plane_.mutable_stat_metadata())[id].set_name(text);
    return id;
  }

  Trace Read() { return Read(space_.SerializeAsString()); }
  Trace Read(const std::string& bytes) {
    file_bytes_ = bytes.size();
    absl::StatusOr<Trace> trace =
        ReadTrace(folder_.Write("t.xplane.pb", bytes));
    EXPECT_TRUE(trace.ok()) << trace.status().message();
    return trace.ok() ? *std::move(trace) : Trace();
  }

  TempFolder folder_;
  xplane::XSpace space_;
  xplane::XPlane& plane_;
  xplane::XLine* line_ = nullptr;
  xplane::XEventMetadata* name_ = nullptr;
  int64_t last_text_ = 0;
  size_t file_bytes_ = 0;
};

constexpr size_t kMostNameBytes = 4096;  // docs/xspace.md

TEST_F(HostileXSpaceTest, ALongNameIsCutSoThatNoOutputRepeatsItWhole) {
  constexpr int kEvents = 3000;
  name_->set_name(std::string(100'000, 'n'));
  for (int64_t i = 0; i < kEvents; ++i) AddEvent(i * 10);
  const Trace trace = Read();
  ASSERT_EQ(trace.ranges().size(), size_t{kEvents});
  EXPECT_EQ(trace.name(trace.ranges()[0].name).size(), kMostNameBytes);
  EXPECT_EQ(LossCount(trace, "long-names"), 1);
  const std::string out = folder_.At("t.json");
  ASSERT_TRUE(WriteTrace(trace, {}, Format::kChromeKineto, out).ok());
  // One name and the other fields of an event.
  EXPECT_LT(std::filesystem::file_size(out),
            size_t{kEvents} * (kMostNameBytes + 512));
}

TEST_F(HostileXSpaceTest, ANameThatFitsIsNotCut) {
  name_->set_name(std::string(kMostNameBytes, 'n'));
  AddEvent(0);
  const Trace trace = Read();
  EXPECT_EQ(trace.name(trace.ranges()[0].name).size(), kMostNameBytes);
  EXPECT_TRUE(trace.losses().empty());
}

TEST_F(HostileXSpaceTest, NoCharacterIsCutInItsMiddle) {
  std::string name = std::string(kMostNameBytes - 1, 'n');
  for (int i = 0; i < 10; ++i) name += "\xe2\x82\xac";  // euro signs
  name_->set_name(name);
  AddEvent(0);
  const Trace trace = Read();
  EXPECT_EQ(trace.name(trace.ranges()[0].name),
            std::string(kMostNameBytes - 1, 'n'));
}

TEST_F(HostileXSpaceTest, ATextThatEventsReferToIsCut) {
  const int64_t detail = AddText("detail");
  const int64_t text = AddText(std::string(100'000, 'd'));
  for (int64_t i = 0; i < 100; ++i) {
    xplane::XStat& stat = *AddEvent(i * 10).add_stats();
    stat.set_metadata_id(detail);
    stat.set_ref_value(static_cast<uint64_t>(text));
  }
  const Trace trace = Read();
  ASSERT_EQ(trace.ranges().size(), 100u);
  EXPECT_EQ(trace.name(trace.ranges()[0].detail).size(), kMostNameBytes);
}

// Every event inherits its name's stats.
TEST_F(HostileXSpaceTest, OfTheStatsOfANameTheFirstAreRead) {
  const int64_t step_name = AddText("step_name");
  const int64_t step_number = AddText("step_num");
  xplane::XStat& first = *name_->add_stats();
  first.set_metadata_id(step_name);
  first.set_str_value("1");
  for (int i = 0; i < 63; ++i) {
    xplane::XStat& stat = *name_->add_stats();
    stat.set_metadata_id(AddText("other" + std::to_string(i)));
    stat.set_int64_value(1);
  }
  AddEvent(0);
  EXPECT_EQ(LossCount(Read(), "long-names"), 0);
  // If the 65th stat were read, the event would be a step.
  xplane::XStat& last = *name_->add_stats();
  last.set_metadata_id(step_number);
  last.set_int64_value(5);
  const Trace trace = Read();
  EXPECT_EQ(LossCount(trace, "long-names"), 1);
  EXPECT_TRUE(trace.steps().empty());
  EXPECT_EQ(trace.ranges().size(), 1u);
}

TEST_F(HostileXSpaceTest, OfManyPlanesTheFirstAreRead) {
  AddEvent(0);
  std::string bytes = space_.SerializeAsString();
  for (int i = 0; i < 10'000; ++i) bytes += std::string("\x0a\x00", 2);
  const Trace trace = Read(bytes);
  EXPECT_EQ(trace.ranges().size(), 1u);
  EXPECT_EQ(LossCount(trace, "too-many-planes"), 10'001 - 4096);
}

// The rest of the plane is lost; here this includes the events' name.
TEST_F(HostileXSpaceTest, ADamagedPlaneIsALoss) {
  AddEvent(0);
  (*space_.add_planes()) = plane_;
  std::string bytes = space_.SerializeAsString();
  const size_t second = bytes.rfind("/host:CPU");
  // Gives the field after the plane's name a type that protobuf does not have.
  bytes[second + 9] = '\x1f';
  const Trace trace = Read(bytes);
  EXPECT_EQ(trace.ranges().size(), 1u);
  EXPECT_EQ(LossCount(trace, "damaged-events"), 1);
  EXPECT_EQ(LossCount(trace, "truncated-file"), 0);
  for (const Loss& loss : trace.losses()) {
    EXPECT_THAT(loss.detail, HasSubstr("the file is damaged"));
    EXPECT_EQ(loss.severity, Severity::kWarning);
  }
}

TEST_F(HostileXSpaceTest, ADamagedNameIsALoss) {
  AddEvent(0);
  name_->set_display_name("shown");
  std::string bytes = space_.SerializeAsString();
  bytes[bytes.find("shown") - 1] = '\x7f';  // its length
  const Trace trace = Read(bytes);
  EXPECT_EQ(trace.ranges().size(), 1u);
  EXPECT_EQ(LossCount(trace, "damaged-events"), 1);
}

TEST_F(HostileXSpaceTest, ADamagedArchiveOfOneIsNamedAsSuch) {
  for (int64_t i = 0; i < 1000; ++i) AddEvent(i * 10);
  std::string packed = Gzip(space_.SerializeAsString());
  packed[packed.size() - 6] ^= 1;  // damages the checksum
  EXPECT_EQ(LossCount(Read(packed), "wrong-checksum"), 1);
}

}  // namespace
}  // namespace stepscope::hostile_xspace_test
