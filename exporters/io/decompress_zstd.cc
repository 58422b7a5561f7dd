#include <zstd.h>
#include <zstd_errors.h>

#include "io/decompressor.h"

namespace stepscope {
namespace {

class ZstdDecompressor : public Decompressor {
 public:
  ~ZstdDecompressor() override { ZSTD_freeDStream(stream_); }

  bool Open() { return stream_ != nullptr; }
  const char* name() const override { return "zstd"; }
  bool Begins(std::string_view in) const override {
    // Checks only the first byte, because the others may not be read yet.
    return in.starts_with('\x28');
  }
  void Restart() override { ZSTD_initDStream(stream_); }

  State Decompress(Step* step) override {
    ZSTD_inBuffer in = {step->in.data(), step->in.size(), 0};
    ZSTD_outBuffer out = {step->out, step->room, 0};
    const size_t result = ZSTD_decompressStream(stream_, &out, &in);
    step->in.remove_prefix(in.pos);
    step->out += out.pos;
    step->room -= out.pos;
    if (ZSTD_isError(result) != 0) {
      problem_ = ZSTD_getErrorName(result);
      return ZSTD_getErrorCode(result) == ZSTD_error_checksum_wrong
                 ? State::kWrongSum
                 : State::kDamaged;
    }
    return result == 0 ? State::kEnded : State::kInside;
  }
  std::string problem() const override { return problem_; }

 private:
  // By default its window is at most 128 MiB; a larger window is an error.
  ZSTD_DStream* stream_ = ZSTD_createDStream();
  std::string problem_;
};

}  // namespace

const bool kHasZstd = true;

std::unique_ptr<Decompressor> MakeZstdDecompressor() {
  auto decompressor = std::make_unique<ZstdDecompressor>();
  if (!decompressor->Open()) return nullptr;
  return decompressor;
}

}  // namespace stepscope
