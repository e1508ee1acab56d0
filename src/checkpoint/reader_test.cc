#include "checkpoint/reader.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checksum.h"
#include "checkpoint/shard.h"
#include "checkpoint/store.h"
#include "checkpoint/test_checkpoint.h"

namespace trireme::checkpoint {
namespace {

using plan::StateKind;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kDirectory = "run/checkpoints/step-00000040";

std::string path_of(const std::string& name) { return join_path(kDirectory, name); }
std::string part(int index) { return path_of(fmt::format("part-{:05}.safetensors", index)); }

struct Handmade {
  FakeEnv env;
  Manifest manifest = put_checkpoint(env, kDirectory, handmade_manifest(), handmade_value);

  Reader open() { return Reader::open(env, kDirectory).or_throw(); }
  std::string refusal(ExitCode code = ExitCode::kStorage) {
    const Result<Reader> reader = Reader::open(env, kDirectory);
    if (reader.ok()) return "accepted";
    EXPECT_EQ(reader.failure().code, code);
    return reader.failure().sentence();
  }
  std::vector<std::string> damages() { return damages_of(env, kDirectory); }
  // Stores a changed manifest under a fresh checksum.
  void put_manifest() { env.put_file(path_of(kManifestFile), to_text(manifest)); }
};

// All values through read(), or the Error's message.
std::string read_everything(const Reader& reader) {
  std::vector<std::byte> buffer(static_cast<std::size_t>(reader.largest_slice().count));
  try {
    for (const StoredState& tensor : reader.manifest().tensors) {
      for (const Slice& slice : tensor.slices) reader.read(tensor, slice, buffer);
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kStorage);
    return error.what();
  }
  return "";
}

TEST(ReaderTest, GivesEverySliceAndEveryBox) {
  Handmade checkpoint;
  const Reader reader = checkpoint.open();
  EXPECT_EQ(reader.directory(), kDirectory);
  EXPECT_EQ(reader.manifest(), checkpoint.manifest);
  EXPECT_EQ(reader.largest_slice(), Bytes{12 * 4});
  std::vector<std::byte> buffer(static_cast<std::size_t>(reader.largest_slice().count));
  for (const StoredState& tensor : reader.manifest().tensors) {
    for (const Slice& slice : tensor.slices) {
      const std::span<const float> values = reader.read(tensor, slice, buffer);
      ASSERT_EQ(static_cast<std::int64_t>(values.size()), slice.box.elements());
      EXPECT_EQ(values.front(), handmade_value(tensor, slice.box.rows.begin, slice.box.columns.begin));
      EXPECT_EQ(values.back(), handmade_value(tensor, slice.box.rows.end - 1, slice.box.columns.end - 1));
    }
    for (std::int64_t r0 = 0; r0 <= tensor.rows(); ++r0) {
      for (std::int64_t r1 = r0; r1 <= tensor.rows(); ++r1) {
        for (std::int64_t c0 = 0; c0 < tensor.columns(); ++c0) {
          for (std::int64_t c1 = c0 + 1; c1 <= tensor.columns(); ++c1) {
            const plan::TensorBox box{{r0, r1}, {c0, c1}};
            std::vector<float> values(static_cast<std::size_t>(box.elements()));
            reader.read_box(tensor, box, buffer, values);
            ASSERT_EQ(values, values_of(tensor, box, handmade_value));
          }
        }
      }
    }
  }
  EXPECT_THAT(checkpoint.damages(), IsEmpty());
}

TEST(ReaderTest, ReadsWhatTheWritersWrite) {
  FakeEnv env;
  Store store(env, "run/checkpoints");
  Manifest manifest = handmade_manifest();
  std::vector<std::vector<ShardSlice>> slices(manifest.files.size());
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    for (const Slice& slice : manifest.tensors[i].slices) {
      slices[static_cast<std::size_t>(slice.file)].push_back({static_cast<int>(i), slice.box});
    }
    manifest.tensors[i].slices.clear();
  }
  manifest.files.clear();
  store.begin(40);
  std::vector<ShardRecord> records;
  for (int file = 0; file < 2; ++file) {
    const std::vector<ShardSlice>& of_file = slices[static_cast<std::size_t>(file)];
    std::vector<float> values;
    records.push_back(write_shard(
        env, join_path(store.partial_path_of(40), shard_name(file)), manifest.tensors, of_file, [&](std::size_t index) {
          const ShardSlice& slice = of_file[index];
          values = values_of(manifest.tensors[static_cast<std::size_t>(slice.tensor)], slice.box, handmade_value);
          return std::as_bytes(std::span<const float>(values));
        }));
  }
  add_shards(manifest, slices, records);
  store.commit(40, manifest);
  EXPECT_THAT(damages_of(env, kDirectory), IsEmpty());
  const Reader reader = Reader::open(env, kDirectory).or_throw();
  EXPECT_EQ(reader.manifest(), manifest);
  std::vector<std::byte> buffer(static_cast<std::size_t>(reader.largest_slice().count));
  for (const StoredState& tensor : reader.manifest().tensors) {
    const plan::TensorBox whole{{0, tensor.rows()}, {0, tensor.columns()}};
    std::vector<float> values(static_cast<std::size_t>(whole.elements()));
    reader.read_box(tensor, whole, buffer, values);
    EXPECT_EQ(values, values_of(tensor, whole, handmade_value));
  }
}

TEST(ReaderTest, BuffersAndBoxesAreChecked) {
  Handmade checkpoint;
  const Reader reader = checkpoint.open();
  const StoredState& tensor = reader.manifest().tensors[0];
  std::vector<std::byte> buffer(48);
  std::vector<float> out(6);
  EXPECT_THROW(reader.read(tensor, tensor.slices[1], std::span(buffer).first(44)), InternalError);
  EXPECT_THROW(reader.read(tensor, tensor.slices[0], std::span(buffer).subspan(1)), InternalError);
  EXPECT_THROW(reader.read(tensor, {0, {{0, 1}, {0, 1}}, ""}, buffer), InternalError);
  EXPECT_THROW(reader.read(tensor, {2, {{0, 3}, {0, 2}}, ""}, buffer), InternalError);
  EXPECT_THROW(reader.read_box(tensor, {{0, 1}, {0, 5}}, buffer, out), InternalError);  // out is larger
  EXPECT_THROW(reader.read_box(tensor, {{4, 5}, {0, 6}}, buffer, out), InternalError);  // no such row
}

TEST(ReaderTest, EveryFlippedByteIsFound) {
  Handmade checkpoint;
  std::size_t in_headers = 0;
  std::size_t in_data = 0;
  for (int file = 0; file < 2; ++file) {
    const std::string path = part(file);
    const std::string whole = checkpoint.env.content(path);
    for (std::size_t at = 0; at < whole.size(); ++at) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ (1 << (at % 8)));
      checkpoint.env.put_file(path, changed);
      const Result<Reader> reader = Reader::open(checkpoint.env, kDirectory);
      const std::vector<std::string> damages = checkpoint.damages();
      ASSERT_EQ(damages.size(), 1U) << path << " " << at;
      ASSERT_THAT(damages[0], AllOf(HasSubstr(path), HasSubstr("expected checksum"), HasSubstr("found")));
      if (!reader.ok()) {
        ++in_headers;
        ASSERT_EQ(reader.failure().sentence(), damages[0]);
        ASSERT_THAT(damages[0], HasSubstr("header"));
        continue;
      }
      ++in_data;
      ASSERT_EQ(read_everything(*reader), damages[0]);
      ASSERT_THAT(damages[0], HasSubstr("checkpoint: read: "));
    }
    checkpoint.env.put_file(path, whole);
  }
  EXPECT_EQ(in_data, 3U * (24 + 5) * 4);
  EXPECT_EQ(in_headers + in_data, static_cast<std::size_t>(checkpoint.manifest.bytes()));
  EXPECT_THAT(checkpoint.damages(), IsEmpty());
}

