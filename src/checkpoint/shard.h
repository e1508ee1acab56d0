#pragma once

// One file of a checkpoint: a safetensors file of slices, written once from memory, durable when write_shard returns.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/units.h"
#include "checkpoint/manifest.h"

namespace trireme::checkpoint {

// What a shard holds, in this order.
struct ShardSlice {
  int tensor = 0;  // index into the manifest's tensors
  plan::TensorBox box;
};

// What a rank writes, its tiles of all states, as states_of() counts tensors. The same on every rank that asks.
std::vector<ShardSlice> slices_of_rank(const model::ParameterTable& table, const plan::Layout& layout, int rank);

// What the one who writes the manifest needs to know of a shard.
struct ShardRecord {
  StoredFile file;
  std::vector<std::string> checksums;  // of the slices, in their order
};
std::string to_text(const ShardRecord& record);               // one line: travels between ranks
ShardRecord shard_record_from_text(const std::string& text);  // of to_text's; anything else: InternalError

// Of the whole file, header included.
Bytes shard_bytes(const std::vector<StoredState>& tensors, const std::vector<ShardSlice>& slices);

// Bytes of the i-th slice, row-major; asked for once each, in order; the span lives until the next call. Checksums are
// taken from it before it is handed to the system. Reserves the file's room first. A failed write, sync or close ends
// it with an Error; the caller removes what is there.
using SliceBytes = std::function<std::span<const std::byte>(std::size_t index)>;
ShardRecord write_shard(Env& env, const std::string& path, const std::vector<StoredState>& tensors,
                        const std::vector<ShardSlice>& slices, const SliceBytes& bytes_of);

// Puts shards together: fills manifest.files and the slices of manifest.tensors. slices[i] are of records[i].
void add_shards(Manifest& manifest, const std::vector<std::vector<ShardSlice>>& slices,
                const std::vector<ShardRecord>& records);

}  // namespace trireme::checkpoint
