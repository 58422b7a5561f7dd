// Runs a fuzz target once on each file in the given folders. If the target has
// its own mutator, also runs it on a few mutations of each file.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* bytes,
                                                                size_t size,
                                                                size_t max_size,
                                                                unsigned seed);

// Replaces libFuzzer's own mutations: changes one byte.
extern "C" size_t LLVMFuzzerMutate(uint8_t* bytes, size_t size, size_t) {
  if (size > 0) bytes[size / 2] ^= 0x11;
  return size;
}

namespace {

constexpr unsigned kChanges = 12;
constexpr size_t kMaxBytes = size_t{1} << 15;

void RunChanges(const std::string& seed) {
  for (unsigned i = 0; i < kChanges; ++i) {
    std::vector<uint8_t> bytes(seed.begin(), seed.end());
    const size_t size = bytes.size();
    bytes.resize(std::max(size, kMaxBytes));
    const size_t changed =
        LLVMFuzzerCustomMutator(bytes.data(), size, bytes.size(), i);
    LLVMFuzzerTestOneInput(bytes.data(), changed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int files = 0;
  unsigned changes = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream in(entry.path(), std::ios::binary);
      const std::string bytes(std::istreambuf_iterator<char>(in), {});
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()),
                             bytes.size());
      if (LLVMFuzzerCustomMutator != nullptr) {
        RunChanges(bytes);
        changes += kChanges;
      }
      ++files;
    }
  }
  std::printf("%d seeds, %u changes of them\n", files, changes);
  return files > 0 ? 0 : 1;
}