TEST(ReaderTest, EveryFlippedByteOfTheManifestIsFound) {
  Handmade checkpoint;
  const std::string path = path_of(kManifestFile);
  const std::string whole = checkpoint.env.content(path);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ (1 << (at % 8)));
    checkpoint.env.put_file(path, changed);
    ASSERT_THAT(checkpoint.refusal(), HasSubstr(path));
    ASSERT_THAT(checkpoint.damages(), ElementsAre(checkpoint.refusal()));
  }
}

TEST(ReaderTest, NamesTheSliceThatIsDamaged) {
  Handmade checkpoint;
  std::string content = checkpoint.env.content(part(1));
  content.back() = static_cast<char>(content.back() ^ 1);
  checkpoint.env.put_file(part(1), content);
  const Slice& last = checkpoint.manifest.tensors[5].slices[0];
  const std::string found = checksum_of(std::string_view(content).substr(content.size() - 12));
  const std::string message = fmt::format(
      "checkpoint: read: {}: slice exp_avg_sq/b/2:5: expected checksum {}, found {}", part(1), last.checksum, found);
  const Reader reader = checkpoint.open();
  EXPECT_EQ(read_everything(reader), message);
  EXPECT_THAT(checkpoint.damages(), ElementsAre(message));
  // Other parts of the tensor are given out.
  std::vector<std::byte> buffer(48);
  std::vector<float> out(2);
  reader.read_box(reader.manifest().tensors[5], {{0, 2}, {0, 1}}, buffer, out);
  EXPECT_EQ(out[1], handmade_value(reader.manifest().tensors[5], 1, 0));
  EXPECT_THROW(reader.read_box(reader.manifest().tensors[5], {{1, 3}, {0, 1}}, buffer, out), Error);
}

