#include "xspace_hlo.h"

#include <string>

#include "xspace_plane.h"
#include "xspace_wire.h"

namespace stepscope {
namespace {

constexpr int64_t kProgramId = 1;
constexpr int kFloat32 = 11;

// ShapeProto: 2 element_type, 3 dimensions, 5 layout { 1 minor_to_major },
// 6 is_dynamic_dimension.
std::string Shape() {
  std::string layout;
  AppendIntField(1, 0, layout);
  std::string shape;
  AppendIntField(2, kFloat32, shape);
  AppendIntField(3, 1, shape);
  AppendBytesField(5, layout, shape);
  AppendIntField(6, 0, shape);
  return shape;
}

// HloInstructionProto: 1 name, 2 opcode, 3 shape, 7 metadata { 1 op_type,
// 2 op_name }, 28 custom_call_target, 35 id.
std::string Instruction() {
  std::string metadata;
  AppendBytesField(1, "TrainingStep", metadata);
  AppendBytesField(2, "stepscope/gradients/TrainingStep", metadata);
  std::string instruction;
  AppendBytesField(1, "training_step", instruction);
  AppendBytesField(2, "custom-call", instruction);
  AppendBytesField(3, Shape(), instruction);
  AppendBytesField(7, metadata, instruction);
  AppendBytesField(28, "training_step", instruction);
  AppendIntField(35, 1, instruction);
  return instruction;
}

// HloProto { 1 hlo_module { 1 name, 2 entry_computation_name, 3 computations
// { 1 name, 2 instructions, 4 program_shape, 5 id, 6 root_id },
// 4 host_program_shape { 2 result }, 5 id, 6 entry_computation_id } }.
std::string HloProto() {
  std::string program_shape;
  AppendBytesField(2, Shape(), program_shape);
  std::string computation;
  AppendBytesField(1, "main", computation);
  AppendBytesField(2, Instruction(), computation);
  AppendBytesField(4, program_shape, computation);
  AppendIntField(5, 1, computation);
  AppendIntField(6, 1, computation);
  std::string module;
  AppendBytesField(1, "stepscope", module);
  AppendBytesField(2, "main", module);
  AppendBytesField(3, computation, module);
  AppendBytesField(4, program_shape, module);
  AppendIntField(5, kProgramId, module);
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

void WriteHloPlane(const Trace& trace, FileSink& sink) {
  constexpr int kStatsOfMetadata = 5;
  constexpr int kBytesValue = 6;
  std::string program_id;
  AppendIntField(1, static_cast<int64_t>(XStatId::kProgramId), program_id);
  AppendIntField(3, kProgramId, program_id);
  std::string metadata;
  AppendIntField(1, 1, metadata);
  AppendBytesField(2, "stepscope(1)", metadata);
  AppendBytesField(kStatsOfMetadata,
                   Stat(XStatId::kHloProto, kBytesValue, HloProto()), metadata);
  AppendBytesField(kStatsOfMetadata, program_id, metadata);
  std::string entry;
  AppendIntField(1, 1, entry);
  AppendBytesField(2, metadata, entry);

  std::string plane;
  AppendIntField(1, 1, plane);
  AppendBytesField(2, "/host:metadata", plane);
  AppendBytesField(4, entry, plane);
  plane += XNames(trace).MetadataBytes();
  AppendBytesField(1, plane, sink.block());
}

}  // namespace stepscope
