#include <stepscope/compiled_kernel.h>

#include <algorithm>
#include <array>
#include <utility>

#include "aten_op_names.h"

namespace stepscope {
namespace {

// How Inductor's kernel names start (torch/_inductor/codegen). Triton kernels
// have three letters for their category. "unk" is for kernels without a
// category, such as cooperative reductions and combined kernels.
struct Head {
  std::string_view text;
  std::string_view kind;
  bool hashed;  // ends with a hash of the source instead of a number
};
constexpr auto kHeads = std::to_array<Head>({
    {"triton_poi_fused", "pointwise", false},
    {"triton_red_fused", "reduction", false},
    {"triton_per_fused", "persistent reduction", false},
    {"triton_tem_fused", "template", false},
    {"triton_for_fused", "foreach", false},
    {"triton_spl_fused", "split scan", false},
    {"triton_unk_fused", "", false},
    {"cpp_fused", "C++", false},
    {"cuda_fused", "CUTLASS", false},  // until torch 2.9
    {"rocm_fused", "Composable Kernel", false},
    {"cutlass_fused", "CUTLASS", true},
    {"cutedsl_fused", "CuTe DSL", true},
    {"pallas_fused", "Pallas", true},
    {"nv_universal_gemm_fused", "CUTLASS", true},
});

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameChar(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         c == '_';
}
bool IsNumber(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, IsDigit);
}
bool IsHash(std::string_view text) {
  return text.size() == 8 && std::ranges::all_of(text, [](char c) {
           return IsDigit(c) || (c >= 'a' && c <= 'f');
         });
}

// True for the suffix that Triton 2 appends to a function's name: for each
// argument its number and how it was specialised ("0d1d2de3c").
bool IsSignature(std::string_view text) {
  if (!text.starts_with("0d") && !text.starts_with("0c")) return false;
  return std::ranges::all_of(text, [](char c) {
    return IsDigit(c) || c == 'c' || c == 'd' || c == 'e';
  });
}

// Removes the last part of `text`, from its last "_" on, if `wanted` accepts
// it. Returns true if it did.
template <typename Wanted>
bool DropLast(std::string_view& text, Wanted wanted) {
  const size_t at = text.rfind('_');
  if (at == std::string_view::npos || !wanted(text.substr(at + 1))) {
    return false;
  }
  text = text.substr(0, at);
  return true;
}

// A name without its number: its head, and the operators behind the head
// ("_add_relu").
struct Parts {
  const Head* head = nullptr;
  std::string_view body;
};

// Finds the first head in `name` and splits the name there. AOTInductor may put
// the model's name before the head, and C++ kernels "graph_3_". Returns no head
// if the name does not end with the head's number or hash.
Parts Split(std::string_view name) {
  Parts found;
  size_t first = std::string_view::npos;
  for (const Head& head : kHeads) {
    for (size_t at = name.find(head.text); at < first;
         at = name.find(head.text, at + 1)) {
      const size_t end = at + head.text.size();
      if ((at > 0 && name[at - 1] != '_') || end >= name.size() ||
          name[end] != '_') {
        continue;
      }
      first = at;
      found = {&head, name.substr(end)};
    }
  }
  if (found.head == nullptr) return {};
  DropLast(found.body, IsSignature);
  const bool is_whole = found.head->hashed ? DropLast(found.body, IsHash)
                                           : DropLast(found.body, IsNumber);
  return is_whole ? found : Parts();
}

// Cuts a text into operators so that the sum of their costs is smallest and,
// with equal costs, the number of operators. Dynamic programming over the ends
// of words.
class Reading {
 public:
  // `text` must not have the "_" before its first operator. With `is_sorted`,
  // an operator that does not sort after the one before it costs extra.
  Reading(std::string_view text, bool is_sorted)
      : text_(text), is_sorted_(is_sorted) {
    for (size_t at = 0; at <= text_.size(); ++at) {
      if (at == text_.size() || text_[at] == '_') ends_.push_back({at, {}});
    }
  }

  std::vector<std::string_view> Best() {
    for (size_t end = 0; end < ends_.size(); ++end) {
      if (end <= kMostParts) AddToken(0, nullptr, ends_[end]);
      const size_t first = end < kMostParts ? 0 : end - kMostParts;
      for (size_t start = first; start < end; ++start) {
        AddToken(ends_[start].at + 1, &ends_[start], ends_[end]);
      }
    }
    std::vector<std::string_view> ops;
    for (const Token* token = Cheapest(ends_.back()); token != nullptr;
         token = token->previous) {
      ops.push_back(token->text);
    }
    std::ranges::reverse(ops);
    return ops;
  }

 private:
  // The most words between "_" in one operator's name. A longer text must be
  // several operators.
  static constexpr size_t kMostParts = 16;
  static constexpr int kNever = 1 << 20;
  static constexpr int kDisorder = 1;

