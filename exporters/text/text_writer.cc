#include "text/text_writer.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "json/json_writer.h"
#include "rows/row_fields.h"

namespace stepscope {
namespace {

// True if `text` can stand unquoted, as a value or as the name at the end of a
// line. The reader (TraceFromText) splits at blanks and takes "key=" for a
// field, so a name that looks like a field is quoted.
bool IsPlain(std::string_view text, bool is_value) {
  if (text.empty() || text.front() == ' ' || text.back() == ' ') return false;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7F || c == '"' || c == '\\') return false;
    if (is_value && (c == ' ' || c == '(')) return false;
  }
  const std::string_view word = text.substr(0, text.find(' '));
  return is_value || word.find('=') == std::string_view::npos;
}

void AppendText(std::string_view text, bool is_value, std::string& out) {
  if (IsPlain(text, is_value)) {
    out += text;
  } else {
    AppendQuoted(text, out);
  }
}

void AppendKey(std::string_view key, std::string& out) {
  out += ' ';
  out += key;
  out += '=';
}

// Appends a text with its key, unless it is empty. The name has no key and is
// never left out.
void AppendKeyText(std::string_view key, std::string_view text,
                   std::string& out) {
  if (key == "name") {
    out += ' ';
    AppendText(text, false, out);
  } else if (!text.empty()) {
    AppendKey(key, out);
    AppendText(text, true, out);
  }
}

// Each type has its own function, because the shortest text of a float is
// longer if the float is converted to double.
template <typename Number>
void AppendAnyNumber(Number value, std::string& out) {
  if constexpr (std::is_same_v<Number, float>) {
    AppendFloat(value, out);
  } else if constexpr (std::is_floating_point_v<Number>) {
    AppendDouble(value, out);
  } else if constexpr (std::is_unsigned_v<Number>) {
    AppendUint(value, out);
  } else {
    AppendInt(value, out);
  }
}

template <typename Numbers>
void AppendNumbers(const Numbers& numbers, std::string& out) {
  bool first = true;
  for (auto number : numbers) {
    if (!first) out += ',';
    first = false;
    AppendAnyNumber(number, out);
  }
}

// True for the usual characters of C++ types. A type with others is quoted,
// because the reader takes a bracket, a comma or "=" for the end of the type.
bool IsTypeChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_' || c == ':' || c == '.';
}

// Visitor that appends the fields of a row that differ from a default row's, so
// that a line shows what a test is about.
template <typename Row>
class FieldText {
 public:
  FieldText(const Trace& trace, const Row& row, std::string* out)
      : trace_(trace), row_(row), out_(*out) {}

  template <typename M>
  void Number(const char* key, M member) {
    if (row_.*member == default_.*member) return;
    Key(key);
    AppendAnyNumber(row_.*member, out_);
  }
  template <typename M>
  void Numbers(const char* key, M member) {
    if (row_.*member == default_.*member) return;
    Key(key);
    AppendNumbers(row_.*member, out_);
  }
  template <typename M>
  void Name(const char* key, M member) {
    AppendKeyText(key, trace_.name(row_.*member), out_);
  }
  template <typename M>
  void Text(const char* key, M member) {
    AppendKeyText(key, row_.*member, out_);
  }
  template <typename M>
  void Thread(const char* key, M member) {
    if (row_.*member == kNone) return;
    Key(key);
    AppendUint(row_.*member, out_);
  }
  template <typename M>
  void Inputs(const char* key, M member) {
    if (row_.*member == kNone) return;
    Key(key);
    AppendArguments(trace_.op_inputs()[row_.*member].arguments);
  }
  template <typename M>
  void Stack(const char* key, M member) {
    if (row_.*member == kNone) return;
    Key(key);
    out_ += '(';
    bool first = true;
    for (NameId frame : trace_.stacks()[row_.*member].frames) {
      if (!first) out_ += ',';
      first = false;
      AppendQuoted(trace_.name(frame), out_);
    }
    out_ += ')';
  }
  template <typename M>
  void Choice(const char* key, M member, Texts texts) {
    const auto index = static_cast<size_t>(row_.*member);
    // A value without a text is left out, because it could not be read back.
    if (row_.*member == default_.*member || index >= texts.size()) return;
    Key(key);
    out_ += texts[index];
  }

