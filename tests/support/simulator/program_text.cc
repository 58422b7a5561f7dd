#include "support/simulator/program_text.h"

#include <absl/status/status.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace stepscope::simulator {
namespace {

absl::Status Wrong(int line, const std::string& what) {
  return absl::InvalidArgumentError("line " + std::to_string(line) + ": " +
                                    what);
}

struct Token {
  std::string text = {};
  int line = 0;
  bool quoted = false;
  bool ends_statement = false;
};

bool IsMark(const Token& token, std::string_view mark) {
  return !token.quoted && !token.ends_statement && token.text == mark;
}

// Splits a text into words, braces and line ends. A "#" at the start of a word
// starts a comment; inside a word it is part of a name
// ("Optimizer.step#SGD.step").
std::vector<Token> Tokens(std::string_view text) {
  std::vector<Token> tokens;
  int line = 1;
  size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '\n' || c == ';') {
      tokens.push_back({.line = line, .ends_statement = true});
      line += c == '\n';
      ++at;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      ++at;
    } else if (c == '#') {
      while (at < text.size() && text[at] != '\n') ++at;
    } else if (c == '{' || c == '}') {
      tokens.push_back({.text = std::string(1, c), .line = line});
      ++at;
    } else if (c == '"') {
      const size_t end = std::min(text.find('"', at + 1), text.size());
      tokens.push_back({.text = std::string(text.substr(at + 1, end - at - 1)),
                        .line = line,
                        .quoted = true});
      at = end + 1;
    } else {
      size_t end = at;
      while (end < text.size() &&
             !std::isspace(static_cast<unsigned char>(text[end])) &&
             text[end] != ';' && text[end] != '{' && text[end] != '}') {
        ++end;
      }
      tokens.push_back(
          {.text = std::string(text.substr(at, end - at)), .line = line});
      at = end;
    }
  }
  tokens.push_back({.line = line, .ends_statement = true});
  return tokens;
}

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  absl::StatusOr<std::vector<Statement>> Statements(bool nested) {
    std::vector<Statement> list;
    while (at_ < tokens_.size()) {
      if (tokens_[at_].ends_statement) {
        ++at_;
      } else if (IsMark(tokens_[at_], "}")) {
        if (!nested) return Wrong(tokens_[at_].line, "a } too many");
        ++at_;
        return list;
      } else if (IsMark(tokens_[at_], "{")) {
        return Wrong(tokens_[at_].line, "a { without a statement");
      } else {
        absl::StatusOr<Statement> statement = One();
        if (!statement.ok()) return statement.status();
        list.push_back(*std::move(statement));
      }
    }
    if (nested) return Wrong(tokens_.back().line, "a } is missing");
    return list;
  }

 private:
  absl::StatusOr<Statement> One() {
    Statement statement{.verb = tokens_[at_].text, .line = tokens_[at_].line};
    ++at_;
    for (; at_ < tokens_.size() && !tokens_[at_].ends_statement; ++at_) {
      const Token& token = tokens_[at_];
      if (IsMark(token, "}")) break;
      if (IsMark(token, "{")) {
        ++at_;
        absl::StatusOr<std::vector<Statement>> body = Statements(true);
        if (!body.ok()) return body.status();
        statement.body = *std::move(body);
        statement.has_body = true;
        break;
      }
      const size_t equals = token.text.find('=');
      if (!token.quoted && equals != std::string::npos && equals > 0) {
        statement.options[token.text.substr(0, equals)] =
            token.text.substr(equals + 1);
      } else {
        statement.words.push_back(token.text);
      }
    }
    return statement;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace

bool Statement::Says(std::string_view word) const {
  return std::ranges::find(words, word) != words.end();
}

double Statement::Option(const std::string& name, double other) const {
  const auto found = options.find(name);
  if (found == options.end()) return other;
  const double value = ParseNumber(found->second);
  return std::isnan(value) ? other : value;
}

std::string Statement::Text(const std::string& name,
                            const std::string& other) const {
  const auto found = options.find(name);
  return found == options.end() ? other : found->second;
}

std::string Statement::Word(size_t index) const {
  return index < words.size() ? words[index] : std::string();
}

double Statement::Number(size_t index) const {
  const double value = ParseNumber(Word(index));
  return std::isnan(value) ? 0 : value;
}

absl::StatusOr<std::vector<Statement>> ParseProgram(std::string_view text) {
  return Parser(Tokens(text)).Statements(false);
}

double ParseNumber(std::string_view text) {
  const std::string copy(text);
  char* rest = nullptr;
  const double value = std::strtod(copy.c_str(), &rest);
  if (rest == copy.c_str()) return std::nan("");
  const std::string_view unit(rest);
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},     {"ns", 1},   {"us", 1e3},   {"ms", 1e6},
      {"s", 1e9},  {"B", 1},    {"KiB", 1024}, {"MiB", 1 << 20},
      {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},   {"GiB", 1 << 30}};
  for (const auto& [name, factor] : kUnits) {
    if (name == unit) return value * factor;
  }
  return std::nan("");
}

}  // namespace stepscope::simulator
