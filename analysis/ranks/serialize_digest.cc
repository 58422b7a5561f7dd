#include <stepscope/rank_digest.h>
#include <stepscope/version.h>

#include <bit>
#include <map>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ranks/digest_fields.h"
#include "ranks/digest_wire.h"
#include "ranks/fnv_hash.h"

namespace stepscope {
namespace {

template <typename Message>
std::string BytesOf(const Message& message);

// A visitor that appends fields to a message. Zeros and empty texts are not
// written.
class FieldWriter {
 public:
  explicit FieldWriter(std::string& out) : out_(out) {}

  template <DigestNumber T>
  void operator()(int field, const T& value) {
    if (value == T{}) return;
    PutKey(field, WireType::kVarint, out_);
    PutVarint(BitsOf(value), out_);
  }
  void operator()(int field, double value) {
    const auto bits = std::bit_cast<uint64_t>(value);
    // Compares bits, because -0.0 equals 0 but would be read back as 0.
    if (bits == 0) return;
    PutKey(field, WireType::kFixed64, out_);
    PutFixed(bits, 8, out_);
  }
  void operator()(int field, const std::string& text) {
    if (!text.empty()) PutBytes(field, text, out_);
  }
  template <DigestNumber T>
  void operator()(int field, const std::vector<T>& values) {
    Packed(field, values,
           [](T value, std::string& to) { PutVarint(BitsOf(value), to); });
  }
  void operator()(int field, const std::vector<double>& values) {
    Packed(field, values, [](double value, std::string& to) {
      PutFixed(std::bit_cast<uint64_t>(value), 8, to);
    });
  }
  template <typename T>
  void operator()(int field, const std::vector<T>& values) {
    for (const T& value : values) Element(field, value);
  }
  template <typename Value>
  void operator()(int field, const std::map<std::string, Value>& values) {
    for (const auto& entry : values) Element(field, entry);
  }
  template <typename Message>
  void operator()(int field, const Message& message) {
    Element(field, message);
  }

  void Fixed32(int field, uint32_t value) {
    PutKey(field, WireType::kFixed32, out_);
    PutFixed(value, 4, out_);
  }
  void Fixed64(int field, uint64_t value) {
    PutKey(field, WireType::kFixed64, out_);
    PutFixed(value, 8, out_);
  }
  void Fixed64s(int field, const std::vector<uint64_t>& values) {
    Packed(field, values,
           [](uint64_t value, std::string& to) { PutFixed(value, 8, to); });
  }
  void Signed(int field, const std::vector<int64_t>& values) {
    Packed(field, values, [](int64_t value, std::string& to) {
      PutVarint(ZigZag(value), to);
    });
  }
  // Writes even the value 0, because the field number says which alternative it
  // is.
  void OneOf(int first,
             const std::variant<bool, int64_t, double, std::string>& value) {
    const int field = first + static_cast<int>(value.index());
    if (const auto* flag = std::get_if<bool>(&value)) {
      PutKey(field, WireType::kVarint, out_);
      PutVarint(*flag, out_);
    } else if (const auto* whole = std::get_if<int64_t>(&value)) {
      PutKey(field, WireType::kVarint, out_);
      PutVarint(BitsOf(*whole), out_);
    } else if (const auto* real = std::get_if<double>(&value)) {
      PutKey(field, WireType::kFixed64, out_);
      PutFixed(std::bit_cast<uint64_t>(*real), 8, out_);
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      PutBytes(field, *text, out_);
    }
  }

 private:
  // Sign-extends negative numbers to 64 bits, as protobuf does.
  template <DigestNumber T>
  static uint64_t BitsOf(T value) {
    if constexpr (std::is_same_v<T, uint64_t>) {
      return value;
    } else {
      return static_cast<uint64_t>(static_cast<int64_t>(value));
    }
  }
  template <typename T, typename Put>
  void Packed(int field, const std::vector<T>& values, Put put) {
    if (values.empty()) return;
    std::string packed;
    for (const T value : values) put(value, packed);
    PutBytes(field, packed, out_);
  }
  void Element(int field, const std::string& text) {
    PutBytes(field, text, out_);
  }
  template <typename Message>
  void Element(int field, const Message& message) {
    PutBytes(field, BytesOf(message), out_);
  }

  std::string& out_;
};

// Stores differences: collectives follow each other in time, so most
// differences are small, and many are 0.
CollectiveColumns ColumnsOf(const std::vector<RankCollective>& collectives) {
  CollectiveColumns columns;
  std::map<std::pair<uint64_t, bool>, uint32_t> groups;
  std::map<std::pair<int64_t, uint64_t>, int64_t> seen;
  std::map<uint64_t, int64_t> sizes;
  RankCollective before = {.step = 0, .kernel = 0};
  for (const RankCollective& one : collectives) {
    // A group's hash takes 8 bytes and does not compress, so collectives refer
    // to a list of the distinct hashes.
    const auto [entry, is_new] =
        groups.try_emplace({one.group, one.ends_together},
                           static_cast<uint32_t>(columns.groups.size()));
    if (is_new) {
      columns.groups.push_back(one.group);
      columns.ends_together.push_back(one.ends_together);
    }
    columns.group.push_back(entry->second);
    columns.step.push_back(one.step - before.step);
    // Collectives in time order have ascending ordinals within a step and
    // group. Store the difference to that count, which is then 0.
    columns.ordinal.push_back(one.ordinal - seen[{one.step, one.group}]++);
    columns.kernel.push_back(static_cast<int64_t>(one.kernel) -
                             static_cast<int64_t>(before.kernel));
    columns.begin_ns.push_back(one.begin_ns - before.begin_ns);
    columns.duration_ns.push_back(one.end_ns - one.begin_ns);
    columns.covered_ns.push_back(one.end_ns - one.begin_ns - one.exposed_ns);
    // Buckets of one group mostly have the same size, so their difference is 0.
    int64_t& bytes = sizes.try_emplace(one.group, 0).first->second;
    columns.bytes.push_back(one.bytes - std::exchange(bytes, one.bytes));
    columns.queued_ns.push_back(one.queued_ns);
    columns.stalled_ns.push_back(one.stalled_ns);
    before = one;
  }
  return columns;
}

template <typename Message>
std::string BytesOf(const Message& message) {
  std::string bytes;
  FieldWriter writer(bytes);
  Visit(writer, message);
  return bytes;
}

}  // namespace

std::string SerializeDigest(const RankDigest& digest) {
  DigestEnvelope envelope;
  envelope.magic = kDigestMagic;
  envelope.version = kDigestVersion;
  envelope.producer = std::string("stepscope ") + Version();
  envelope.rank = BytesOf(DigestMessage{
      .report = digest.report,
      .collectives = ColumnsOf(digest.collectives),
      .groups = digest.groups,
      .step_shapes = digest.step_shapes,
      .host_ms = digest.host_ms,
      .noise_ms = digest.noise_ms,
      .host_noise_ms = digest.host_noise_ms,
      .sm_clock_mhz = digest.sm_clock_mhz,
      .kernels = digest.kernels,
      .only_step_begin_ns = digest.only_step_begin_ns,
  });
  envelope.hash = FnvHash(envelope.rank);
  return BytesOf(envelope);
}

}  // namespace stepscope
