// NvtxNames: things that a program registers with NVTX once and uses later:
// domains, strings, and names of categories, threads and streams.
//
// They are kept from the first NVTX call on, because programs may register them
// at any time, mostly before a window opens. A handle that the program gets is
// the address of an entry that is never freed, because the program may use it
// until it ends. Any thread may call any function. In a forked child the lock
// is free.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stepscope {

// A stream with CUPTI's numbers.
struct NvtxStreamName {
  uint32_t context = 0;
  uint32_t stream = 0;
  std::string name;
};

// A copy for the decoder, which compares handles but never dereferences them.
struct NvtxNameTable {
  std::map<uint64_t, std::string> domains;  // by handle
  std::map<uint64_t, std::string> strings;  // registered ones, by handle
  std::map<std::pair<uint64_t, uint32_t>, std::string>
      categories;                          // domain, id
  std::map<int64_t, std::string> threads;  // by tid
  std::vector<NvtxStreamName> streams;
};

class NvtxNames {
 public:
  // The only instance, because NVTX's callbacks have no user pointer. Never
  // destroyed.
  static NvtxNames& Get();

  // Returns the handle of the domain with this name, the same each time; null
  // if there is no memory.
  const void* Domain(std::string_view name) noexcept;
  // Returns the handle of a registered string.
  const void* String(const void* domain, std::string_view text) noexcept;
  // Each replaces an earlier name.
  void NameCategory(const void* domain, uint32_t category,
                    std::string_view name) noexcept;
  void NameThread(int64_t tid, std::string_view name) noexcept;
  void NameStream(uint32_t context, uint32_t stream,
                  std::string_view name) noexcept;

  // Returns the text of a domain or string. REQUIRES: `handle` came from here.
  static std::string_view TextOf(const void* handle);

  // Returns a copy of the table. Forgets the names of threads that have ended.
  NvtxNameTable Snapshot();

 private:
  NvtxNames();
  struct State;
  State* const state_;
};

}  // namespace stepscope
