#include "usage/usage_text.h"

#include <algorithm>
#include <vector>

#include "report/layout/text_page.h"

namespace stepscope {
namespace {

// The words of a table take at most this many columns, and at most a third of a
// line. Longer words get a line of their own.
constexpr size_t kMostTermColumns = 28;
constexpr size_t kIndent = 2;

constexpr std::string_view kAbout =
    "stepscope finds what slows a PyTorch training loop down and predicts what "
    "each fix would gain.";
constexpr std::string_view kAboutPaths =
    "PATH is a trace of torch.profiler or of stepscope (.json, .json.gz, "
    ".json.zst), an XSpace (.xplane.pb), a log directory of stepscope, a "
    "folder "
    "with one trace per rank, or - for a trace on standard input.";

std::string Blanks(size_t count) { return std::string(count, ' '); }

void AddTable(const std::vector<Term>& rows, int width, TextPage& page) {
  size_t longest = 0;
  for (const Term& row : rows) {
    const size_t columns = Columns(row.term);
    // One long term must not push the meanings of all others to the right.
    if (columns <= std::min<size_t>(kMostTermColumns, width / 3))
      longest = std::max(longest, columns);
  }
  const size_t text_at = kIndent + std::max<size_t>(longest, 8) + 2;
  for (const Term& row : rows) {
    const std::string term = Blanks(kIndent) + row.term;
    if (Columns(term) + 2 <= text_at) {
      page.Wrapped(PadRight(term, text_at), row.meaning);
    } else {
      page.Wrapped(Blanks(kIndent), row.term);
      page.Wrapped(Blanks(text_at), row.meaning);
    }
  }
}

void AddParagraphs(std::string_view text, TextPage& page) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    page.Wrapped("", text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

std::string ValuesOf(const Option& option) {
  std::string values;
  for (std::string_view choice : option.choices)
    (values += values.empty() ? "" : "|") += choice;
  return values.empty() ? std::string(option.value) : values;
}

}  // namespace

std::string OptionForm(const Option& option) {
  const std::string value = option.takes_value() ? " " + ValuesOf(option) : "";
  std::string form = std::string(option.name) + value;
  if (!option.short_name.empty())
    form += ", " + std::string(option.short_name) + value;
  return form;
}

std::string CallForm(const Command& command) {
  std::string form = "stepscope " + std::string(command.name);
  if (!command.options.empty()) form += " [options]";
  if (!command.arguments.empty()) form += " " + std::string(command.arguments);
  return form;
}

std::string UsageText(const Command& command, int width) {
  TextOptions options;
  options.width = width;
  TextPage page(options);
  page.Wrapped("Usage: ", CallForm(command));
  page.Line();
  AddParagraphs(command.description, page);
  if (command.terms != nullptr) {
    page.Line();
    page.Wrapped("", command.terms_title);
    AddTable(command.terms(), width, page);
  }
  page.Line();
  page.Line("Options:");
  std::vector<Term> rows;
  for (const Option& option : command.options)
    rows.push_back({OptionForm(option), std::string(option.help)});
  rows.push_back({OptionForm(kHelpOption), std::string(kHelpOption.help)});
  AddTable(rows, width, page);
  if (!command.exit_status.empty()) {
    page.Line();
    page.Wrapped("Exit status: ", command.exit_status);
  }
  return page.Take();
}

std::string ProgramUsageText(Commands commands, int width) {
  TextOptions options;
  options.width = width;
  TextPage page(options);
  page.Wrapped("", kAbout);
  page.Line();
  page.Line("Usage: stepscope COMMAND [options] ...");
  page.Line();
  std::vector<Term> rows, of_package;
  for (const Command* command : commands) {
    std::string term(command->name);
    if (!command->arguments.empty())
      term += " " + std::string(command->arguments);
    (command->run == nullptr ? of_package : rows)
        .push_back({term, std::string(command->summary)});
  }
  AddTable(rows, width, page);
  if (!of_package.empty()) {
    page.Line();
    page.Line("Only with the Python package:");
    AddTable(of_package, width, page);
  }
  page.Line();
  AddTable({{"--help, -h",
             "print this text; stepscope help COMMAND: the "
             "options of one"},
            {"--version, -V", "print the version"}},
           width, page);
  page.Line();
  page.Wrapped("", kAboutPaths);
  return page.Take();
}

std::string ShortUsage(const Command& command, int width) {
  TextOptions options;
  options.width = width;
  TextPage page(options);
  std::string text = "stepscope " + std::string(command.name);
  for (const Option& option : command.options) {
    text += " [" + std::string(option.name) +
            (option.takes_value() ? "=" + ValuesOf(option) : "") + "]";
  }
  if (!command.arguments.empty()) text += " " + std::string(command.arguments);
  page.Wrapped("usage: ", text);
  return page.Take();
}

}  // namespace stepscope
