// Decompressor: decompresses a stream piece by piece in bounded memory. There
// is one per format; BytesReader chooses by the first bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace stepscope {

class Decompressor {
 public:
  enum class State {
    kInside,    // in the middle of a member; wants more input or more room
    kEnded,     // the member has ended; another may follow
    kDamaged,   // see problem()
    kWrongSum,  // a member has ended, but its checksum does not match
  };
  // The input and the output of one call, which moves both forward.
  struct Step {
    std::string_view in;
    char* out = nullptr;
    size_t room = 0;
  };

  virtual ~Decompressor() = default;
  // "gzip", "zstd"
  virtual const char* name() const = 0;
  // True if a member begins at `in`: a file may be several members in a row.
  virtual bool Begins(std::string_view in) const = 0;
  // Call before each member.
  virtual void Restart() = 0;
  virtual State Decompress(Step* step) = 0;
  // Why the stream is damaged, in the library's words.
  virtual std::string problem() const = 0;
};

// Both return nullptr if memory is short.
std::unique_ptr<Decompressor> MakeGzipDecompressor();
// Also nullptr in a build without libzstd, where kHasZstd is false.
std::unique_ptr<Decompressor> MakeZstdDecompressor();
extern const bool kHasZstd;

}  // namespace stepscope
