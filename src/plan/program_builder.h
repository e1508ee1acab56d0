#pragma once

// Expands chunk actions into layer programs, in the order in which they come.

#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "plan/program.h"

namespace trireme::plan {

class ProgramBuilder {
 public:
  ProgramBuilder(const model::ParameterTable& table, const Layout& layout, const Batch& batch, int rank);

  void add(const ChunkAction& action);
  void evaluate(int chunk);  // forwards of one micro-batch, nothing kept
  void end_of_step();
  RankProgram take() { return std::move(program_); }

 private:
  enum class Pass { kForward, kEvaluation, kBackwardInput };
  using ShardKey = std::pair<int, bool>;  // unit, tied head

  void forward(int chunk, int micro_batch, bool keep);
  void forward_unit(const Chunk& chunk, int unit, int micro_batch, bool keep);
  void backward(int chunk, int micro_batch, bool input, bool weight);
  void backward_input(const Chunk& chunk, int unit, int micro_batch);
  void backward_weight(const Chunk& chunk, int unit, int micro_batch);

  void emit(Op op, const Chunk& chunk, int unit, int micro_batch, bool tied_head = false);
  void groups(Op op, const Chunk& chunk, int unit, int micro_batch,
              std::initializer_list<model::ActivationGroup> wanted);
  void boundary(Op op, const Chunk& chunk, int micro_batch, bool backward);
  void tied_boundary(Op op);
  // Frees what the last send in a direction has left behind: a send has the time until then.
  void free_sent(bool backward);
  void send(Op op, const Chunk& chunk, int micro_batch, int peer_stage);
  void transfer(Op op, const Chunk& chunk, int micro_batch, int peer_stage);

  // ZeRO 3: gathers what the next units of a pass need, and releases what nobody needs any more (a tied embedding may
  // still be there for the embedding when the head asks for it).
  std::vector<ShardKey> needed(int unit, Pass pass) const;
  void gather_ahead(const Chunk& chunk, const std::vector<int>& order, std::size_t at, int micro_batch, Pass pass);
  void release(const Chunk& chunk, int unit, int micro_batch, Pass pass);

  void open_gradients(const Chunk& chunk, int unit, int micro_batch);
  void close_gradients(const Chunk& chunk, int unit, int micro_batch);
  bool has_partial(const ShardUnit& shard) const;
  void reduce_if_complete(const Chunk& chunk, int micro_batch, int shard);

  using Groups = std::array<bool, model::kActivationGroupCount>;
  const Groups& groups_of(int unit) const {
    return has_group_[static_cast<std::size_t>(model::flow_class(table_.config, unit))];
  }
  model::UnitKind kind(int unit) const { return model::unit_kind(table_.config, unit); }
  bool first_of_model(const Chunk& chunk) const { return chunk.first_unit == 0; }
  bool last_of_model(const Chunk& chunk) const { return chunk.end_unit == model::unit_count(table_.config); }
  const Chunk& chunk_of(int chunk) const { return program_.chunks[static_cast<std::size_t>(chunk)]; }

  const model::ParameterTable& table_;
  const Layout& layout_;
  int micro_batches_;
  int rank_;
  Coordinates at_;
  std::vector<Groups> has_group_;  // by model::flow_class
  std::size_t gathered_to_ = 0;    // of the pass at hand
  std::map<ShardKey, int> users_;
  std::array<std::optional<Instruction>, 2> sent_;  // forward, backward: frees that are due
  std::vector<int> complete_;                       // by bucket: shard units whose gradients are
  RankProgram program_;
};

}  // namespace trireme::plan