  struct Token {
    std::string_view text;
    int cost = kNever;  // of the best reading that ends with it
    int count = 0;      // operators of that reading
    const Token* previous = nullptr;
    auto Rank() const { return std::pair(cost, count); }
  };
  struct End {
    size_t at;
    std::vector<Token> tokens;  // complete before any token that follows them
  };

  // Returns 1 for an operator that PyTorch has, and otherwise 1 plus 2 per
  // word. An operator of another library therefore stays in one piece unless
  // parts of its name are PyTorch operators.
  static int CostOf(std::string_view token) {
    std::string_view base = token;
    // In-place operators end with "_".
    if (base.ends_with('_')) base.remove_suffix(1);
    if (IsAtenOp(token) || IsAtenOp(base)) return 1;
    if (token.ends_with('_')) return kNever;
    int words = 0;
    for (size_t i = 0; i < token.size(); ++i) {
      words += token[i] != '_' && (i == 0 || token[i - 1] == '_');
    }
    return words == 0 ? kNever : 2 * words + 1;
  }

  static const Token* Cheapest(const End& end) {
    const auto best = std::ranges::min_element(end.tokens, {}, &Token::Rank);
    return best == end.tokens.end() ? nullptr : &*best;
  }

  // Adds the operator from `begin` to `end`. `before` is the end of the
  // operator in front of it, or null for the first one.
  void AddToken(size_t begin, const End* before, End& end) {
    if (begin >= end.at) return;
    Token token = {.text = text_.substr(begin, end.at - begin)};
    const int own = CostOf(token.text);
    if (own >= kNever) return;
    if (before == nullptr) {
      token.cost = own;
      token.count = 1;
    } else {
      for (const Token& one : before->tokens) {
        const bool ascends = one.text < token.text;
        const int cost =
            one.cost + own + (is_sorted_ && !ascends ? kDisorder : 0);
        if (std::pair(cost, one.count + 1) < token.Rank()) {
          token.cost = cost;
          token.count = one.count + 1;
          token.previous = &one;
        }
      }
    }
    if (token.cost < kNever) end.tokens.push_back(token);
  }

  std::string_view text_;
  bool is_sorted_;
  std::vector<End> ends_;  // of words: a "_", or the end of the text
};

// Nodes of the graph have numbered names ("add_1"). Returns the parts of `body`
// between such numbers.
std::vector<std::string_view> BetweenNumbers(std::string_view body) {
  std::vector<std::string_view> stretches;
  size_t begin = 0, word = 0;
  for (size_t at = 0; at <= body.size(); ++at) {
    if (at < body.size() && body[at] != '_') continue;
    if (IsNumber(body.substr(word, at - word))) {
      if (word > begin + 1) {
        stretches.push_back(body.substr(begin, word - 1 - begin));
      }
      begin = at + 1;
    }
    word = at + 1;
  }
  if (begin < body.size()) stretches.push_back(body.substr(begin));
  return stretches;
}

}  // namespace

std::optional<CompiledKernel> ParseCompiledKernel(std::string_view name) {
  // AMD's tools append this suffix to the names of kernels.
  if (name.ends_with(".kd")) name.remove_suffix(3);
  if (!std::ranges::all_of(name, IsNameChar)) return std::nullopt;
  const Parts parts = Split(name);
  if (parts.head == nullptr) return std::nullopt;
  CompiledKernel kernel = {.kind = parts.head->kind, .ops = {}};
  if (parts.body.size() < 2) return kernel;
  const std::vector<std::string_view> stretches =
      BetweenNumbers(parts.body.substr(1));
  const bool is_sorted =
      stretches.size() == 1 && stretches[0].size() + 1 == parts.body.size();
  for (std::string_view stretch : stretches) {
    for (std::string_view op : Reading(stretch, is_sorted).Best()) {
      if (std::ranges::find(kernel.ops, op) == kernel.ops.end()) {
        kernel.ops.push_back(op);
      }
    }
  }
  return kernel;
}

std::string FusedOpsInWords(std::string_view name) {
  constexpr size_t kShown = 6;
  const std::optional<CompiledKernel> kernel = ParseCompiledKernel(name);
  if (!kernel.has_value()) return "";
  std::string text;
  for (size_t i = 0; i < kernel->ops.size(); ++i) {
    if (i == kShown && kernel->ops.size() > kShown + 1) {
      text += " + " + std::to_string(kernel->ops.size() - kShown) + " more";
      break;
    }
    if (i > 0) text += " + ";
    text += kernel->ops[i];
  }
  if (text.empty()) text = kernel->kind.empty() ? "kernel" : kernel->kind;
  return text + " (compiled)";
}

}  // namespace stepscope
