// Are inputs uploaded in a wider type than necessary, or copied on the host
// without need?
// Sources: the ResNet-18 case study, step 4 (uint8 instead of float: four times
// fewer bytes); "17 tips", number 12 (as_tensor instead of tensor).
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/host_copies.h"
#include "evidence/program/converted_lists.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace input_types_rules {
namespace {

constexpr int64_t kImageBytes = 4 << 20;
constexpr int64_t kConvertedBytes = 1 << 20;
constexpr int64_t kSmallestSide = 16;
constexpr double kLoaderShare = 0.05;

std::string_view NameOf(const Trace& trace, RowId op) {
  return trace.name(trace.ops()[op].name);
}

// --- h2d-fp32-input

// True for [N, C, H, W], [N, H, W, C] and video with a time axis, with 1 to 4
// channels. Sets `channels` to their number.
bool IsImage(const std::vector<int64_t>& dims, int64_t& channels) {
  const auto fits = [&](size_t channel, size_t height, size_t width) {
    channels = dims[channel];
    return channels >= 1 && channels <= 4 && dims[height] >= kSmallestSide &&
           dims[width] >= kSmallestSide;
  };
  if (dims.size() == 4) return fits(1, 2, 3) || fits(3, 1, 2);
  return dims.size() == 5 && (fits(2, 3, 4) || fits(1, 3, 4) || fits(4, 2, 3));
}

// Ops that cast bytes to float or double on the host.
struct Casts {
  std::vector<RowId> ops;
  std::vector<std::vector<int64_t>> dims;

