// How a Trace says that its file was damaged.
#pragma once

#include <stepscope/trace_builder.h>

#include <string>

#include "io/bytes_reader.h"

namespace stepscope {

struct FileDamage {
  // Of the bytes, and in words.
  BytesReader::Damage damage = BytesReader::Damage::kNone;
  std::string problem;
  // The content ends early, whatever the bytes say, because the file is ...
  bool is_cut = false;
  std::string cut_is = "truncated";
  // "the last event read ends at byte 12"; may be empty.
  std::string where;
};

// Adds one of the losses truncated-file, damaged-file (bytes in the middle make
// no sense) and wrong-checksum, all of severity kError; none where the file is
// whole.
void AddFileDamage(const FileDamage& file, TraceBuilder* builder);

}  // namespace stepscope
