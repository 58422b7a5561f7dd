// NvtxNames: what a program registers with NVTX once and uses later: domains,
// strings, and names of categories, threads and streams.
//
// Programs do that at any time, mostly before a window opens, so it is kept
// from the first NVTX call on. The handle that the program gets is the address
// of an entry that is never freed, because the program may use it until it
// ends. Any thread may call anything; the lock is free in a forked child.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stepscope {

// A stream as CUPTI numbers it.
struct NvtxStreamName {
  uint32_t context = 0;
  uint32_t stream = 0;
  std::string name;
};

// A copy for the decoder, which compares handles and never dereferences them.
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
  // NVTX's callbacks carry no pointer of ours, so there is one; never
  // destroyed.
  static NvtxNames& Get();

  // The handle of the domain of this name, the same each time; null if there is
  // no memory.
  const void* Domain(std::string_view name) noexcept;
  // The handle of a registered string.
  const void* String(const void* domain, std::string_view text) noexcept;
  // Names replace earlier ones.
  void NameCategory(const void* domain, uint32_t category,
                    std::string_view name) noexcept;
  void NameThread(int64_t tid, std::string_view name) noexcept;
  void NameStream(uint32_t context, uint32_t stream,
                  std::string_view name) noexcept;

  // The text of a domain or string. REQUIRES: a handle from here.
  static std::string_view TextOf(const void* handle);

  // A copy of the table. Forgets the names of threads that have ended.
  NvtxNameTable Snapshot();

 private:
  NvtxNames();
  struct State;
  State* const state_;
};

}  // namespace stepscope
