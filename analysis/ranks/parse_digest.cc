#include <absl/status/status.h>
#include <stepscope/rank_digest.h>

#include <bit>
#include <cmath>
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

constexpr char kInstead[] =
    "; analyse the trace of the rank instead: stepscope analyze FOLDER";

// A message of two bytes becomes a struct of hundreds of bytes, so the number
// of messages is limited as well. DigestRank() writes some thousands.
constexpr int64_t kMostMessages = 50'000;

// The largest value of each enum. Checked because names are looked up by value.
constexpr int64_t Largest(FindingStatus) {
  return static_cast<int64_t>(FindingStatus::kError);
}
constexpr int64_t Largest(FindingSeverity) {
  return static_cast<int64_t>(FindingSeverity::kCritical);
}
constexpr int64_t Largest(Confidence) {
  return static_cast<int64_t>(Confidence::kProven);
}
constexpr int64_t Largest(GainKind) {
  return static_cast<int64_t>(GainKind::kPredicted);
}
constexpr int64_t Largest(Severity) {
  return static_cast<int64_t>(Severity::kError);
}

// A visitor that sets every field to 0 or empty, its value if a message lacks
// it. The structs have other defaults.
struct FieldClearer {
  template <typename T>
  void operator()(int, T& value) {
    if constexpr (std::is_class_v<T> && requires { value.clear(); }) {
      value.clear();
    } else if constexpr (std::is_class_v<T>) {
      Visit(*this, value);
    } else {
      value = T{};
    }
  }
  void Fixed32(int, uint32_t& value) { value = 0; }
  void Fixed64(int, uint64_t& value) { value = 0; }
  void Fixed64s(int, std::vector<uint64_t>& values) { values.clear(); }
  void Signed(int, std::vector<int64_t>& values) { values.clear(); }
  void OneOf(int, std::variant<bool, int64_t, double, std::string>& value) {
    value = false;
  }
};

template <typename Message>
bool ParseMessage(std::string_view bytes, int64_t& budget, Message& message);

// A visitor that stores one field of a message. Unknown fields are skipped,
// because newer writers may add some.
class FieldReader {
 public:
  FieldReader(const WireField& wire, int64_t& budget)
      : wire_(wire), budget_(budget) {}
  bool ok() const { return ok_; }

  template <typename T>
  void operator()(int field, T& value) {
    if (field == wire_.number) ok_ = Read(value);
  }
  void Fixed32(int field, uint32_t& value) {
    if (field != wire_.number) return;
    ok_ = wire_.type == WireType::kFixed32;
    value = static_cast<uint32_t>(wire_.value);
  }
  void Fixed64(int field, uint64_t& value) {
    if (field != wire_.number) return;
    ok_ = wire_.type == WireType::kFixed64;
    value = wire_.value;
  }
  void Fixed64s(int field, std::vector<uint64_t>& values) {
    if (field != wire_.number) return;
    ok_ = Packed([&](std::string_view& rest) {
      uint64_t value = 0;
      if (!TakeFixed(rest, 8, value)) return false;
      values.push_back(value);
      return true;
    });
  }
  void Signed(int field, std::vector<int64_t>& values) {
    if (field != wire_.number) return;
    ok_ = Packed([&](std::string_view& rest) {
      uint64_t value = 0;
      if (!TakeVarint(rest, value)) return false;
      values.push_back(UnZigZag(value));
      return true;
    });
  }
  void OneOf(int first,
             std::variant<bool, int64_t, double, std::string>& value) {
    switch (wire_.number - first) {
      case 0:
        ok_ = Read(value.emplace<0>());
        break;
      case 1:
        ok_ = Read(value.emplace<1>());
        break;
      case 2:
        ok_ = Read(value.emplace<2>());
        break;
      case 3:
        ok_ = Read(value.emplace<3>());
        break;
      default:
        break;
    }
  }

 private:
  template <DigestNumber T>
  static bool FromBits(uint64_t bits, T& value) {
    if constexpr (std::is_enum_v<T>) {
      if (bits > static_cast<uint64_t>(Largest(T{}))) return false;
    }
    value = static_cast<T>(bits);
    return true;
  }
  static bool FromBits(uint64_t bits, double& value) {
    value = std::bit_cast<double>(bits);
    // A single NaN would spread to every mean over the ranks.
    return std::isfinite(value);
  }

  template <DigestNumber T>
  bool Read(T& value) {
    return wire_.type == WireType::kVarint && FromBits(wire_.value, value);
  }
  bool Read(double& value) {
    return wire_.type == WireType::kFixed64 && FromBits(wire_.value, value);
  }
  bool Read(std::string& text) {
    text = wire_.bytes;
    return wire_.type == WireType::kBytes;
  }
  template <DigestNumber T>
  bool Read(std::vector<T>& values) {
    return Packed([&](std::string_view& rest) {
      uint64_t bits = 0;
      T value{};
      if (!TakeVarint(rest, bits) || !FromBits(bits, value)) return false;
      values.push_back(value);
      return true;
    });
  }
  bool Read(std::vector<double>& values) {
    return Packed([&](std::string_view& rest) {
      uint64_t bits = 0;
      return TakeFixed(rest, 8, bits) && FromBits(bits, values.emplace_back());
    });
  }
  template <typename T>
  bool Read(std::vector<T>& values) {
    return Read(values.emplace_back());
  }
  template <typename Value>
  bool Read(std::map<std::string, Value>& values) {
    std::pair<std::string, Value> entry;
    if (!Read(entry)) return false;
    // If keys repeat, the last entry wins, as protobuf defines for maps.
    values.insert_or_assign(std::move(entry.first), std::move(entry.second));
    return true;
  }
  template <typename Message>
  bool Read(Message& message) {
    return wire_.type == WireType::kBytes &&
           ParseMessage(wire_.bytes, budget_, message);
  }

