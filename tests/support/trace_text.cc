#include "support/trace_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "exporters/rows/row_fields.h"

namespace stepscope {
namespace {

[[noreturn]] void Fail(const std::string& what) {
  throw std::invalid_argument(what);
}

// A position in one line.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) { SkipBlanks(); }

  bool done() const { return rest_.empty(); }
  char peek() const { return rest_.empty() ? '\0' : rest_.front(); }
  std::string_view rest() const { return rest_; }
  void SkipBlanks() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  bool Take(char c) {
    if (peek() != c || rest_.empty()) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void Expect(char c) {
    if (!Take(c))
      Fail(std::string("expected '") + c + "' before '" + std::string(rest_) +
           "'");
  }
  // Takes everything up to one of `stops`.
  std::string_view Until(std::string_view stops) {
    const std::string_view taken = rest_.substr(0, rest_.find_first_of(stops));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string Quoted();
  // Takes a list in parentheses unchanged.
  std::string_view Balanced();

 private:
  std::string_view rest_;
};

void AppendUtf8(unsigned code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

std::string Cursor::Quoted() {
  Expect('"');
  std::string text;
  while (!Take('"')) {
    if (done()) Fail("a quoted text does not end");
    char c = rest_.front();
    rest_.remove_prefix(1);
    if (c == '\\' && !done()) {
      c = rest_.front();
      rest_.remove_prefix(1);
      if (c == 'u') {
        unsigned code = 0;
        std::from_chars(rest_.data(),
                        rest_.data() + std::min<size_t>(4, rest_.size()), code,
                        16);
        AppendUtf8(code, text);
        rest_.remove_prefix(std::min<size_t>(4, rest_.size()));
        continue;
      }
      if (c == 'n') c = '\n';
      if (c == 'r') c = '\r';
      if (c == 't') c = '\t';
    }
    text += c;
  }
  return text;
}

std::string_view Cursor::Balanced() {
  size_t depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < rest_.size(); ++i) {
    const char c = rest_[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '(') ++depth;
    if (c == ')' && --depth == 0) {
      const std::string_view taken = rest_.substr(0, i + 1);
      rest_.remove_prefix(i + 1);
      return taken;
    }
  }
  Fail("a list in parentheses does not end");
}

template <typename T>
T ParseNumber(std::string_view text) {
  T value = {};
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    Fail("'" + std::string(text) + "' is no number that fits");
  return value;
}

template <>
bool ParseNumber<bool>(std::string_view text) {
  return ParseNumber<int>(text) != 0;
}

std::vector<int64_t> ParseNumbers(Cursor& cursor, std::string_view stops) {
  std::vector<int64_t> numbers;
  if (stops.find(cursor.peek()) != std::string_view::npos) return numbers;
  do {
    numbers.push_back(
        ParseNumber<int64_t>(cursor.Until(std::string(stops) + ",")));
  } while (cursor.Take(','));
  return numbers;
}

// The parts of one line: kind, time, key=value pairs and name.
struct Line {
  std::string kind;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  std::map<std::string, std::string, std::less<>> values;
  std::string name;
};

class Parser {
 public:
  explicit Parser(TraceBuilder* builder) : builder_(*builder) {}
  void Parse(std::string_view line_text);

  NameId Intern(std::string_view text) { return builder_.Intern(text); }
  RowId ThreadAt(std::string_view label);
  RowId ParseInputs(std::string_view text);
  RowId ParseStack(std::string_view text);

 private:
  template <typename Row>
  Row RowOf(Line& line);
  template <typename Row>
  void AddRow(Line& line, std::initializer_list<Kind> kinds);
  std::vector<Argument> ParseArguments(Cursor& cursor);
  void Watch(std::string_view name);

  TraceBuilder& builder_;
  std::map<uint64_t, RowId> threads_;
};

// Visitor that fills a row from a line and removes the values that it used.
template <typename Row>
struct FieldParser {
  Parser& parser;
  Line& line;
  Row& row;

  template <typename Use>
  void With(const char* key, Use use) {
    const auto found = line.values.find(key);
    if (found == line.values.end()) return;
    use(found->second);
    line.values.erase(found);
  }
  template <typename M>
  void Number(const char* key, M member) {
    using T = std::remove_reference_t<decltype(row.*member)>;
    With(key,
         [&](const std::string& text) { row.*member = ParseNumber<T>(text); });
  }
  template <typename M>
  void Numbers(const char* key, M member) {
    With(key, [&](const std::string& text) {
      Cursor cursor(text);
      const std::vector<int64_t> numbers = ParseNumbers(cursor, " ");
      if constexpr (requires { (row.*member).resize(1); }) {
        (row.*member).resize(numbers.size());
      } else if (numbers.size() != (row.*member).size()) {
        Fail(std::string(key) + " needs " +
             std::to_string((row.*member).size()) + " numbers");
      }
      for (size_t i = 0; i < numbers.size(); ++i) {
        using T = std::remove_reference_t<decltype((row.*member)[0])>;
        (row.*member)[i] = static_cast<T>(numbers[i]);
      }
    });
  }
  template <typename M>
  void Name(const char* key, M member) {
    if (std::string_view(key) == "name") {
      row.*member = parser.Intern(line.name);
      line.name.clear();
    }
    With(key,
         [&](const std::string& text) { row.*member = parser.Intern(text); });
  }
  template <typename M>
  void Text(const char* key, M member) {
    if (std::string_view(key) == "name") {
      row.*member = line.name;
      line.name.clear();
    }
    With(key, [&](const std::string& text) { row.*member = text; });
  }
  template <typename M>
  void Thread(const char* key, M member) {
    With(key,
         [&](const std::string& text) { row.*member = parser.ThreadAt(text); });
  }
  template <typename M>
  void Inputs(const char* key, M member) {
    With(key, [&](const std::string& text) {
      row.*member = parser.ParseInputs(text);
    });
  }
  template <typename M>
  void Stack(const char* key, M member) {
    With(key, [&](const std::string& text) {
      row.*member = parser.ParseStack(text);
    });
  }
  template <typename M>
  void Choice(const char* key, M member, Texts texts) {
    With(key, [&](const std::string& text) {
      for (size_t i = 0; i < texts.size(); ++i) {
        if (texts[i] != text) continue;
        row.*member =
            static_cast<std::remove_reference_t<decltype(row.*member)>>(i);
        return;
      }
      Fail("'" + text + "' is no " + key);
    });
  }
};

constexpr std::string_view kTimeless[] = {"run",  "watch",  "thread", "device",
                                          "loss", "loader", "stream"};

Line SplitLine(std::string_view text) {
  Cursor cursor(text);
  Line line;
  line.kind = cursor.Until(" ");
  cursor.SkipBlanks();
  const bool has_time =
      std::ranges::find(kTimeless, line.kind) == std::end(kTimeless);
  if (has_time) {
    std::string_view time = cursor.Until(" ");
    const size_t dots = time.find("..");
    line.begin_ns = ParseNumber<int64_t>(time.substr(0, dots));
    line.end_ns = dots == std::string_view::npos
                      ? line.begin_ns
                      : ParseNumber<int64_t>(time.substr(dots + 2));
  }
  while (true) {
    cursor.SkipBlanks();
    if (cursor.done()) return line;
    if (cursor.peek() == '"') {
      line.name = cursor.Quoted();
      return line;
    }
    const std::string_view word =
        cursor.rest().substr(0, cursor.rest().find(' '));
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      line.name = cursor.rest();
      while (line.name.ends_with(' ')) line.name.pop_back();
      return line;
    }
    const std::string key(cursor.Until("="));
    cursor.Expect('=');
    std::string value;
    if (cursor.peek() == '"') {
      value = cursor.Quoted();
    } else if (cursor.peek() == '(') {
      value = cursor.Balanced();
    } else {
      value = cursor.Until(" ");
    }
    if (!line.values.emplace(key, value).second) Fail(key + " stands twice");
  }
}

RowId Parser::ThreadAt(std::string_view label) {
  const auto number = ParseNumber<uint64_t>(label);
  const auto found = threads_.find(number);
  if (found != threads_.end()) return found->second;
  const RowId row = builder_.ThreadRow(1, static_cast<int64_t>(number) + 1);
  threads_.emplace(number, row);
  return row;
}

std::vector<Argument> Parser::ParseArguments(Cursor& cursor) {
  std::vector<Argument> arguments;
  cursor.Expect('(');
  if (cursor.Take(')')) return arguments;
  do {
    Argument argument;
    argument.type =
        Intern(cursor.peek() == '"' ? cursor.Quoted()
                                    : std::string(cursor.Until(",()[]{}=\"")));
    if (cursor.Take('[')) {
      argument.dims = ParseNumbers(cursor, "]");
      cursor.Expect(']');
    }
    if (cursor.Take('{')) {
      argument.strides = ParseNumbers(cursor, "}");
      cursor.Expect('}');
    }
    if (cursor.Take('=')) argument.concrete = Intern(cursor.Quoted());
    if (cursor.peek() == '(') argument.elements = ParseArguments(cursor);
    arguments.push_back(std::move(argument));
  } while (cursor.Take(','));
  cursor.Expect(')');
  return arguments;
}

RowId Parser::ParseInputs(std::string_view text) {
  Cursor cursor(text);
  return builder_.InternInputs({ParseArguments(cursor)});
}

RowId Parser::ParseStack(std::string_view text) {
  Cursor cursor(text);
  Stack stack;
  cursor.Expect('(');
  if (!cursor.Take(')')) {
    do {
      stack.frames.push_back(Intern(cursor.Quoted()));
    } while (cursor.Take(','));
    cursor.Expect(')');
  }
  return builder_.InternStack(std::move(stack));
}

template <typename Row>
Row Parser::RowOf(Line& line) {
  Row row;
  if constexpr (requires { row.time_ns; }) row.time_ns = line.begin_ns;
  if constexpr (requires { row.end_ns; }) {
    row.begin_ns = line.begin_ns;
    row.end_ns = line.end_ns;
  }
  VisitFields<Row>(FieldParser<Row>{*this, line, row});
  if (!line.values.empty())
    Fail("a " + line.kind + " has no '" + line.values.begin()->first + "'");
  if (!line.name.empty())
    Fail("a " + line.kind + " has no name: '" + line.name + "'");
  return row;
}

template <typename Row>
void Parser::AddRow(Line& line, std::initializer_list<Kind> kinds) {
  for (Kind kind : kinds) builder_.Watch(kind);
  builder_.Add(RowOf<Row>(line));
}

void Parser::Watch(std::string_view name) {
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    if (name == KindName(static_cast<Kind>(kind))) {
      builder_.Watch(static_cast<Kind>(kind));
      return;
    }
  }
  Fail("there is no kind '" + std::string(name) + "' to watch");
}

void Parser::Parse(std::string_view line_text) {
  if (line_text.starts_with("thread ")) {
    // The form is: thread K pid=.. tid=.. name
    Cursor cursor(line_text.substr(7));
    const auto label = ParseNumber<uint64_t>(cursor.Until(" "));
    Line line = SplitLine("thread " + std::string(cursor.rest()));
    const auto take = [&](const char* key, auto fallback) {
      const auto found = line.values.find(key);
      return found == line.values.end()
                 ? fallback
                 : ParseNumber<decltype(fallback)>(found->second);
    };
    const RowId row = builder_.ThreadRow(
        take("pid", int64_t{1}), take("tid", static_cast<int64_t>(label) + 1));
    builder_.thread(row).torch_thread = take("torch_thread", uint64_t{0});
    builder_.thread(row).name = Intern(line.name);
    threads_[label] = row;
    return;
  }
  Line line = SplitLine(line_text);
  const std::string kind = line.kind;
  if (kind == "run") {
    std::vector<Device> devices = std::move(builder_.run().devices);
    builder_.run() = RowOf<RunInfo>(line);
    builder_.run().devices = std::move(devices);
  } else if (kind == "watch") {
    Cursor cursor(line.name);
    while (!cursor.done()) {
      Watch(cursor.Until(" "));
      cursor.SkipBlanks();
    }
  } else if (kind == "device") {
    builder_.run().devices.push_back(RowOf<Device>(line));
  } else if (kind == "loss") {
    builder_.Add(RowOf<Loss>(line));
  } else if (kind == "loader") {
    AddRow<Loader>(line, {Kind::kLoader});
  } else if (kind == "settings") {
    AddRow<Settings>(line, {Kind::kSettings});
  } else if (kind == "host_usage") {
    AddRow<HostUsage>(line, {Kind::kHostUsage});
  } else if (kind == "step") {
    AddRow<Step>(line, {Kind::kStep});
  } else if (kind == "range") {
    AddRow<Range>(line, {Kind::kRange});
  } else if (kind == "op") {
    if (line.values.contains("inputs")) builder_.Watch(Kind::kOpShapes);
    if (line.values.contains("stack")) builder_.Watch(Kind::kOpStacks);
    AddRow<Op>(line, {Kind::kOp});
  } else if (kind == "communication") {
    AddRow<Communication>(line, {Kind::kCommunication});
  } else if (kind == "runtime_call") {
    AddRow<RuntimeCall>(line, {Kind::kRuntimeCall});
  } else if (kind == "kernel") {
    AddRow<Kernel>(line, {Kind::kKernel});
  } else if (kind == "copy") {
    AddRow<Copy>(line, {Kind::kCopy});
  } else if (kind == "memset") {
    AddRow<Memset>(line, {Kind::kMemset});
  } else if (kind == "sync") {
    AddRow<Sync>(line, {Kind::kSync});
  } else if (kind == "overhead") {
    AddRow<Overhead>(line, {Kind::kOverhead});
  } else if (kind == "python_frame") {
    AddRow<PythonFrame>(line, {Kind::kPythonFrame});
  } else if (kind == "allocation") {
    AddRow<Allocation>(line, {Kind::kMemory});
  } else if (kind == "stream") {
    builder_.Add(RowOf<Stream>(line));
  } else if (kind == "device_memory") {
    AddRow<DeviceMemory>(line, {Kind::kDeviceMemory});
  } else if (kind == "device_sample") {
    AddRow<DeviceSample>(line, {Kind::kDeviceSample});
  } else if (kind != "annotation") {
    Fail("there is no row of kind '" + kind + "'");
  }
}

}  // namespace

absl::StatusOr<Trace> ParseTraceText(std::string_view text,
                                     const TraceBuilder::Options& options) {
  TraceBuilder builder;
  Parser parser(&builder);
  // Parses threads first, because other lines refer to them by number.
  for (bool threads : {true, false}) {
    std::string_view rest = text;
    for (int number = 1; !rest.empty(); ++number) {
      const size_t end = rest.find('\n');
      std::string_view line = rest.substr(0, end);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      while (line.starts_with(' ')) line.remove_prefix(1);
      if (line.empty() || line.starts_with('#')) continue;
      if (line.starts_with("thread ") != threads) continue;
      try {
        parser.Parse(line);
      } catch (const std::invalid_argument& error) {
        return absl::InvalidArgumentError("line " + std::to_string(number) +
                                          ": " + error.what() +
                                          ", in: " + std::string(line));
      }
    }
  }
  return builder.Build(options);
}

Trace TraceFromText(std::string_view text) {
  absl::StatusOr<Trace> trace = ParseTraceText(text);
  if (trace.ok()) return *std::move(trace);
  ADD_FAILURE() << std::string(trace.status().message());
  return Trace();
}

}  // namespace stepscope
