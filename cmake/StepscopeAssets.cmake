# Turns text files into C++ constants, with the hashes that a Content-Security-Policy needs to name them.
#   cmake -DOUTPUT=page_assets.cc -DHEADER=report/page/page_assets.h -DSCRIPT=a.js|b.js -DSTYLE=c.css -P StepscopeAssets.cmake
# Several files are concatenated. The build runs this whenever one of the files changes.
cmake_minimum_required(VERSION 3.25)

# base64_of(HEX OUT): HEX is an even number of hexadecimal digits.
function(base64_of hex out)
  set(alphabet ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  string(LENGTH "${hex}" digits)
  set(text "")
  math(EXPR last "${digits} - 1")
  foreach(at RANGE 0 ${last} 6)
    string(SUBSTRING "${hex}000000" ${at} 6 three)
    math(EXPR bits "0x${three}")
    math(EXPR bytes "(${digits} - ${at}) / 2")
    foreach(place RANGE 0 3)
      if(place GREATER bytes)
        string(APPEND text "=")
      else()
        math(EXPR index "(${bits} >> (18 - 6 * ${place})) & 63")
        string(SUBSTRING "${alphabet}" ${index} 1 character)
        string(APPEND text "${character}")
      endif()
    endforeach()
  endforeach()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

# constant(NAME FILES OUT): sets OUT to the definitions of Page<NAME>() and Page<NAME>Hash().
function(constant name files out)
  string(REPLACE "|" ";" files "${files}")
  set(whole "")
  foreach(file IN LISTS files)
    file(READ "${file}" text)
    string(APPEND whole "${text}")
  endforeach()
  string(SHA256 digest "${whole}")
  string(HEX "${whole}" hex)
  base64_of("${digest}" hash)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REPEAT "." 80 line)  # 16 bytes
  string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
  set(${out} "
namespace {
constexpr unsigned char kPage${name}[] = {
${bytes}};
}  // namespace
std::string_view Page${name}() {
  return {reinterpret_cast<const char*>(kPage${name}), sizeof(kPage${name})};
}
std::string_view Page${name}Hash() { return \"'sha256-${hash}'\"; }
" PARENT_SCOPE)
endfunction()

constant(Script "${SCRIPT}" script)
constant(Style "${STYLE}" style)
file(WRITE "${OUTPUT}" "// Made by cmake/StepscopeAssets.cmake.
#include \"${HEADER}\"

namespace stepscope {
${script}${style}
}  // namespace stepscope
")
