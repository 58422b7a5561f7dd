// What the program told NVTX once and means ever after: domains, registered
// strings, names of categories, threads and streams.
//
// They are told whenever, mostly before a window opens, so they are kept as
// soon as NVTX calls us. A handle given to the program is the address of an
// entry that is never freed, as the program may use it until the end. Any
// thread may call anything; a fork finds the lock free.
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

// A copy, for decoding. Handles are compared, never followed.
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

  // What a domain or string was registered with. REQUIRES: a handle from here.
  static std::string_view TextOf(const void* handle);

  // The table; then forgets threads that have ended.
  NvtxNameTable Snapshot();

 private:
  NvtxNames();
  struct State;
  State* const state_;
};

}  // namespace stepscope
