#include <stepscope/top.h>

#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "one_trace.h"
#include "output.h"

namespace stepscope {
namespace {

constexpr std::string_view kFormats[] = {"text", "csv", "json"};
// In the order of TopOrder, because the index of the choice is cast to it.
constexpr std::string_view kOrders[] = {"self", "total", "calls", "gpu"};
constexpr std::string_view kTables[] = {"ops", "ranges", "calls", "kernels",
                                        "copies"};
constexpr Option kOptions[] = {
    {.name = "--by",
     .value = "ORDER",
     .help = "sort by this (default: self)",
     .choices = kOrders},
    {.name = "--table",
     .value = "NAME",
     .help = "only this table",
     .choices = kTables},
    {.name = "--by-shape",
     .help = "separate rows by input shapes (operators), by grid and block "
             "(kernels) and by size (copies)"},
    {.name = "--limit",
     .value = "N",
     .help = "rows per table (default: 20; 0: all)"},
    {.name = "--format",
     .value = "FORMAT",
     .help = "output format (default: text). csv and json are in microseconds "
             "and list all rows unless --limit is given",
     .choices = kFormats},
    {.name = "--output",
     .short_name = "-o",
     .value = "FILE",
     .help = "write to FILE"}};

struct TopArguments {
  size_t format = 0;
  std::string_view table;  // empty: all
  TopOptions options;
};

absl::StatusOr<TopArguments> ReadArguments(const CommandWords& words) {
  TopArguments arguments;
  const auto format = ChoiceOf(words, "--format", kFormats);
  if (!format.ok()) return format.status();
  const auto order = ChoiceOf(words, "--by", kOrders);
  if (!order.ok()) return order.status();
  const auto table = ChoiceOf(words, "--table", kTables);
  if (!table.ok()) return table.status();
  TopOptions& options = arguments.options;
  // People read the first rows. Programs want all rows, for which TopOptions
  // has the limit 0.
  const auto limit = NumberOf(
      words, "--limit", *format == 0 ? static_cast<int32_t>(options.limit) : 0);
  if (!limit.ok()) return limit.status();
  arguments.format = *format;
  if (words.has("--table")) arguments.table = kTables[*table];
  options.order = static_cast<TopOrder>(*order);
  options.by_shape = words.has("--by-shape");
  options.limit = static_cast<size_t>(*limit);
  if (words.arguments.size() != 1) {
    return absl::InvalidArgumentError(
        "top needs one trace: stepscope top PATH");
  }
  return arguments;
}

int RunTop(const CommandWords& given) {
  const absl::StatusOr<TopArguments> arguments = ReadArguments(given);
  if (!arguments.ok()) return UsageError(arguments.status());
  const absl::StatusOr<Trace> trace = ReadOneTrace(given.arguments[0]);
  if (!trace.ok()) {
    PrintError(trace.status());
    return 1;
  }
  // Print only losses that make the sums wrong. `stepscope info` lists all
  // losses.
  for (const Loss& loss : trace->losses()) {
    if (loss.severity == Severity::kError)
      PrintError(given.arguments[0] + ": " + loss.detail);
  }
  if (arguments->options.order == TopOrder::kDevice &&
      !trace->has_device_work()) {
    PrintError(given.arguments[0] +
               ": no GPU activity was recorded: sorted by self time on the "
               "host, as by --by self");
  }
  std::vector<TopTable> tables = MakeTopTables(*trace, arguments->options);
  if (!arguments->table.empty()) {
    std::erase_if(tables, [&](const TopTable& table) {
      return table.name != arguments->table;
    });
  }
  // A file does not get the width of the terminal.
  const std::string output = given.value("--output");
  const std::string text =
      arguments->format == 1   ? ToCsv(tables)
      : arguments->format == 2 ? ToJson(tables)
      : tables.empty()
          ? "the trace has no events of this kind\n"
          : FitLines(ToText(tables, WidthFor(output, 0)), WidthFor(output, 0));
  return WriteResult(text, output);
}

}  // namespace

const Command kTopCommand = {
    .name = "top",
    .arguments = "PATH",
    .summary = "rank operators, kernels and copies by time",
    .description =
        "Ranks operators, ranges, runtime calls, kernels and copies by time, "
        "with their calls, total and self time. Self time excludes "
        "nested operators. \"GPU self\" is the GPU time that an operator "
        "launched itself. An operator inside another of the same name adds "
        "nothing to the total. PATH is a trace file, a folder or log directory "
        "with one trace, or - for standard input.",
    .options = kOptions,
    .exit_status =
        "0 done, 1 the trace could not be read or the output could not be "
        "written, 2 wrong usage.",
    .run = RunTop};

}  // namespace stepscope