TEST(ReaderTest, SwappedSlicesAreFound) {
  Handmade checkpoint;
  // The matrices' slices of file 0 are of 24 bytes each: the first weights change places with the first moments.
  std::string content = checkpoint.env.content(part(0));
  const std::size_t data = content.size() - 3 * (24 + 8);
  std::swap_ranges(content.begin() + static_cast<std::ptrdiff_t>(data),
                   content.begin() + static_cast<std::ptrdiff_t>(data + 24),
                   content.begin() + static_cast<std::ptrdiff_t>(data + 32));
  checkpoint.env.put_file(part(0), content);
  EXPECT_THAT(checkpoint.damages(),
              ElementsAre(HasSubstr("slice weight/a.weight/0:3,0:2"), HasSubstr("slice exp_avg/a.weight/0:3,0:2")));
  EXPECT_THAT(read_everything(checkpoint.open()), HasSubstr("slice weight/a.weight/0:3,0:2"));
}

TEST(ReaderTest, SwappedFilesAreFound) {
  Handmade checkpoint;
  const std::string first = checkpoint.env.content(part(0));
  checkpoint.env.put_file(part(0), checkpoint.env.content(part(1)));
  checkpoint.env.put_file(part(1), first);
  EXPECT_THAT(checkpoint.damages(), ElementsAre(HasSubstr(part(0)), HasSubstr(part(1))));
  EXPECT_THAT(checkpoint.refusal(), AllOf(HasSubstr(part(0)), HasSubstr("size: expected")));
}

TEST(ReaderTest, FilesOfOneSizeThatChangedPlacesAreFound) {
  FakeEnv env;
  Manifest manifest = handmade_manifest();
  manifest.tensors = {
      {"a", StateKind::kWeight, {4}, DType::kF32, {{0, {{0, 2}, {0, 1}}, ""}, {1, {{2, 4}, {0, 1}}, ""}}}};
  put_checkpoint(env, kDirectory, manifest, handmade_value);
  const std::string first = env.content(part(0));
  ASSERT_EQ(first.size(), env.content(part(1)).size());
  env.put_file(part(0), env.content(part(1)));
  env.put_file(part(1), first);
  EXPECT_THAT(damages_of(env, kDirectory),
              ElementsAre(AllOf(HasSubstr(part(0)), HasSubstr("header: expected checksum")), HasSubstr(part(1))));
}

