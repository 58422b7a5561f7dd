// PointerNames: maps the name pointer of a record to an interned, demangled
// name. CUPTI keeps one text per function, so the pointer identifies the name.
#pragma once

#include <stepscope/event.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

// Demangles a C++ name. Returns any other text unchanged.
std::string Demangle(std::string_view mangled);

// Uses open addressing, for some hundred names and millions of look-ups.
class PointerNames {
 public:
  PointerNames() : slots_(1024) {}

  // Returns the name of `pointer`. Calls `make` for a new pointer.
  template <typename Make>
  NameId Of(const void* pointer, Make make) {
    for (size_t at = Hash(pointer);; ++at) {
      Slot& slot = slots_[at & (slots_.size() - 1)];
      if (slot.pointer == pointer && slot.used) return slot.name;
      if (!slot.used) {
        const NameId name = make();
        Insert(pointer, name);
        return name;
      }
    }
  }

 private:
  struct Slot {
    const void* pointer = nullptr;
    NameId name = 0;
    bool used = false;
  };
  static size_t Hash(const void* pointer) {
    const auto bits = reinterpret_cast<size_t>(pointer);
    return (bits * 0x9E3779B97F4A7C15u) >> 32;
  }
  void Insert(const void* pointer, NameId name) {
    if (2 * (count_ + 1) > slots_.size()) {
      std::vector<Slot> old(2 * slots_.size());
      old.swap(slots_);
      for (const Slot& slot : old) {
        if (slot.used) Put(slot);
      }
    }
    Put({pointer, name, true});
    ++count_;
  }
  void Put(const Slot& slot) {
    size_t at = Hash(slot.pointer);
    while (slots_[at & (slots_.size() - 1)].used) ++at;
    slots_[at & (slots_.size() - 1)] = slot;
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t count_ = 0;
};

}  // namespace stepscope