  template <typename Take>
  bool Packed(Take take) {
    // Accepts packed lists only, because the writer makes no others.
    if (wire_.type != WireType::kBytes) return false;
    std::string_view rest = wire_.bytes;
    while (!rest.empty()) {
      if (!take(rest)) return false;
    }
    return true;
  }

  const WireField& wire_;
  int64_t& budget_;
  bool ok_ = true;
};

template <typename Message>
bool ParseMessage(std::string_view bytes, int64_t& budget, Message& message) {
  if (--budget < 0) return false;
  // A writer leaves out fields that are 0 or empty, so the struct's own
  // defaults (such as -1) must not survive.
  FieldClearer clearer;
  Visit(clearer, message);
  while (!bytes.empty()) {
    WireField wire;
    if (!TakeField(bytes, wire)) return false;
    FieldReader reader(wire, budget);
    Visit(reader, message);
    if (!reader.ok()) return false;
  }
  return true;
}

// Adds with wrap-around, because a damaged digest may hold any number and
// signed overflow is undefined.
int64_t Sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) +
                              static_cast<uint64_t>(b));
}

// Returns false if the columns differ in length.
bool CollectivesOf(CollectiveColumns& columns,
                   std::vector<RankCollective>& collectives) {
  const size_t count = columns.group.size();
  for (const auto* column :
       {&columns.step, &columns.ordinal, &columns.kernel, &columns.begin_ns,
        &columns.duration_ns, &columns.covered_ns}) {
    if (column->size() != count) return false;
  }
  // Digests of version 0.1 lack these columns.
  for (auto* column :
       {&columns.bytes, &columns.queued_ns, &columns.stalled_ns}) {
    if (column->empty()) column->resize(count);
    if (column->size() != count) return false;
  }
  if (columns.groups.size() != columns.ends_together.size()) return false;
  std::map<std::pair<int64_t, uint64_t>, int64_t> seen;
  std::map<uint64_t, int64_t> sizes;
  RankCollective before = {.step = 0, .kernel = 0};
  for (size_t i = 0; i < count; ++i) {
    if (columns.group[i] >= columns.groups.size()) return false;
    RankCollective one;
    one.group = columns.groups[columns.group[i]];
    one.ends_together = columns.ends_together[columns.group[i]];
    one.step = Sum(before.step, columns.step[i]);
    one.ordinal = static_cast<int32_t>(
        Sum(columns.ordinal[i], seen[{one.step, one.group}]++));
    one.kernel = static_cast<RowId>(Sum(before.kernel, columns.kernel[i]));
    one.begin_ns = Sum(before.begin_ns, columns.begin_ns[i]);
    one.end_ns = Sum(one.begin_ns, columns.duration_ns[i]);
    // Duration minus the covered time, without signed overflow.
    one.exposed_ns =
        Sum(columns.duration_ns[i], Sum(~columns.covered_ns[i], 1));
    int64_t& bytes = sizes.try_emplace(one.group, 0).first->second;
    one.bytes = bytes = Sum(bytes, columns.bytes[i]);
    one.queued_ns = columns.queued_ns[i];
    one.stalled_ns = columns.stalled_ns[i];
    collectives.push_back(one);
    before = one;
  }
  return true;
}

absl::Status Damaged() {
  return absl::DataLossError(
      std::string("is damaged: cut off or changed since it was written") +
      kInstead);
}

}  // namespace

absl::StatusOr<RankDigest> ParseDigest(std::string_view bytes) {
  if (bytes.size() > kMostDigestBytes) {
    return absl::InvalidArgumentError("is larger than a digest can be (" +
                                      std::to_string(bytes.size()) + " bytes)" +
                                      kInstead);
  }
  int64_t budget = kMostMessages;
  DigestEnvelope envelope;
  // The magic number comes first, so that a truncated digest can be told from a
  // file of another kind.
  // One byte for the key of field 1 and four for its value.
  constexpr size_t kHead = 5;
  if (bytes.size() < kHead ||
      !ParseMessage(bytes.substr(0, kHead), budget, envelope) ||
      envelope.magic != kDigestMagic) {
    return absl::InvalidArgumentError(
        std::string("is no digest of a rank's window") + kInstead);
  }
  if (!ParseMessage(bytes, budget, envelope)) return Damaged();
  // Checked before the hash, so that a digest of a newer format is reported as
  // newer and not as damaged.
  if (envelope.version > kDigestVersion) {
    return absl::UnimplementedError(
        "was written by a newer " + envelope.producer + " (version " +
        std::to_string(envelope.version) +
        " of the format; this one reads version " +
        std::to_string(kDigestVersion) +
        "); use the same stepscope for all ranks, or update this one");
  }
  if (envelope.version < 1 || envelope.hash != FnvHash(envelope.rank)) {
    return Damaged();
  }
  DigestMessage message;
  RankDigest digest;
  if (!ParseMessage(envelope.rank, budget, message) ||
      !CollectivesOf(message.collectives, digest.collectives)) {
    return Damaged();
  }
  digest.report = std::move(message.report);
  digest.step_shapes = std::move(message.step_shapes);
  digest.host_ms = message.host_ms;
  digest.noise_ms = message.noise_ms;
  digest.host_noise_ms = message.host_noise_ms;
  digest.groups = std::move(message.groups);
  digest.sm_clock_mhz = message.sm_clock_mhz;
  digest.kernels = message.kernels;
  digest.only_step_begin_ns = message.only_step_begin_ns;
  return digest;
}

}  // namespace stepscope
