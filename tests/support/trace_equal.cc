#include "support/trace_equal.h"

#include <bit>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

#include "exporters/rows/row_fields.h"

namespace stepscope {
namespace {

class Comparison {
 public:
  Comparison(const Trace& a, const Trace& b) : a_(a), b_(b) {}

  testing::AssertionResult Result() const {
    if (difference_.empty()) return testing::AssertionSuccess();
    return testing::AssertionFailure() << difference_;
  }

  template <typename Row>
  void Table(const char* name, std::span<const Row> a, std::span<const Row> b) {
    if (a.size() != b.size()) {
      std::ostringstream text;
      text << name << ": " << a.size() << " rows, and " << b.size();
      Differ(text.str());
      return;
    }
    for (size_t row = 0; row < a.size(); ++row) {
      where_ = std::string(name) + "[" + std::to_string(row) + "]";
      Compare(a[row], b[row]);
    }
  }

  template <typename Row>
  void Compare(const Row& a, const Row& b) {
    Times(a, b);
    VisitFields<Row>(Fields<Row>{*this, a, b});
    Links(a, b);
  }

  template <typename T>
  void Value(const char* key, const T& a, const T& b) {
    if (Same(a, b)) return;
    std::ostringstream text;
    text << where_ << "." << key << ": " << testing::PrintToString(a)
         << ", and " << testing::PrintToString(b);
    Differ(text.str());
  }

  void Name(const char* key, NameId a, NameId b) {
    Value(key, a_.name(a), b_.name(b));
  }

  void Inputs(RowId a, RowId b) {
    if (a == kNone || b == kNone) return Value("inputs", a, b);
    List("inputs", a_.op_inputs()[a].arguments, b_.op_inputs()[b].arguments);
  }

  void StackOf(RowId a, RowId b) {
    if (a == kNone || b == kNone) return Value("stack", a, b);
    const auto& left = a_.stacks()[a].frames;
    const auto& right = b_.stacks()[b].frames;
    Value("stack frames", left.size(), right.size());
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i)
      Name("stack", left[i], right[i]);
  }

  void Threads() {
    Value("threads", a_.threads().size(), b_.threads().size());
    for (size_t i = 0; i < std::min(a_.threads().size(), b_.threads().size());
         ++i) {
      where_ = "threads[" + std::to_string(i) + "]";
      const Thread& a = a_.threads()[i];
      const Thread& b = b_.threads()[i];
      Value("pid", a.pid, b.pid);
      Value("tid", a.tid, b.tid);
      Value("torch_thread", a.torch_thread, b.torch_thread);
      Name("name", a.name, b.name);
    }
  }

  void Watched() {
    where_ = "watched";
    for (int i = 0; i < static_cast<int>(Kind::kCount); ++i) {
      const Kind kind = static_cast<Kind>(i);
      Value(KindName(kind), a_.watched(kind), b_.watched(kind));
    }
  }

 private:
  template <typename Row>
  struct Fields {
    Comparison& to;
    const Row& a;
    const Row& b;
    template <typename M>
    void Number(const char* key, M m) {
      to.Value(key, a.*m, b.*m);
    }
    template <typename M>
    void Numbers(const char* key, M m) {
      to.Value(key, a.*m, b.*m);
    }
    template <typename M>
    void Name(const char* key, M m) {
      to.Name(key, a.*m, b.*m);
    }
    template <typename M>
    void Thread(const char* key, M m) {
      to.Value(key, a.*m, b.*m);
    }
    template <typename M>
    void Inputs(const char*, M m) {
      to.Inputs(a.*m, b.*m);
    }
    template <typename M>
    void Stack(const char*, M m) {
      to.StackOf(a.*m, b.*m);
    }
    template <typename M>
    void Text(const char* key, M m) {
      to.Value(key, a.*m, b.*m);
    }
    template <typename M>
    void Choice(const char* key, M m, Texts) {
      to.Value(key, static_cast<int>(a.*m), static_cast<int>(b.*m));
    }
  };

