// NameTable: maps text to an id and stores each text once. It uses open
// addressing over the hash, so looking up a known name allocates nothing. Not
// thread-safe.
#pragma once

#include <stepscope/event.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

class NameTable {
 public:
  // `names` holds the texts in id order and must outlive the table; it already
  // holds names[0] == "".
  explicit NameTable(std::vector<std::string>* names);

  NameId Intern(std::string_view text);

 private:
  struct Slot {
    uint32_t hash = 0;
    NameId id = 0;  // 0: empty slot ("" itself is never looked up)
  };
  void Grow();

  std::vector<std::string>* names_;
  std::vector<Slot> slots_;
};

}  // namespace stepscope