  explicit Casts(const Trace& trace, const std::vector<bool>& launches) {
    for (RowId row = 0; row < trace.ops().size(); ++row) {
      if (launches[row] || NameOf(trace, row) != "aten::copy_") continue;
      const TensorShape to = TensorArgument(trace, row, 0);
      const TensorShape from = TensorArgument(trace, row, 1);
      if (!to.known() || !from.known() ||
          trace.name(from.type) != "unsigned char" ||
          (trace.name(to.type) != "float" && trace.name(to.type) != "double")) {
        continue;
      }
      ops.push_back(row);
      dims.push_back(from.dims);
    }
  }
  // True if cast `i` converts the whole batch `image`, or one image of it. A
  // loader casts each sample before it stacks them; other programs cast the
  // whole batch.
  bool Match(size_t i, const std::vector<int64_t>& image) const {
    const std::vector<int64_t>& cast = dims[i];
    return cast.size() + 1 >= image.size() && cast.size() <= image.size() &&
           cast.size() >= 3 &&
           std::equal(cast.rbegin(), cast.rbegin() + 3, image.rbegin());
  }
};

Verdict CheckWideInput(const AnalysisContext& m) {
  const Trace& trace = m.trace;
  const Casts casts(trace, OpsThatLaunch(trace));
  std::vector<bool> used(casts.ops.size());
  std::vector<HostCopy> images;
  std::vector<double> factors;
  bool cast_seen = false;
  std::string where;
  for (const HostCopy& upload : FindHostCopies(m, Direction::kToDevice)) {
    const Copy& copy = trace.copies()[upload.copy];
    if (copy.op == kNone) continue;
    const TensorShape tensor = SourceOf(trace, copy.op);
    const int64_t width = !tensor.known()                       ? 0
                          : trace.name(tensor.type) == "float"  ? 4
                          : trace.name(tensor.type) == "double" ? 8
                                                                : 0;
    int64_t channels = 0;
    // A copy of another size does not send this tensor.
    if (width == 0 || !IsImage(tensor.dims, channels) ||
        BytesOf(trace, tensor) != copy.bytes) {
      continue;
    }
    bool cast = false;
    for (size_t i = 0; i < casts.ops.size(); ++i) {
      if (!casts.Match(i, tensor.dims)) continue;
      used[i] = cast = true;
    }
    // A tensor with one or two channels may be a spectrogram, unless it is cast
    // from bytes.
    if (channels < 3 && !cast) continue;
    cast_seen |= cast;
    images.push_back(upload);
    factors.push_back(1.0 / static_cast<double>(width));
    if (where.empty()) {
      where = std::string(trace.name(tensor.type)) + " [";
      for (size_t i = 0; i < tensor.dims.size(); ++i) {
        where += (i > 0 ? ", " : "") + std::to_string(tensor.dims[i]);
      }
      where += "]";
    }
  }
  const auto all = [](const HostCopy&) { return true; };
  // Images that no kernel can read are not a model's input.
  if (trace.kernels().empty() ||
      ShareOfStepsWith(m, images, all, kImageBytes) < kMostSteps) {
    return Clean();
  }
  const HostCopySums sums = SumHostCopies(m, images, all);
  Edit edit;
  for (size_t i = 0; i < images.size(); ++i) {
    edit.scales.push_back({{ActivityTable::kCopy, images[i].copy}, factors[i]});
  }
  // Casts delay the step only if it waits for batches.
  const bool loading = m.MeanNs(Cause::kData) >= kLoaderShare * m.step_ns();
  double cast_ns = 0;
  for (size_t i = 0; loading && i < casts.ops.size(); ++i) {
    const Op& op = trace.ops()[casts.ops[i]];
    if (!used[i] || op.thread != m.steps.thread) continue;
    edit.cuts.push_back({op.thread, {op.begin_ns, op.end_ns}, 0});
    if (InSteadyStep(m.steps, op.begin_ns)) {
      cast_ns += static_cast<double>(op.end_ns - op.begin_ns);
    }
  }
  cast_ns /= static_cast<double>(m.steps.steady.size());
  // Copies that run at the same time as kernels cost nothing, so making them
  // smaller gains nothing.
  const double bound = (1 - factors.front()) * sums.exposed_ns + cast_ns;
  if (bound * 1e-6 < MinReportableGainMs(m)) return Clean();

  Finding finding;
  finding.confidence = cast_seen ? Confidence::kStrong : Confidence::kHint;
  finding.evidence =
      "Images are copied to the device as floating point: " +
      Bytes(sums.bytes) + " per step. For " +
      Milliseconds(sums.exposed_ns * 1e-6) + " of the " +
      Milliseconds(m.stats.mean_ms) +
      " step, the copy runs and no kernel does. As bytes, the images would "
      "be " +
      Number(1 / factors.front()) + " times smaller." +
      (cast_seen ? " The host casts them from bytes first." : "");
  finding.where = where;
  finding.assumption = "the values are 8-bit pixels, normalised on the device";
  finding.fix_cpp =
      "collate uint8 tensors, copy them with .to(device), then convert with "
      ".to(torch::kFloat) and normalise on the device";
  finding.fix_python =
      "send uint8 (PILToTensor instead of ToTensor), then .float().div_(255) "
      "and normalise on the GPU";
  finding.wrong_if =
      "the input is real-valued, such as depth, audio or embeddings";
  return Fire(std::move(finding), std::move(edit), bound);
}

// --- host-copy-on-convert

// How a tensor is made with an avoidable copy.
enum class How : uint8_t {
  kSameType,  // torch.tensor(ndarray)
  kNarrowed,  // double to float
  kNumbers,   // torch.tensor() of a list of Python numbers
};

struct Conversion {
  Span span = {};
  int64_t bytes = 0;  // 0: unknown
  How how = How::kSameType;
};

// Finds copies on the host that as_tensor or a float32 source would avoid.
std::vector<Conversion> FindCopies(const AnalysisContext& m) {
  const Trace& trace = m.trace;
  std::vector<Conversion> found;
  if (m.steps.thread == kNone) return found;
  const std::vector<bool> launches = OpsThatLaunch(trace);
  TensorShape lifted;  // made by the last aten::lift_fresh
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const std::string_view name = NameOf(trace, row);
    if (name == "aten::lift_fresh") {
      lifted = TensorArgument(trace, row, 0);
    } else if (name == "aten::copy_" && !launches[row]) {
      const TensorShape to = TensorArgument(trace, row, 0);
      const TensorShape from = TensorArgument(trace, row, 1);
      if (!to.known() || !from.known()) continue;
      const bool same = to.type == from.type && from == lifted;
      const bool narrowed =
          trace.name(from.type) == "double" && trace.name(to.type) == "float";
      RowId op = row;
      bool converts = false;
      // aten::to calls aten::_to_copy, which calls aten::copy_. Take the
      // outermost of these, which the program called.
      while (trace.ops()[op].parent != kNone) {
        const std::string_view parent = NameOf(trace, trace.ops()[op].parent);
        if (parent != "aten::_to_copy" && parent != "aten::to" &&
            parent != "aten::lift_fresh") {
          break;
        }
        op = trace.ops()[op].parent;
        converts = true;
      }
      if (converts && (same || narrowed)) {
        const Op& outer = trace.ops()[op];
        found.push_back({{outer.begin_ns, outer.end_ns},
                         BytesOf(trace, to),
                         same ? How::kSameType : How::kNarrowed});
        lifted = {};
      }
    }
  }
  return found;
}

// Means per steady step.
struct Conversions {
  double ns = 0, bytes = 0;
  double ns_by_how[3] = {};
  Edit edit = {};
  std::vector<Example> examples = {};  // at most 3
};

Conversions SumUp(const AnalysisContext& m,
                  const std::vector<Conversion>& conversions) {
  Conversions sum;
  const auto steps = static_cast<double>(m.steps.steady.size());
  for (const Conversion& one : conversions) {
    sum.edit.cuts.push_back({m.steps.thread, one.span, 0});
    const size_t step = SteadyStepAt(m.steps, one.span.begin_ns);
    if (step == m.steps.windows.size()) continue;
    const auto ns = static_cast<double>(one.span.length());
    sum.ns += ns / steps;
    sum.ns_by_how[static_cast<size_t>(one.how)] += ns / steps;
    sum.bytes += static_cast<double>(one.bytes) / steps;
    if (sum.examples.size() < 3) {
      sum.examples.push_back(
          {m.steps.windows[step].number, one.span.begin_ns, one.span.end_ns,
           one.how == How::kNumbers ? "torch.tensor() of a list" : "aten::to"});
    }
  }
  return sum;
}

