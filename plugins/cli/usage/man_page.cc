#include "usage/man_page.h"

#include <stepscope/version.h>

#include <algorithm>
#include <string_view>

namespace stepscope {
namespace {

// Escapes a line of text: troff interprets backslashes, reads a dash as a
// hyphen, and takes a dot or a quote at the start of a line as a request.
std::string Troff(std::string_view text) {
  std::string plain;
  if (text.starts_with('.') || text.starts_with('\'')) plain = "\\&";
  for (const char c : text) {
    if (c == '\\') {
      plain += "\\e";
    } else {
      if (c == '-') plain += '\\';
      plain += c;
    }
  }
  return plain;
}

std::string Paragraphs(std::string_view text) {
  std::string page;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (!page.empty()) page += ".PP\n";
    page += Troff(text.substr(0, end)) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return page;
}

std::string Entry(std::string_view term, std::string_view meaning) {
  return ".TP\n.B " + Troff(term) + "\n" + Troff(meaning) + "\n";
}

std::string Section(const Command& command) {
  std::string page = ".SS " + Troff(CallForm(command)) + "\n";
  page += Paragraphs(command.description);
  if (command.terms != nullptr) {
    page += ".PP\n" + Troff(command.terms_title) + "\n";
    for (const Term& row : command.terms())
      page += Entry(row.term, row.meaning);
  }
  for (const Option& option : command.options)
    page += Entry(OptionForm(option), option.help);
  if (!command.exit_status.empty())
    page += ".PP\nExit status: " + Troff(command.exit_status) + "\n";
  return page;
}

}  // namespace

std::string ManPage(Commands commands) {
  std::string page = ".TH STEPSCOPE 1 \"\" \"stepscope " +
                     std::string(Version()) + "\" \"User Commands\"\n";
  page +=
      ".SH NAME\nstepscope \\- what slows a PyTorch training loop down\n"
      ".SH SYNOPSIS\n.B stepscope\n.I COMMAND\n[options] ...\n"
      ".SH DESCRIPTION\n"
      "stepscope finds what slows a PyTorch training loop down and predicts "
      "what each fix would gain.\n"
      "A path is a trace of torch.profiler or of stepscope, an XSpace, a log "
      "directory of stepscope, a folder with one trace per rank, or \\- for a "
      "trace on standard input.\n"
      ".SH COMMANDS\n";
  for (const Command* command : commands) page += Section(*command);
  page += ".SH OPTIONS\n";
  page += Entry("--help, -h", "print the commands");
  page += Entry("--version, -V", "print the version");
  page +=
      ".SH ENVIRONMENT\n" +
      Entry("NO_COLOR", "if it is not empty, no colours are printed") +
      ".SH EXIT STATUS\n"
      "0 where the command did its work, 1 where something could not be read "
      "or written, 2 where the command line was wrong, and 4 where a gate "
      "failed.\n";
  return page;
}

}  // namespace stepscope
