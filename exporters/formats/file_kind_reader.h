// KindOfFile: what a file that is no JSON looks like, in words for a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stepscope {

// Bytes from the begin of a file (decompressed) that are worth looking at.
inline constexpr size_t kKindBytes = 4096;

// True if `head` could be the begin of an XSpace protobuf.
bool LooksLikeXSpace(std::string_view head);

// Empty if `head` could be the begin of JSON.
std::string KindOfFile(std::string_view head);

}  // namespace stepscope
