// Inserts numbers and fixes into a program's text before it is parsed.
#include <absl/status/status.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "support/simulator/program_text.h"

namespace stepscope::simulator {
namespace {

// Parses sums and products of numbers and names by recursive descent.
class Expression {
 public:
  Expression(std::string_view text, const std::map<std::string, double>& values)
      : text_(text), values_(values) {}
  double Value() {
    const double value = Sum();
    Skip();
    return at_ == text_.size() ? value : std::nan("");
  }

 private:
  void Skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool Take(char c) {
    Skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  double Sum() {
    double value = Product();
    while (true) {
      if (Take('+')) {
        value += Product();
      } else if (Take('-')) {
        value -= Product();
      } else {
        return value;
      }
    }
  }
  double Product() {
    double value = Atom();
    while (true) {
      if (Take('*')) {
        value *= Atom();
      } else if (Take('/')) {
        value /= Atom();
      } else {
        return value;
      }
    }
  }
  double Atom() {
    if (Take('(')) {
      const double value = Sum();
      return Take(')') ? value : std::nan("");
    }
    Skip();
    size_t end = at_;
    while (end < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[end])) ||
            text_[end] == '_' || text_[end] == '.')) {
      ++end;
    }
    const std::string word(text_.substr(at_, end - at_));
    at_ = end;
    const auto known = values_.find(word);
    if (known != values_.end()) return known->second;
    char* rest = nullptr;
    const double value = std::strtod(word.c_str(), &rest);
    return word.empty() || *rest != 0 ? std::nan("") : value;
  }

  std::string_view text_;
  const std::map<std::string, double>& values_;
  size_t at_ = 0;
};

}  // namespace

std::string WithFixes(std::string_view text, const std::vector<bool>& fixed) {
  std::string result;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line(text.substr(at, end - at));
    at = end + 1;
    if (line.starts_with('-') || line.starts_with('+')) {
      const bool wanted = line[0] == '+';
      size_t fault = 0;
      line[0] = ' ';
      if (line.size() > 1 && line[1] >= '1' && line[1] <= '9') {
        fault = static_cast<size_t>(line[1] - '1');
        line[1] = ' ';
      }
      const bool is_fixed = fault < fixed.size() && fixed[fault];
      if (is_fixed != wanted) line.clear();
    }
    result += line + '\n';
  }
  return result;
}

absl::StatusOr<std::string> Substitute(
    std::string_view text, const std::map<std::string, double>& values) {
  std::string result;
  int line = 1;
  for (size_t at = 0; at < text.size(); ++at) {
    line += text[at] == '\n';
    if (text[at] != '$') {
      result += text[at];
      continue;
    }
    size_t end = at + 1;
    if (end < text.size() && text[end] == '(') {
      int depth = 0;
      for (; end < text.size(); ++end) {
        depth += text[end] == '(';
        depth -= text[end] == ')';
        if (depth == 0) break;
      }
      ++end;
    } else {
      while (end < text.size() &&
             std::isalpha(static_cast<unsigned char>(text[end]))) {
        ++end;
      }
      // A unit may follow the name, so the longest known name is taken.
      while (end > at + 1 &&
             !values.contains(std::string(text.substr(at + 1, end - at - 1)))) {
        --end;
      }
    }
    const std::string_view expression = text.substr(at + 1, end - at - 1);
    const double value = Expression(expression, values).Value();
    if (std::isnan(value)) {
      return absl::InvalidArgumentError("line " + std::to_string(line) +
                                        ": cannot tell what $" +
                                        std::string(expression) + " is worth");
    }
    char number[40];
    std::snprintf(number, sizeof number, "%.9g", value);
    result += number;
    at = end - 1;
  }
  return result;
}

}  // namespace stepscope::simulator
