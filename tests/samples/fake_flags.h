// The flags of a program that stands in for the sample.
#pragma once

#include <cstdlib>
#include <map>
#include <string>

using Flags = std::map<std::string, std::string>;

// "--batch=64 --bf16": as measure::Settings::Arguments() gives them.
inline Flags ReadFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    flags[word.substr(0, equals)] =
        equals == word.npos ? "" : word.substr(equals + 1);
  }
  return flags;
}

inline int Number(const Flags& flags, const std::string& flag, int absent) {
  const auto at = flags.find(flag);
  return at == flags.end() ? absent : std::atoi(at->second.c_str());
}
