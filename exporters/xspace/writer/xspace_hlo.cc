#include "xspace/writer/xspace_hlo.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "json/json_writer.h"
#include "xspace/writer/xspace_plane.h"
#include "xspace/writer/xspace_wire.h"

namespace stepscope {
namespace {

// Values of PrimitiveType in XLA's xla_data.proto.
constexpr int kFloat16 = 10;
constexpr int kFloat32 = 11;
constexpr int kBfloat16 = 16;

// The first tensor among the inputs of an op.
const Argument* FirstTensor(const Trace& trace, RowId op) {
  if (op == kNone || trace.ops()[op].inputs == kNone) return nullptr;
  for (const Argument& argument :
       trace.op_inputs()[trace.ops()[op].inputs].arguments)
    if (!argument.dims.empty()) return &argument;
  return nullptr;
}

// Returns a ShapeProto: 2 element_type, 3 dimensions, 5 layout
// { 1 minor_to_major }, 6 is_dynamic_dimension.
// Without recorded inputs the shape is float32[1], because an instruction must
// have some shape.
std::string Shape(const Trace& trace, RowId op) {
  int type = kFloat32;
  std::vector<int64_t> dims = {1};
  if (const Argument* tensor = FirstTensor(trace, op)) {
    dims = tensor->dims;
    const std::string_view name = trace.name(tensor->type);
    if (name == "c10::Half") type = kFloat16;
    if (name == "c10::BFloat16") type = kBfloat16;
  }
  std::string layout;
  // Row-major: the last dimension is the innermost one.
  for (size_t i = dims.size(); i-- > 0;)
    AppendIntField(1, static_cast<int64_t>(i), layout);
  std::string shape;
  AppendIntField(2, type, shape);
  for (int64_t dim : dims) AppendIntField(3, std::max<int64_t>(dim, 0), shape);
  AppendBytesField(5, layout, shape);
  for (size_t i = 0; i < dims.size(); ++i) AppendIntField(6, 0, shape);
  return shape;
}

// Appends the fields 3 source_file and 4 source_line, from the op's generated
// code or from "file(line): function" in its stack.
void AppendSource(const Trace& trace, RowId op, std::string& metadata) {
  if (op == kNone) return;
  if (const RowId code = trace.ops()[op].code; code != kNone) {
    const NameId file = trace.stacks()[code].frames[0];
    if (file != 0) AppendBytesField(3, ValidUtf8(trace.name(file)), metadata);
    return;
  }
  if (trace.ops()[op].stack == kNone) return;
  const Stack& stack = trace.stacks()[trace.ops()[op].stack];
  if (stack.frames.empty()) return;
  const std::string_view frame = trace.name(stack.frames[0]);
  const size_t colon = frame.rfind("): ");
  const size_t open = frame.substr(0, colon).rfind('(');
  if (colon == std::string_view::npos || open == std::string_view::npos) return;
  int32_t line = 0;
  std::from_chars(frame.data() + open + 1, frame.data() + colon, line);
  AppendBytesField(3, ValidUtf8(frame.substr(0, open)), metadata);
  AppendIntField(4, line, metadata);
}

// Returns a HloInstructionProto: 1 name, 2 opcode, 3 shape, 7 metadata
// { 1 op_type, 2 op_name }, 28 custom_call_target, 35 id.
// It is a custom-call without operands. XLA does not know what a custom-call
// computes, so its cost is what the stats of the kernels say.
std::string Instruction(const Trace& trace, std::string_view name, RowId op,
                        std::string_view scope, std::string_view type,
                        int64_t id) {
  std::string metadata;
  AppendBytesField(1, type, metadata);
  AppendBytesField(2, scope, metadata);
  AppendSource(trace, op, metadata);
  std::string instruction;
  AppendBytesField(1, name, instruction);
  AppendBytesField(2, "custom-call", instruction);
  AppendBytesField(3, Shape(trace, op), instruction);
  AppendBytesField(7, metadata, instruction);
  AppendBytesField(28, name, instruction);
  AppendIntField(35, id, instruction);
  return instruction;
}

// Returns HloProto { 1 hlo_module { 1 name, 2 entry_computation_name,
// 3 computations
// { 1 name, 2 instructions, 4 program_shape, 5 id, 6 root_id },
// 4 host_program_shape { 2 result }, 5 id, 6 entry_computation_id } }.
std::string HloProto(const XContext& context, const XProgram& program) {
  const Trace& trace = context.trace();
  std::string computation;
  AppendBytesField(1, "main", computation);
  int64_t id = 0;
  for (const XProgram::Instruction& row : program.instructions()) {
    const std::string text = context.TfOp(row.op);
    const size_t colon = text.find(':');
    AppendBytesField(2,
                     Instruction(trace, row.name, row.op, text.substr(0, colon),
                                 text.substr(colon + 1), ++id),
                     computation);
  }
  // XProf looks for a capitalised type within a scope of gradients.
  AppendBytesField(
      2,
      Instruction(trace, "training_step", kNone,
                  "stepscope/gradients/TrainingStep", "TrainingStep", ++id),
      computation);
  std::string program_shape;
  AppendBytesField(2, Shape(trace, kNone), program_shape);
  AppendBytesField(4, program_shape, computation);
  AppendIntField(5, 1, computation);
  AppendIntField(6, id, computation);
  std::string module;
  AppendBytesField(1, kXProgramName, module);
  AppendBytesField(2, "main", module);
  AppendBytesField(3, computation, module);
  AppendBytesField(4, program_shape, module);
  AppendIntField(5, static_cast<int64_t>(kXProgramId), module);
  AppendIntField(6, 1, module);
  std::string proto;
  AppendBytesField(1, module, proto);
  return proto;
}

std::string Stat(XStatId id, int value_field, std::string_view bytes) {
  std::string stat;
  AppendIntField(1, static_cast<int64_t>(id), stat);
  AppendBytesField(value_field, bytes, stat);
  return stat;
}

}  // namespace

bool WriteHloPlane(const XContext& context, const XProgram& program,
                   XSpaceFile& file) {
  // Field numbers of XEventMetadata and XStat (xplane.proto).
  constexpr int kStatsOfMetadata = 5;
  constexpr int kBytesValue = 6;
  std::string program_id;
  AppendIntField(1, static_cast<int64_t>(XStatId::kProgramId), program_id);
  AppendIntField(3, static_cast<int64_t>(kXProgramId), program_id);
  std::string metadata;
  AppendIntField(1, 1, metadata);
  AppendBytesField(2, "stepscope(1)", metadata);
  AppendBytesField(
      kStatsOfMetadata,
      Stat(XStatId::kHloProto, kBytesValue, HloProto(context, program)),
      metadata);
  AppendBytesField(kStatsOfMetadata, program_id, metadata);
  std::string entry;
  AppendIntField(1, 1, entry);
  AppendBytesField(2, metadata, entry);

  std::string plane;
  AppendIntField(1, 1, plane);
  AppendBytesField(2, "/host:metadata", plane);
  AppendBytesField(4, entry, plane);
  // Declares group_id in this plane, too: a single plane without it makes XProf
  // group the events itself.
  plane += XNames(context.trace()).MetadataBytes();
  if (!file.Take(plane.size())) return false;
  AppendBytesField(1, plane, file.block());
  return true;
}

}  // namespace stepscope
