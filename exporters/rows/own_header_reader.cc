#include "rows/own_header_reader.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "json/json_fields.h"
#include "rows/field_values.h"
#include "rows/row_fields.h"

namespace stepscope {
namespace {

// Visitor that sets each field of a row from the JSON member of the same name.
// If the member is missing, the field keeps its default, which is "unknown".
// The reader and the writer visit the same list of fields, so a new field is
// read and written as soon as row_fields.h has it.
template <typename Row>
struct FieldReader {
  dom::object object;
  Row& row;
  TraceBuilder* builder;  // interns names; may be null for rows without names

  template <typename M>
  void Number(const char* key, M member) {
    using T = std::remove_cvref_t<decltype(row.*member)>;
    if constexpr (std::is_floating_point_v<T>) {
      double value = row.*member;
      GetReal(object, key, &value);
      row.*member = static_cast<T>(value);
    } else {
      GetInteger(object, key, &(row.*member));
    }
  }
  template <typename M>
  void Numbers(const char* key, M member) {
    dom::array list;
    if (object[key].get(list)) return;
    if constexpr (requires { (row.*member).push_back(0); }) {
      for (dom::element element : list) {
        int64_t value = 0;
        if (!element.get(value)) (row.*member).push_back(value);
      }
    }
  }
  template <typename M>
  void Name(const char* key, M member) {
    std::string text;
    GetText(object, key, &text);
    row.*member = builder->Intern(text);
  }
  template <typename M>
  void Text(const char* key, M member) {
    GetText(object, key, &(row.*member));
  }
  template <typename M>
  void Thread(const char* key, M member) {
    int64_t value = -1;
    if (GetInteger(object, key, &value) && value >= 0)
      row.*member = static_cast<RowId>(value);
  }
  template <typename M>
  void Choice(const char* key, M member, Texts texts) {
    using T = std::remove_cvref_t<decltype(row.*member)>;
    // A newer version may have more values than this one knows.
    int64_t value = -1;
    if (GetInteger(object, key, &value) && value >= 0 &&
        value < static_cast<int64_t>(texts.size())) {
      row.*member = static_cast<T>(value);
    }
  }
  // Only ops have these fields, and ops are events, not part of the header.
  template <typename M>
  void Inputs(const char*, M) {}
  template <typename M>
  void Stack(const char*, M) {}
};

// Limits the times of damaged files, so that adding durations cannot overflow.
int64_t TimeIn(dom::object object, const char* key) {
  int64_t ns = 0;
  GetInteger(object, key, &ns);
  return std::clamp(ns, -kLargestNs, kLargestNs);
}

template <typename Row>
Row ReadRow(dom::object object, TraceBuilder* builder = nullptr) {
  Row row;
  if constexpr (requires { row.time_ns; }) {
    row.time_ns = TimeIn(object, "time_ns");
  } else if constexpr (requires { row.begin_ns; }) {
    row.begin_ns = TimeIn(object, "begin_ns");
    row.end_ns = std::max(row.begin_ns, TimeIn(object, "end_ns"));
  }
  VisitFields<Row>(FieldReader<Row>{object, row, builder});
  return row;
}

// [pid, tid, torch_thread, name, file_pid, file_tid]; files of early versions
// end after the name.
void ReadThreads(dom::object ours, OwnHeader* header) {
  dom::array list;
  if (ours["threads"].get(list)) return;
  for (dom::element element : list) {
    OwnHeader::DrawnThread thread;
    dom::array row;
    std::string_view name;
    if (element.get(row) || row.at(0).get(thread.thread.pid) ||
        row.at(1).get(thread.thread.tid) ||
        row.at(2).get(thread.thread.torch_thread) || row.at(3).get(name)) {
      continue;
    }
    thread.name = std::string(name);
    if (row.at(4).get(thread.pid)) thread.pid = thread.thread.pid;
    if (row.at(5).get(thread.tid)) thread.tid = thread.thread.tid;
    header->threads.push_back(std::move(thread));
  }
}

void ReadWatched(dom::object ours, OwnHeader* header) {
  dom::array list;
  if (ours["watched"].get(list)) return;
  for (dom::element element : list) {
    std::string_view name;
    if (element.get(name)) continue;
    for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
      if (name == KindName(static_cast<Kind>(kind)))
        header->watched.push_back(static_cast<Kind>(kind));
    }
  }
}

// Calls `read` with our object in `json`, if there is one.
template <typename Read>
void WithOurs(const std::string& json, Read read) {
  dom::parser parser;
  dom::object root;
  dom::object ours;
  if (!parser.parse(json).get(root) && !root["stepscope"].get(ours)) read(ours);
}

}  // namespace

void ReadOwnHeader(const std::string& json, OwnHeader* header) {
  WithOurs(json, [&](dom::object ours) {
    header->is_ours = true;
    std::string flavour;
    GetText(ours, "flavour", &flavour);
    header->is_tb_flavour = flavour == "tb";
    header->run = RunInfo();
    dom::object run;
    if (!ours["run"].get(run)) {
      header->run = ReadRow<RunInfo>(run);
      ForEachObject(run, "devices", [&](dom::object item) {
        header->run.devices.push_back(ReadRow<Device>(item));
      });
    }
    ReadThreads(ours, header);
    ReadWatched(ours, header);
    ForEachObject(ours, "losses", [&](dom::object item) {
      header->losses.push_back(ReadRow<Loss>(item));
    });
  });
}

// Parses the JSON again instead of adding these rows in ReadOwnHeader(): their
// times are since the epoch, so they may be added only after the times of the
// events have been shifted to the epoch.
void AddHeaderRows(const std::string& json, TraceBuilder* builder) {
  WithOurs(json, [&](dom::object ours) {
    ForEachObject(ours, "settings", [&](dom::object item) {
      builder->Add(ReadRow<Settings>(item, builder));
    });
    ForEachObject(ours, "host_usage", [&](dom::object item) {
      builder->Add(ReadRow<HostUsage>(item, builder));
    });
    ForEachObject(ours, "loaders", [&](dom::object item) {
      builder->Add(ReadRow<Loader>(item, builder));
    });
    ForEachObject(ours, "streams", [&](dom::object item) {
      builder->Add(ReadRow<Stream>(item, builder));
    });
    ForEachObject(ours, "device_samples", [&](dom::object item) {
      builder->Add(ReadRow<DeviceSample>(item));
    });
  });
}

}  // namespace stepscope
