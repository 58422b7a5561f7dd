#include "rows/own_header_writer.h"

#include <cmath>
#include <type_traits>

#include "json/json_writer.h"
#include "rows/row_fields.h"

namespace stepscope {
namespace {

// Visitor that writes each field of a row as a member of the open object.
// Unknown fields are left out.
template <typename Row>
struct FieldJson {
  const Trace& trace;
  const Row& row;
  JsonWriter& json;
  const Row unknown = {};

  template <typename M>
  void Number(const char* key, M member) {
    using T = std::remove_cvref_t<decltype(row.*member)>;
    const T value = row.*member;
    if (value == unknown.*member) return;
    if constexpr (std::is_floating_point_v<T>) {
      // JSON has no infinity and no NaN.
      if (!std::isfinite(value)) return;
      json.Key(key);
      json.Double(value);
    } else if constexpr (std::is_unsigned_v<T>) {
      json.Key(key);
      json.Uint(value);
    } else {
      json.Field(key, static_cast<int64_t>(value));
    }
  }
  template <typename M>
  void Numbers(const char* key, M member) {
    if (row.*member == unknown.*member) return;
    json.Key(key);
    json.OpenList();
    for (int64_t value : row.*member) {
      json.Item();
      json.Int(value);
    }
    json.CloseList();
  }
  template <typename M>
  void Name(const char* key, M member) {
    if (row.*member != 0) json.Field(key, trace.name(row.*member));
  }
  template <typename M>
  void Text(const char* key, M member) {
    if (!(row.*member).empty()) json.Field(key, row.*member);
  }
  template <typename M>
  void Thread(const char* key, M member) {
    if (row.*member != kNone)
      json.Field(key, static_cast<int64_t>(row.*member));
  }
  template <typename M>
  void Choice(const char* key, M member, Texts) {
    json.Field(key, static_cast<int64_t>(row.*member));
  }
  // Only ops have these fields, and ops are events, not part of the header.
  template <typename M>
  void Inputs(const char*, M) {}
  template <typename M>
  void Stack(const char*, M) {}
};

class HeaderWriter {
 public:
  HeaderWriter(const Trace& trace, std::string& out)
      : trace_(trace), out_(out), json_(&out) {}
  void Write(std::string_view flavour, std::span<const ThreadNumbers> drawn);

 private:
  template <typename Row>
  void Object(const Row& row) {
    json_.OpenObject();
    if constexpr (requires { row.time_ns; }) {
      json_.Field("time_ns", row.time_ns);
    } else if constexpr (requires { row.begin_ns; }) {
      json_.Field("begin_ns", row.begin_ns);
      json_.Field("end_ns", row.end_ns);
    }
    VisitFields<Row>(FieldJson<Row>{trace_, row, json_});
  }
  template <typename Row>
  void Rows(const char* key, std::span<const Row> rows) {
    Open(key);
    out_ += "[";
    // One row per line, because people read the header, too.
    for (size_t i = 0; i < rows.size(); ++i) {
      out_ += i == 0 ? "\n      " : ",\n      ";
      Object(rows[i]);
      json_.CloseObject();
    }
    out_ += "],\n";
  }
  void Open(const char* key) {
    out_ += "    \"";
    out_ += key;
    out_ += "\": ";
  }

  const Trace& trace_;
  std::string& out_;
  JsonWriter json_;
};

void HeaderWriter::Write(std::string_view flavour,
                         std::span<const ThreadNumbers> drawn) {
  out_ += "  \"stepscope\": {\n    \"schema\": 1,\n    \"flavour\": \"";
  out_ += flavour;
  out_ += "\",\n";
  Open("run");
  Object(trace_.run());
  json_.Key("devices");
  json_.OpenList();
  for (const Device& device : trace_.run().devices) {
    json_.Item();
    Object(device);
    json_.CloseObject();
  }
  json_.CloseList();
  json_.CloseObject();
  out_ += ",\n";
  Open("watched");
  json_.OpenList();
  for (int i = 0; i < static_cast<int>(Kind::kCount); ++i) {
    if (!trace_.watched(static_cast<Kind>(i))) continue;
    json_.Item();
    json_.String(KindName(static_cast<Kind>(i)));
  }
  json_.CloseList();
  out_ += ",\n";
  Open("threads");
  json_.OpenList();
  // [pid, tid, torch thread, name, pid as drawn, tid as drawn]
  for (RowId row = 0; row < trace_.threads().size(); ++row) {
    const Thread& thread = trace_.threads()[row];
    json_.Item();
    json_.OpenList();
    json_.Item();
    json_.Int(thread.pid);
    json_.Item();
    json_.Int(thread.tid);
    json_.Item();
    json_.Uint(thread.torch_thread);
    json_.Item();
    json_.String(trace_.name(thread.name));
    json_.Item();
    json_.Int(drawn[row].pid);
    json_.Item();
    json_.Int(drawn[row].tid);
    json_.CloseList();
  }
  json_.CloseList();
  out_ += ",\n";
  Rows("settings", trace_.settings());
  Rows("host_usage", trace_.host_usage());
  Rows("loaders", trace_.loaders());
  Rows("streams", trace_.streams());
  Rows("device_samples", trace_.device_samples());
  Rows("losses", trace_.losses());
  out_.resize(out_.size() - 2);  // the last comma
  out_ += "\n  },\n";
}

}  // namespace

void WriteOwnHeader(const Trace& trace, std::string_view flavour,
                    std::span<const ThreadNumbers> drawn, std::string& out) {
  HeaderWriter(trace, out).Write(flavour, drawn);
}

}  // namespace stepscope