TEST(ReaderTest, MissingFilesAreNamed) {
  {
    Handmade checkpoint;
    checkpoint.env.remove_file(part(1));
    EXPECT_THAT(checkpoint.refusal(), HasSubstr(fmt::format("{}: missing; expected a file of {} bytes", part(1),
                                                            checkpoint.manifest.files[1].bytes)));
    EXPECT_THAT(checkpoint.damages(), ElementsAre(checkpoint.refusal()));
  }
  {
    Handmade checkpoint;
    checkpoint.env.remove_file(path_of(kManifestFile));
    EXPECT_THAT(checkpoint.refusal(), HasSubstr(path_of(kManifestFile) + ": missing"));
    EXPECT_THAT(checkpoint.damages(), ElementsAre(checkpoint.refusal()));
  }
  FakeEnv env;
  const Result<Reader> none = Reader::open(env, "nowhere");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.failure().code, ExitCode::kUsage);
  EXPECT_EQ(none.failure().sentence(), "nowhere: no such directory");
  EXPECT_THAT(damages_of(env, "nowhere"), ElementsAre("nowhere: no such directory"));
}

TEST(ReaderTest, AnotherSizeIsRefused) {
  Handmade checkpoint;
  const std::string whole = checkpoint.env.content(part(0));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    checkpoint.env.put_file(part(0), whole.substr(0, length));
    const std::string message = fmt::format("{}: size: expected {} bytes, found {}", part(0), whole.size(), length);
    ASSERT_EQ(checkpoint.refusal(), message);
    ASSERT_THAT(checkpoint.damages(), ElementsAre(message));
  }
  checkpoint.env.put_file(part(0), whole + '\0');
  EXPECT_THAT(checkpoint.refusal(), HasSubstr("found " + std::to_string(whole.size() + 1)));
}

TEST(ReaderTest, AManifestOfOtherFilesIsRefused) {
  {
    Handmade checkpoint;  // the header lacks a slice
    std::vector<Slice>& slices = checkpoint.manifest.tensors[1].slices;
    slices[0].box.rows.begin = slices[1].box.rows.end = 3;
    checkpoint.put_manifest();
    EXPECT_EQ(checkpoint.refusal(), part(0) + ": lacks slice weight/b/0:3");
  }
  {
    Handmade checkpoint;  // and has others
    checkpoint.manifest.tensors.pop_back();
    checkpoint.put_manifest();
    EXPECT_EQ(checkpoint.refusal(), part(0) + ": holds 6 tensors; expected the 5 slices of the manifest");
  }
  {
    Handmade checkpoint;
    checkpoint.manifest.tensors[1].dtype = DType::kBF16;
    checkpoint.put_manifest();
    EXPECT_THAT(checkpoint.refusal(), HasSubstr("tensor weight/b is of type BF16; training state is F32"));
    EXPECT_THAT(checkpoint.damages(),
                ElementsAre(HasSubstr("slice weight/b/0:2: expected BF16 [2], found F32 [2]"), HasSubstr(part(1))));
  }
  {
    Handmade checkpoint;  // a file that is no safetensors file, under its right checksum
    checkpoint.manifest.files[0] = {"part-00000.safetensors", 400, checksum_of(std::string(8, '\0'))};
    checkpoint.env.put_file(part(0), std::string(400, '\0'));
    checkpoint.put_manifest();
    EXPECT_THAT(checkpoint.refusal(), AllOf(HasSubstr(part(0)), HasSubstr("does not begin with {")));
  }
}

TEST(ReaderTest, AFailingDiskIsADamageAndNoEnd) {
  Handmade checkpoint;
  checkpoint.env.fail_operation(0);
  checkpoint.damages();
  const std::int64_t operations = checkpoint.env.operations();
  ASSERT_GT(operations, 5);
  for (std::int64_t n = 1; n <= operations; ++n) {
    checkpoint.env.fail_operation(n);
    EXPECT_EQ(checkpoint.damages().size(), 1U) << n;
  }
  checkpoint.env.fail_from_operation(1);
  EXPECT_NE(checkpoint.refusal(), "accepted");
}

TEST(ReaderTest, ProgressCountsTheBytesOfAllFiles) {
  Handmade checkpoint;
  std::vector<std::int64_t> seen;
  EXPECT_THAT(damages_of(checkpoint.env, kDirectory, [&](Bytes read) { seen.push_back(read.count); }), IsEmpty());
  EXPECT_EQ(seen.size(), 15U);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), checkpoint.manifest.bytes());
}

}  // namespace
}  // namespace trireme::checkpoint
