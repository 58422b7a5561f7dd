#include "chrome/reader/chrome_event_reader.h"

#include <simdjson.h>

#include <cmath>
#include <cstring>
#include <utility>

namespace stepscope {
namespace {

namespace ondemand = simdjson::ondemand;

// The names of args, in the order of ArgKey. Names that begin with "stepscope."
// are our own; the others are torch.profiler's.
constexpr std::array<std::string_view, static_cast<size_t>(ArgKey::kCount)>
    kArgNames = {"Sequence number",
                 "Fwd thread id",
                 "Input Dims",
                 "Input type",
                 "Input Strides",
                 "Concrete Inputs",
                 "Call stack",
                 "correlation",
                 "device",
                 "stream",
                 "context",
                 "bytes",
                 "grid",
                 "block",
                 "registers per thread",
                 "shared memory",
                 "blocks per SM",
                 "warps per SM",
                 "est. achieved occupancy %",
                 "graph id",
                 "graph node id",
                 "Python id",
                 "Python parent id",
                 "Python module id",
                 "Device Type",
                 "Device Id",
                 "Addr",
                 "Bytes",
                 "Total Allocated",
                 "Total Reserved",
                 "Collective name",
                 "dtype",
                 "In msg nelems",
                 "Out msg nelems",
                 "Group size",
                 "Process Group Name",
                 "Process Group Description",
                 "Process Group Ranks",
                 "Seq",
                 "wait_on_stream",
                 "wait_on_cuda_event_record_corr_id",
                 "name",
                 "kind",
                 "Task Type",
                 "stepscope.step",
                 "stepscope.range",
                 "stepscope.name",
                 "stepscope.detail",
                 "stepscope.driver",
                 "stepscope.return_code",
                 "stepscope.occupancy",
                 "stepscope.source",
                 "stepscope.destination",
                 "stepscope.async",
                 "stepscope.device_type",
                 "stepscope.only",
                 "stepscope.inputs",
                 "stepscope.stack",
                 "stepscope.thread",
                 "stepscope.queued",
                 "stepscope.submitted",
                 "stepscope.counted",
                 "kernel_file",
                 "kernel_kwargs"};

// A power of two well above the number of names, so that most lookups need one
// comparison.
constexpr size_t kSlots = 512;

// A hash whose table has few collisions for the known keys. Most keys of a file
// are known, and each event has ten of them, so a lookup must cost a few ns.
constexpr size_t SlotOf(std::string_view name) {
  const auto byte = [&](size_t at) {
    return static_cast<size_t>(static_cast<unsigned char>(name[at]));
  };
  return (name.size() * 41 + byte(0) * 7 + byte(name.size() / 2) * 13 +
          byte(name.size() - 1) * 29) %
         kSlots;
}

// Open addressing over kArgNames; an entry is the key's number + 1.
constexpr std::array<uint8_t, kSlots> MakeSlots() {
  std::array<uint8_t, kSlots> slots{};
  for (size_t key = 0; key < kArgNames.size(); ++key) {
    size_t slot = SlotOf(kArgNames[key]);
    while (slots[slot] != 0) slot = (slot + 1) % kSlots;
    slots[slot] = static_cast<uint8_t>(key + 1);
  }
  return slots;
}

constexpr std::array<uint8_t, kSlots> kSlotTable = MakeSlots();

ArgKey FindArg(std::string_view name) {
  if (name.empty()) return ArgKey::kCount;
  for (size_t slot = SlotOf(name); kSlotTable[slot] != 0;
       slot = (slot + 1) % kSlots) {
    const size_t key = kSlotTable[slot] - size_t{1};
    if (kArgNames[key] == name) return static_cast<ArgKey>(key);
  }
  return ArgKey::kCount;
}

// Returns a key without its quotes. simdjson's own key() would unescape it into
// a buffer, but no known key has escapes.
std::string_view KeyText(ondemand::raw_json_string key, const char* end) {
  const char* begin = key.raw();
  const void* quote = std::memchr(begin, '"', static_cast<size_t>(end - begin));
  if (quote == nullptr) return {};
  return {begin, static_cast<size_t>(static_cast<const char*>(quote) - begin)};
}

// Reads a value into `field` without converting it; false if it is damaged.
// Values stay text: most of them are never converted, and doubles would lose
// digits of times.
bool ReadField(ondemand::value& value, Field* field) {
  std::string_view token = value.raw_json_token();
  if (token.empty()) return false;
  if (token[0] == '"') {
    const size_t quote = token.rfind('"');
    if (quote == 0) return false;
    *field = {token.substr(1, quote - 1), Field::Type::kText};
  } else if (token[0] == '[') {
    ondemand::array array;
    if (value.get_array().get(array) || array.raw_json().get(token))
      return false;
    *field = {token, Field::Type::kArray};
  } else if (token[0] == '{') {
    // Left empty without looking inside; simdjson moves past it.
    *field = Field();  // no field that is read is an object
  } else {
    while (!token.empty() && static_cast<unsigned char>(token.back()) <= ' ')
      token.remove_suffix(1);
    *field = {token, Field::Type::kScalar};
  }
  return true;
}

bool ReadArgs(ondemand::value& value, const char* end, ChromeEvent* event) {
  ondemand::json_type type;
  if (value.type().get(type)) return false;
  if (type != ondemand::json_type::object) return true;
  ondemand::object args;
  if (value.get_object().get(args)) return false;
  for (auto item : args) {
    ondemand::field field;
    if (std::move(item).get(field)) return false;
    const ArgKey key = FindArg(KeyText(field.key(), end));
    if (key == ArgKey::kCount) continue;
    if (!ReadField(field.value(), &event->args[static_cast<size_t>(key)]))
      return false;
    event->present[static_cast<size_t>(key)] = true;
  }
  return true;
}

Field* FixedField(std::string_view key, ChromeEvent* event) {
  // Switches on the length first, so that most keys need one comparison.
  switch (key.size()) {
    case 2:
      if (key == "ph") return &event->phase;
      if (key == "ts") return &event->begin;
      if (key == "id") return &event->id;
      break;
    case 3:
      if (key == "cat") return &event->category;
      if (key == "pid") return &event->pid;
      if (key == "tid") return &event->tid;
      if (key == "dur") return &event->duration;
      break;
    case 4:
      if (key == "name") return &event->name;
      break;
    default:
      break;
  }
  return nullptr;
}

}  // namespace

struct ChromeEventParser::Json {
  ondemand::parser parser;
};

ChromeEventParser::ChromeEventParser() : json_(std::make_unique<Json>()) {}
ChromeEventParser::~ChromeEventParser() = default;

// Callers reuse `event` for all events of a file, so nothing is allocated here.
bool ChromeEventParser::Parse(std::string_view text, ChromeEvent* event) {
  event->phase = event->category = event->name = event->pid = event->tid =
      event->begin = event->duration = event->id = Field();
  event->present.reset();
  const char* end = text.data() + text.size();
  ondemand::document document;
  if (json_->parser
          .iterate(text.data(), text.size(),
                   text.size() + simdjson::SIMDJSON_PADDING)
          .get(document)) {
    return false;
  }
  ondemand::object object;
  if (document.get_object().get(object)) return false;
  for (auto item : object) {
    ondemand::field field;
    if (std::move(item).get(field)) return false;
    const std::string_view key = KeyText(field.key(), end);
    if (key == "args") {
      if (!ReadArgs(field.value(), end, event)) return false;
    } else if (Field* fixed = FixedField(key, event); fixed != nullptr) {
      if (!ReadField(field.value(), fixed)) return false;
    }
  }
  return true;
}

}  // namespace stepscope