 private:
  void Key(std::string_view key) { AppendKey(key, out_); }
  void AppendArguments(std::span<const Argument> arguments) {
    out_ += '(';
    bool first = true;
    for (const Argument& argument : arguments) {
      if (!first) out_ += ',';
      first = false;
      const std::string_view type = trace_.name(argument.type);
      if (!type.empty() && std::all_of(type.begin(), type.end(), IsTypeChar)) {
        out_ += type;
      } else {
        AppendQuoted(type, out_);
      }
      if (!argument.dims.empty()) {
        out_ += '[';
        AppendNumbers(argument.dims, out_);
        out_ += ']';
      }
      if (!argument.strides.empty()) {
        out_ += '{';
        AppendNumbers(argument.strides, out_);
        out_ += '}';
      }
      if (argument.concrete != 0) {
        out_ += '=';
        AppendQuoted(trace_.name(argument.concrete), out_);
      }
      if (!argument.elements.empty()) AppendArguments(argument.elements);
    }
    out_ += ')';
  }

  const Trace& trace_;
  const Row& row_;
  const Row default_ = {};
  std::string& out_;
};

class TextWriter {
 public:
  explicit TextWriter(const Trace& trace) : trace_(trace) {}

  template <typename Row>
  void Rows(const char* kind, std::span<const Row> rows) {
    for (const Row& row : rows) {
      Open(kind);
      // Rows of a moment have one time, rows with a length have two, and rows
      // of the header have none.
      if constexpr (requires { row.time_ns; }) {
        out_ += ' ';
        AppendInt(row.time_ns, out_);
      } else if constexpr (requires { row.begin_ns; }) {
        Span(row.begin_ns, row.end_ns);
      }
      Fields(row);
      out_ += '\n';
    }
  }

  std::string Write(std::span<const Annotation> annotations);

 private:
  void Open(const char* kind) { out_ += kind; }
  void Span(int64_t begin_ns, int64_t end_ns) {
    out_ += ' ';
    AppendInt(begin_ns, out_);
    out_ += "..";
    AppendInt(end_ns, out_);
  }
  template <typename Row>
  void Fields(const Row& row) {
    VisitFields<Row>(FieldText<Row>(trace_, row, &out_));
  }
  void WriteThreads();

  const Trace& trace_;
  std::string out_;
};

void TextWriter::WriteThreads() {
  for (RowId row = 0; row < trace_.threads().size(); ++row) {
    const stepscope::Thread& thread = trace_.threads()[row];
    Open("thread ");
    AppendUint(row, out_);
    out_ += " pid=";
    AppendInt(thread.pid, out_);
    out_ += " tid=";
    AppendInt(thread.tid, out_);
    if (thread.torch_thread != 0) {
      out_ += " torch_thread=";
      AppendUint(thread.torch_thread, out_);
    }
    AppendKeyText("name", trace_.name(thread.name), out_);
    out_ += '\n';
  }
}

// Writes threads before the rows that name them by number, and annotations
// last.
std::string TextWriter::Write(std::span<const Annotation> annotations) {
  Open("run");
  Fields(trace_.run());
  out_ += "\nwatch";
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    if (!trace_.watched(static_cast<Kind>(kind))) continue;
    out_ += ' ';
    out_ += KindName(static_cast<Kind>(kind));
  }
  out_ += '\n';
  Rows("device", std::span<const Device>(trace_.run().devices));
  WriteThreads();
  Rows("loss", trace_.losses());
  Rows("loader", trace_.loaders());
  Rows("stream", trace_.streams());
  Rows("settings", trace_.settings());
  Rows("host_usage", trace_.host_usage());
  Rows("device_sample", trace_.device_samples());
  Rows("step", trace_.steps());
  Rows("range", trace_.ranges());
  Rows("op", trace_.ops());
  Rows("communication", trace_.communications());
  Rows("runtime_call", trace_.runtime_calls());
  Rows("kernel", trace_.kernels());
  Rows("copy", trace_.copies());
  Rows("memset", trace_.memsets());
  Rows("sync", trace_.syncs());
  Rows("overhead", trace_.overheads());
  Rows("python_frame", trace_.python_frames());
  Rows("allocation", trace_.allocations());
  Rows("device_memory", trace_.device_memory());
  for (const Annotation& annotation : annotations) {
    Open("annotation");
    Span(annotation.begin_ns, annotation.end_ns);
    AppendKeyText("row", annotation.row, out_);
    AppendKeyText("severity",
                  kSeverityTexts[static_cast<size_t>(annotation.severity)],
                  out_);
    AppendKeyText("text", annotation.text, out_);
    AppendKeyText("name", annotation.name, out_);
    out_ += '\n';
  }
  return std::move(out_);
}

}  // namespace

std::string ToTraceText(const Trace& trace,
                        std::span<const Annotation> annotations) {
  return TextWriter(trace).Write(annotations);
}

}  // namespace stepscope
