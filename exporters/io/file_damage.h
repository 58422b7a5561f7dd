// How a Trace says that its file was damaged.
#pragma once

#include <stepscope/trace_builder.h>

#include <string>

#include "io/bytes_reader.h"

namespace stepscope {

struct FileDamage {
  // What is wrong with the bytes, as a kind and in words.
  BytesReader::Damage damage = BytesReader::Damage::kNone;
  std::string problem;
  // True if the content ends early, even if the bytes show no damage. The
  // message then says: the file is `cut_is`.
  bool is_cut = false;
  std::string cut_is = "truncated";
  // "the last event read ends at byte 12"; may be empty.
  std::string where;
};

// Adds one of the losses truncated-file, damaged-file (bytes in the middle make
// no sense) and wrong-checksum, all with severity kError. Adds nothing if the
// file is whole.
void AddFileDamage(const FileDamage& file, TraceBuilder* builder);

}  // namespace stepscope