// Returns the kind of copies that takes most time, for the evidence.
How LongestKind(const Conversions& sum) {
  const auto* most = std::ranges::max_element(sum.ns_by_how);
  return static_cast<How>(most - std::begin(sum.ns_by_how));
}

void DescribeConversions(const AnalysisContext& m, const Conversions& sum,
                         Finding& finding) {
  const How how = LongestKind(sum);
  finding.evidence = "The training thread spends " +
                     Milliseconds(sum.ns * 1e-6) + " of the " +
                     Milliseconds(m.stats.mean_ms) + " step ";
  if (how == How::kNumbers) {
    finding.evidence +=
        "turning lists of Python numbers into tensors, number by number.";
    finding.assumption = "at best: the data is a tensor or an array already";
    finding.fix_cpp = "keep the data in tensors; slices of them copy nothing";
    finding.fix_python =
        "convert the lists once, before the loop, and take slices of the "
        "tensor; or keep them as NumPy arrays of float32 for "
        "torch.from_numpy()";
    finding.wrong_if = "the numbers are computed in Python in each step";
    return;
  }
  finding.evidence +=
      "copying " + Bytes(sum.bytes) + " to create tensors: " +
      (how == How::kSameType
           ? "torch.tensor() copies an array that as_tensor() would share."
           : "it converts them from double to float.");
  finding.assumption = "the array does not change while the tensor is in use";
  finding.fix_cpp =
      "torch::from_blob(data, sizes, deleter) on float32 data, with a deleter "
      "that owns the data";
  finding.fix_python =
      "torch.from_numpy() or torch.as_tensor() of a float32 array";
  finding.wrong_if =
      "the program writes to the array afterwards and needs the copy";
}

Verdict CheckConversion(const AnalysisContext& m) {
  std::vector<Conversion> conversions = FindCopies(m);
  if (SumUp(m, conversions).bytes < kConvertedBytes) conversions.clear();
  const std::vector<Span> lists = FindConvertedLists(m);
  for (const Span& span : lists) {
    conversions.push_back({span, 0, How::kNumbers});
  }
  if (lists.empty() && !m.trace.watched(Kind::kOpShapes)) {
    return Skip("no op-shapes events were recorded");
  }
  Conversions sum = SumUp(m, conversions);
  if (sum.ns * 1e-6 < MinReportableGainMs(m)) return Clean();

  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.examples = std::move(sum.examples);
  finding.where = finding.examples.front().what;
  DescribeConversions(m, sum, finding);
  // The replay of a CPU-only run cannot shorten single ops, so the gain is a
  // bound.
  if (!m.has_gpu) return FireBound(std::move(finding), sum.ns);
  return Fire(std::move(finding), std::move(sum.edit), sum.ns);
}

constexpr Rule kRules[] = {
    {.id = "h2d-fp32-input",
     .question = "Are images copied to the device as floating point?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kOp, Kind::kCopy, Kind::kOpShapes},
     .causes = {Cause::kCopy, Cause::kBlockingCopy},
     .check = &CheckWideInput,
     .reference =
         "The ResNet-18 case study, step 4: "
         "https://towardsdatascience.com/"
         "pytorch-model-performance-analysis-and-optimization-10c3c5822869",
     .detect = "float or double images or video (at most 4 channels) are "
               "uploaded, 4 MiB per step or more in two thirds of the steps, "
               "and smaller copies would gain 1 % of the step or more",
     .avoid =
         "the input has one or two channels and is not cast from bytes on the "
         "host (it may be a spectrogram), or kernels run during the copies",
     .fix_cpp =
         "send uint8, then .to(torch::kFloat) and normalise on the device",
     .fix_python = "send uint8, then .float().div_(255) on the GPU",
     .change = "images sent as bytes"},
    {.id = "host-copy-on-convert",
     .question = "Are arrays or lists copied on the host to create tensors?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kHostCode, Cause::kData},
     .check = &CheckConversion,
     .reference = "17 tips, number 12: as_tensor instead of tensor",
     .detect =
         "while it creates tensors, the training thread copies data of the "
         "same type, or from double to float, of 1 MiB or more, for 1 % of the "
         "step or more. Or torch.tensor() reads lists of numbers for 1 % of "
         "the step or more, which shows as more than 50 us without any op "
         "between aten::empty and the aten::to and aten::lift_fresh after it",
     .avoid = "the data is a small list of labels, as_tensor or from_numpy "
              "shares it without a copy, or a loader's range contains it",
     .fix_cpp = "torch::from_blob with a deleter that owns the data",
     .fix_python = "torch.from_numpy or torch.as_tensor of float32 data; "
                   "convert lists once, before the loop",
     .change = "tensors made without copying"}};

}  // namespace
}  // namespace input_types_rules

extern const std::span<const Rule> kInputTypes = input_types_rules::kRules;

}  // namespace stepscope
