#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "json/json_events_reader.h"
#include "support/temp_folder.h"

namespace stepscope::json_events_test {
namespace {

class JsonEventsTest : public testing::Test {
 protected:
  // Splits `text` into events, with blocks so small that every place is at a
  // block's edge once.
  std::vector<std::string> Cut(const std::string& text, size_t block) {
    bytes_ = *BytesReader::Make(folder_.Write("trace.json", text));
    JsonEventsReader::Limits limits;
    limits.block_bytes = block;
    reader_ = std::make_unique<JsonEventsReader>(bytes_.get(), limits);
    std::vector<std::string> events;
    for (std::string_view event = reader_->Next(); !event.empty();
         event = reader_->Next()) {
      events.emplace_back(event);
    }
    return events;
  }

  TempFolder folder_;
  std::unique_ptr<BytesReader> bytes_;
  std::unique_ptr<JsonEventsReader> reader_;
};

const std::vector<std::string> kEvents = {
    R"({"ph": "X", "name": "a{b}[c]", "args": {"d": [[1], []]}})",
    R"({"name": "quote \" and } brace", "n": "\\"})",
    R"({"name": "back\\\\", "x": {}})", "{}",
    R"({"name": ")" + std::string(300, '{') + R"("})"};

std::string File(const std::string& separator) {
  std::string text = R"({"schemaVersion": 1, "x": [{"traceEvents": [1]}],
    "traceEvents" : [ )";
  for (size_t i = 0; i < kEvents.size(); ++i)
    text += (i == 0 ? "" : separator) + kEvents[i];
  return text + R"( ], "traceName": "]}", "baseTimeNanoseconds": 5})";
}

TEST_F(JsonEventsTest, CutsAtEventBoundariesWhateverTheBlocks) {
  for (size_t block = 1; block < 200; block += block < 70 ? 1 : 13) {
    ASSERT_EQ(Cut(File(",\n  "), block), kEvents) << "block " << block;
    EXPECT_TRUE(reader_->complete());
    EXPECT_EQ(reader_->header(),
              R"({"schemaVersion": 1, "x": [{"traceEvents": [1]}],
    "traceEvents" : [], "traceName": "]}", "baseTimeNanoseconds": 5})");
  }
}

TEST_F(JsonEventsTest, TakesATopLevelArray) {
  for (size_t block : {1, 7, 64, 1000}) {
    EXPECT_EQ(Cut("[{\"a\": 1}, {\"b\": 2}]", block),
              (std::vector<std::string>{"{\"a\": 1}", "{\"b\": 2}"}));
    EXPECT_TRUE(reader_->complete());
    EXPECT_EQ(reader_->header(), "{}");
  }
}

TEST_F(JsonEventsTest, GivesWholeEventsOfACutFile) {
  const std::string text = File(", ");
  for (size_t size = 0; size < text.size(); size += 3) {
    const std::vector<std::string> events = Cut(text.substr(0, size), 50);
    ASSERT_LE(events.size(), kEvents.size());
    for (size_t i = 0; i < events.size(); ++i) ASSERT_EQ(events[i], kEvents[i]);
    EXPECT_FALSE(reader_->complete());
    EXPECT_EQ(reader_->lost_events(), 0);
  }
}

TEST_F(JsonEventsTest, FindsTheNextEventBehindAMissingQuote) {
  const std::string text =
      R"([{"ph": "X", "name": "one}, {"ph": "X", "name": "two"}, )"
      R"({"ph": "X", "name": "three"}])";
  for (size_t block : {16, 64, 1000}) {
    const std::vector<std::string> events = Cut(text, block);
    ASSERT_FALSE(events.empty()) << block;
    EXPECT_EQ(events.back(), R"({"ph": "X", "name": "three"})") << block;
  }
}

TEST_F(JsonEventsTest, GivesUpAnEventWithoutEndInBoundedMemory) {
  std::string text = R"([{"ph": "X", "name": ")" + std::string(40'000, 'x');
  for (int i = 0; i < 100; ++i) text += R"(, {"ph": "X", "name": "good"})";
  bytes_ = *BytesReader::Make(folder_.Write("trace.json", text + "]"));
  JsonEventsReader reader(bytes_.get(),
                          {.block_bytes = 1000, .event_bytes = 4000});
  int events = 0;
  while (!reader.Next().empty()) ++events;
  EXPECT_GE(events, 99);
  EXPECT_GE(reader.lost_events(), 1);
}

// Reads `text` as if all events were invalid JSON. Returns how often each byte
// was looked at.
double LooksPerByte(const std::string& text, TempFolder& folder) {
  const auto bytes = *BytesReader::Make(folder.Write("trace.json", text));
  JsonEventsReader reader(bytes.get());
  while (!reader.Next().empty()) reader.Distrust();
  return static_cast<double>(reader.looked_at_bytes()) /
         static_cast<double>(text.size());
}

TEST_F(JsonEventsTest, DamageInEachEventIsNotPaidForByTheRestOfTheFile) {
  std::string quotes = "[";
  std::string no_keys = "[";
  std::string no_end = "[";
  for (int i = 0; i < 20'000; ++i) {
    quotes += R"({"ph": "X", "name": "no quote}, )";
    no_keys += R"({"x": 1}, )";
    no_end += R"({"name": {"name": )";
  }
  EXPECT_LT(LooksPerByte(quotes + "]", folder_), 10);
  EXPECT_LT(LooksPerByte(no_keys + "]", folder_), 3);
  // Each event extends to the end of the file. Without the limit of 64 MiB and
  // 16 looks, there would be 20,000 looks per byte.
  EXPECT_LT(LooksPerByte(no_end + "]", folder_), 250);
}

}  // namespace
}  // namespace stepscope::json_events_test
