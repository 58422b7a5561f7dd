#include <stepscope/top.h>

#include <charconv>
#include <cstdio>

#include "command_words.h"
#include "complain.h"
#include "one_trace.h"
#include "output.h"
#include "trace_commands.h"

namespace stepscope {
namespace {

constexpr OptionName kTopOptions[] = {
    {"--format"},          {"--by"},
    {"--table"},           {"--limit"},
    {"--by-shape", false}, {"--output", true, "-o"}};
constexpr std::string_view kFormats[] = {"text", "csv", "json"};
constexpr std::string_view kOrders[] = {"self", "total", "calls", "gpu"};
constexpr std::string_view kTables[] = {"ops", "ranges", "calls", "kernels",
                                        "copies"};

constexpr const char* kTopUsage =
    R"(Usage: stepscope top [options] PATH

What took the time, by name: operators, ranges, runtime calls, kernels and
copies, with calls, total and self time. Self time leaves out the operators
inside; "GPU self" is the work an operator launched by itself. An operator
inside another of the same name counts no total. PATH is a trace file, or a
folder or log directory with one trace in it.

Options:
  --by self|total|calls|gpu  order of the rows (self)
  --table NAME               only ops, ranges, calls, kernels or copies
  --by-shape                 rows by input shapes (operators), grid and block
                             (kernels) and size (copies) too
  --limit N                  rows per table (20); 0: all
  --format text|csv|json     form (text); csv and json give microseconds, and
                             all rows unless --limit is given
  --output FILE, -o FILE     write it there instead of printing it
  --help, -h                 this text

Exit status: 0 done, 1 not readable or not writable, 2 wrong usage.
)";

struct TopArguments {
  size_t format = 0;
  std::string_view table;  // empty: all
  TopOptions options;
};

absl::StatusOr<TopArguments> ReadArguments(const CommandWords& words) {
  TopArguments arguments;
  const auto choose = [&](std::string_view option,
                          std::span<const std::string_view> choices,
                          auto use) -> absl::Status {
    if (!words.has(option)) return absl::OkStatus();
    const auto choice = ChoiceOf(option, words.value(option), choices);
    if (choice.ok()) use(*choice);
    return choice.status();
  };
  absl::Status status =
      choose("--format", kFormats, [&](size_t i) { arguments.format = i; });
  if (!status.ok()) return status;
  status = choose("--by", kOrders, [&](size_t i) {
    arguments.options.order = static_cast<TopOrder>(i);
  });
  if (!status.ok()) return status;
  status = choose("--table", kTables,
                  [&](size_t i) { arguments.table = kTables[i]; });
  if (!status.ok()) return status;
  arguments.options.by_shape = words.has("--by-shape");
  if (arguments.format != 0) arguments.options.limit = 0;
  if (const std::string limit = words.value("--limit"); !limit.empty()) {
    const char* end = limit.data() + limit.size();
    const auto result =
        std::from_chars(limit.data(), end, arguments.options.limit);
    if (result.ec != std::errc() || result.ptr != end) {
      return absl::InvalidArgumentError("--limit is a number from 0 on, not '" +
                                        limit + "'");
    }
  }
  if (words.paths.size() != 1) {
    return absl::InvalidArgumentError(
        "top needs one trace: stepscope top PATH");
  }
  return arguments;
}

}  // namespace

int TopCommand(std::span<const std::string> words) {
  const absl::StatusOr<CommandWords> parsed =
      ParseCommandWords(words, kTopOptions);
  if (!parsed.ok()) return UsageError(parsed.status());
  if (parsed->has("--help")) {
    std::fputs(kTopUsage, stdout);
    return 0;
  }
  const absl::StatusOr<TopArguments> arguments = ReadArguments(*parsed);
  if (!arguments.ok()) return UsageError(arguments.status());
  const absl::StatusOr<Trace> trace = ReadOneTrace(parsed->paths[0]);
  if (!trace.ok()) {
    Complain(trace.status());
    return 1;
  }
  for (const Loss& loss : trace->losses()) {
    if (loss.severity == Severity::kError)
      Complain(parsed->paths[0] + ": " + loss.detail);
  }
  std::vector<TopTable> tables = MakeTopTables(*trace, arguments->options);
  if (!arguments->table.empty()) {
    std::erase_if(tables, [&](const TopTable& table) {
      return table.name != arguments->table;
    });
  }
  const std::string output = parsed->value("--output");
  const std::string text =
      arguments->format == 1   ? ToCsv(tables)
      : arguments->format == 2 ? ToJson(tables)
      : tables.empty()
          ? "nothing of that kind is in this trace\n"
          : ToText(tables, output.empty() ? TerminalOfStdout().width
                                          : Terminal().width);
  const absl::Status written = WriteOut(text, output);
  if (written.ok()) return 0;
  Complain(written);
  return 1;
}

}  // namespace stepscope