  template <typename Row>
  void Times(const Row& a, const Row& b) {
    if constexpr (requires { a.begin_ns; }) {
      Value("begin_ns", a.begin_ns, b.begin_ns);
      Value("end_ns", a.end_ns, b.end_ns);
    } else if constexpr (requires { a.time_ns; }) {
      Value("time_ns", a.time_ns, b.time_ns);
    }
  }

  template <typename Row>
  void Links(const Row& a, const Row& b) {
    if constexpr (requires { a.parent; }) Value("parent", a.parent, b.parent);
    if constexpr (requires { a.forward; })
      Value("forward", a.forward, b.forward);
    if constexpr (requires { a.op; }) Value("op", a.op, b.op);
    if constexpr (requires { a.call; }) Value("call", a.call, b.call);
    if constexpr (requires { a.other; }) Value("other", a.other, b.other);
    if constexpr (requires { a.communication; })
      Value("communication", a.communication, b.communication);
  }

  void List(const char* key, const std::vector<Argument>& a,
            const std::vector<Argument>& b) {
    Value(key, a.size(), b.size());
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      Name("inputs.type", a[i].type, b[i].type);
      Name("inputs.concrete", a[i].concrete, b[i].concrete);
      Value("inputs.dims", a[i].dims, b[i].dims);
      Value("inputs.strides", a[i].strides, b[i].strides);
      List("inputs.elements", a[i].elements, b[i].elements);
    }
  }

  template <typename T>
  static bool Same(const T& a, const T& b) {
    if constexpr (std::is_same_v<T, float>) {
      return a == b || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
    } else {
      return a == b;
    }
  }

  void Differ(const std::string& text) {
    if (difference_.empty()) difference_ = text;
  }

  const Trace& a_;
  const Trace& b_;
  std::string where_;
  std::string difference_;
};

}  // namespace

testing::AssertionResult TraceEquals(const Trace& a, const Trace& b) {
  Comparison comparison(a, b);
  comparison.Threads();
  comparison.Watched();
  comparison.Table<Step>("steps", a.steps(), b.steps());
  comparison.Table<Range>("ranges", a.ranges(), b.ranges());
  comparison.Table<Op>("ops", a.ops(), b.ops());
  comparison.Table<RuntimeCall>("runtime_calls", a.runtime_calls(),
                                b.runtime_calls());
  comparison.Table<Kernel>("kernels", a.kernels(), b.kernels());
  comparison.Table<Copy>("copies", a.copies(), b.copies());
  comparison.Table<Memset>("memsets", a.memsets(), b.memsets());
  comparison.Table<Sync>("syncs", a.syncs(), b.syncs());
  comparison.Table<Overhead>("overheads", a.overheads(), b.overheads());
  comparison.Table<PythonFrame>("python_frames", a.python_frames(),
                                b.python_frames());
  comparison.Table<Allocation>("allocations", a.allocations(), b.allocations());
  comparison.Table<Communication>("communications", a.communications(),
                                  b.communications());
  comparison.Table<Settings>("settings", a.settings(), b.settings());
  comparison.Table<HostUsage>("host_usage", a.host_usage(), b.host_usage());
  comparison.Table<Loader>("loaders", a.loaders(), b.loaders());
  comparison.Table<Stream>("streams", a.streams(), b.streams());
  comparison.Table<DeviceMemory>("device_memory", a.device_memory(),
                                 b.device_memory());
  comparison.Table<DeviceSample>("device_samples", a.device_samples(),
                                 b.device_samples());
  comparison.Table<Loss>("losses", a.losses(), b.losses());
  comparison.Table<Device>("run.devices", a.run().devices, b.run().devices);
  comparison.Compare(a.run(), b.run());
  return comparison.Result();
}

}  // namespace stepscope
