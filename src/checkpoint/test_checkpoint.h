#pragma once

// Checkpoints that tests put together byte by byte, without the program's writers.

#include <functional>
#include <string>
#include <vector>

#include "base/fake_env.h"
#include "checkpoint/manifest.h"

namespace trireme::checkpoint {

using ValueOf = std::function<float(const StoredState&, std::int64_t row, std::int64_t column)>;

// Of a box, row-major.
std::vector<float> values_of(const StoredState& tensor, const plan::TensorBox& box, const ValueOf& value);

// Puts the files of a checkpoint into `directory`. Given: tensors, the boxes and files of their slices, the files'
// names. Fills in sizes and checksums, and returns the manifest that it stored. Slices lie in the manifest's order.
Manifest put_checkpoint(FakeEnv& env, const std::string& directory, Manifest manifest, const ValueOf& value);

// Two files, a matrix [4, 6] in three slices and a vector [5] in two, each of all kinds: 6 tensors, 15 slices.
Manifest handmade_manifest();
// A value that tells state, row and column.
float handmade_value(const StoredState& tensor, std::int64_t row, std::int64_t column);

}  // namespace trireme::checkpoint
