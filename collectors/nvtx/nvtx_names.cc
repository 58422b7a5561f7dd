#include "nvtx_names.h"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <unordered_map>

namespace stepscope {
namespace {

// Handles point to entries of this type.
struct Entry {
  std::string text;
};

uint64_t HandleOf(const void* entry) {
  return reinterpret_cast<uint64_t>(entry);
}

bool IsAlive(int64_t tid) {
  const std::string path = "/proc/self/task/" + std::to_string(tid);
  return access(path.c_str(), F_OK) == 0;
}

}  // namespace

struct NvtxNames::State {
  std::mutex mutex;
  std::unordered_map<std::string, Entry*> domains;
  // Separate for each domain, because a program may register the same text in
  // several.
  std::unordered_map<const void*, std::unordered_map<std::string, Entry*>>
      strings;
  std::map<std::pair<uint64_t, uint32_t>, std::string> categories;
  std::map<int64_t, std::string> threads;
  std::map<std::pair<uint32_t, uint32_t>, std::string> streams;

  // Runs `change` with the lock held. If memory runs out, only the name is
  // lost.
  template <typename Change>
  void Try(Change change) noexcept {
    try {
      const std::lock_guard lock(mutex);
      change();
    } catch (...) {
    }
  }
};

namespace {

// Returns the entry of `text`, made on first use. Entries are never freed,
// because the program uses their addresses as handles.
const void* Find(std::unordered_map<std::string, Entry*>& entries,
                 std::string_view text) {
  const auto [it, is_new] = entries.try_emplace(std::string(text), nullptr);
  if (it->second == nullptr) it->second = new Entry{std::string(text)};
  return it->second;
}

}  // namespace

NvtxNames::NvtxNames() : state_(new State) {
  // The lock is held across a fork, so that a child finds it free.
  pthread_atfork([] { Get().state_->mutex.lock(); },
                 [] { Get().state_->mutex.unlock(); },
                 [] { Get().state_->mutex.unlock(); });
}

NvtxNames& NvtxNames::Get() {
  static NvtxNames* const names = new NvtxNames;
  return *names;
}

const void* NvtxNames::Domain(std::string_view name) noexcept {
  const void* handle = nullptr;
  state_->Try([&] { handle = Find(state_->domains, name); });
  return handle;
}

const void* NvtxNames::String(const void* domain,
                              std::string_view text) noexcept {
  const void* handle = nullptr;
  state_->Try([&] { handle = Find(state_->strings[domain], text); });
  return handle;
}

void NvtxNames::NameCategory(const void* domain, uint32_t category,
                             std::string_view name) noexcept {
  state_->Try([&] {
    state_->categories[{HandleOf(domain), category}] = std::string(name);
  });
}

void NvtxNames::NameThread(int64_t tid, std::string_view name) noexcept {
  state_->Try([&] { state_->threads[tid] = std::string(name); });
}

void NvtxNames::NameStream(uint32_t context, uint32_t stream,
                           std::string_view name) noexcept {
  state_->Try([&] { state_->streams[{context, stream}] = std::string(name); });
}

std::string_view NvtxNames::TextOf(const void* handle) {
  return static_cast<const Entry*>(handle)->text;
}

NvtxNameTable NvtxNames::Snapshot() {
  NvtxNameTable table;
  const std::lock_guard lock(state_->mutex);
  for (const auto& [name, entry] : state_->domains) {
    table.domains.emplace(HandleOf(entry), name);
  }
  for (const auto& [domain, strings] : state_->strings) {
    for (const auto& [text, entry] : strings) {
      table.strings.emplace(HandleOf(entry), text);
    }
  }
  table.categories = state_->categories;
  table.threads = state_->threads;
  for (const auto& [key, name] : state_->streams) {
    table.streams.push_back(
        {.context = key.first, .stream = key.second, .name = name});
  }
  // Forget threads that have ended, because the system reuses their ids.
  std::erase_if(state_->threads,
                [](const auto& thread) { return !IsAlive(thread.first); });
  return table;
}

}  // namespace stepscope
