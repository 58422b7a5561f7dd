// Replaces decompress_zstd.cc in builds without libzstd.
#include "io/decompressor.h"

namespace stepscope {

const bool kHasZstd = false;

std::unique_ptr<Decompressor> MakeZstdDecompressor() { return nullptr; }

}  // namespace stepscope
