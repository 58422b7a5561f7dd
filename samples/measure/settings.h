// Settings: the flags that one run of a sample program is given. Equal settings
// have equal text, whatever the order in which their flags were set.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace measure {

class Settings {
 public:
  Settings() = default;
  // "--workers 1 --batch=64 --bf16": flags parted by blanks. What follows a
  // flag and is no flag itself is its value; of a flag given twice the last
  // value counts.
  // Errors: InvalidArgument, if something is neither flag nor value.
  static absl::StatusOr<Settings> Parse(std::string_view text);
  // The same of words as a shell has parted them.
  static absl::StatusOr<Settings> Of(const std::vector<std::string>& words);

  // Both with the flag's dashes; an empty value for a flag that takes none.
  void Set(const std::string& flag, std::string value = "");
  void Drop(const std::string& flag) { values_.erase(flag); }
  bool Has(const std::string& flag) const { return values_.contains(flag); }
  // The value of `flag`, or `absent` if it is not set.
  std::string Get(const std::string& flag, std::string absent = "") const;
  // The same as a number; `absent` also for what is none.
  int Number(const std::string& flag, int absent) const;

  // These flags, and those of `over`, which win.
  Settings With(const Settings& over) const;

  // One argument a flag: {"--batch=64", "--bf16"}.
  std::vector<std::string> Arguments() const;
  // As a person would type it: "--batch 64 --bf16"; "(defaults)" if empty.
  std::string Text() const;

  const std::map<std::string, std::string>& values() const { return values_; }
  bool operator==(const Settings&) const = default;

 private:
  std::map<std::string, std::string> values_;
};

// What must change to get from `a` to `b`: "--threads 2, without --bf16".
std::string Difference(const Settings& a, const Settings& b);

}  // namespace measure
