// ByName: what the text of a name says, found out once per name. A recording
// has few names and many rows, so a test that compares texts becomes cheap
// enough for each row of a table.
#pragma once

#include <stepscope/trace.h>

#include <optional>
#include <string_view>
#include <vector>

namespace stepscope {

// Not thread-safe: names are looked at when they are first asked for.
template <typename Value>
class ByName {
 public:
  // The result of `of` must depend on the text alone. `trace` must outlive
  // this.
  ByName(const Trace& trace, Value (*of)(std::string_view))
      : trace_(trace), of_(of), known_(trace.name_count()) {}

  const Value& operator()(NameId name) {
    std::optional<Value>& known = known_[name];
    if (!known) known = of_(trace_.name(name));
    return *known;
  }

 private:
  const Trace& trace_;
  Value (*of_)(std::string_view);
  std::vector<std::optional<Value>> known_;
};

}  // namespace stepscope
