#include <zlib.h>

#include <new>

#include "io/decompressor.h"

namespace stepscope {
namespace {

class GzipDecompressor : public Decompressor {
 public:
  ~GzipDecompressor() override { inflateEnd(&stream_); }

  bool Open() {
    constexpr int kWindow = 15 + 16;  // zlib: expect a gzip header
    return inflateInit2(&stream_, kWindow) == Z_OK;
  }
  const char* name() const override { return "gzip"; }
  bool Begins(std::string_view in) const override {
    // Checks only the first byte, because the second may not be read yet.
    return in.starts_with('\x1f');
  }
  void Restart() override { inflateReset(&stream_); }

  State Decompress(Step* step) override {
    stream_.next_in = reinterpret_cast<Bytef*>(
        const_cast<char*>(step->in.data()));  // zlib does not write to it
    stream_.avail_in = static_cast<unsigned>(step->in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(step->out);
    stream_.avail_out = static_cast<unsigned>(step->room);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    step->in.remove_prefix(step->in.size() - stream_.avail_in);
    step->out = reinterpret_cast<char*>(stream_.next_out);
    step->room = stream_.avail_out;
    if (result == Z_STREAM_END) return State::kEnded;
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    // zlib has no error code for a wrong checksum, only these two messages. It
    // gives them after it has decompressed all bytes.
    const std::string_view why = stream_.msg != nullptr ? stream_.msg : "";
    if (result == Z_DATA_ERROR &&
        (why == "incorrect data check" || why == "incorrect length check")) {
      return State::kWrongSum;
    }
    // Z_BUF_ERROR only says that this call made no progress; the caller brings
    // more input or room.
    return result == Z_OK || result == Z_BUF_ERROR ? State::kInside
                                                   : State::kDamaged;
  }
  std::string problem() const override {
    return stream_.msg != nullptr ? stream_.msg : "no reason given";
  }

 private:
  z_stream stream_ = {};
};

}  // namespace

std::unique_ptr<Decompressor> MakeGzipDecompressor() {
  auto decompressor = std::make_unique<GzipDecompressor>();
  if (!decompressor->Open()) return nullptr;
  return decompressor;
}

}  // namespace stepscope
