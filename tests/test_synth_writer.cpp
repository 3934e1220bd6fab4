// SPDX-License-Identifier: MIT
// Checkpoints are written in the safetensors format, whole or not at all.
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include <nlohmann/json.hpp>

#include <tpsim/checkpoint/checkpoint.hpp>
#include <tpsim/checkpoint/safetensors_writer.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/test_files.hpp>

namespace tpsim::test::synth_writer_tests {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Every file below a directory with its content; directories end with a slash.
std::map<std::string, std::string> tree(const fs::path& directory) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const std::string name = fs::relative(entry.path(), directory).string();
    if (entry.is_directory()) {
      out[name + "/"] = "";
      continue;
    }
    std::ifstream file(entry.path(), std::ios::binary);
    out[name] = std::string(std::istreambuf_iterator<char>(file), {});
  }
  return out;
}

// Bytes that tell tensor and place, so that a piece at the wrong place shows.
std::byte byte_at(std::size_t tensor, Index place) {
  return static_cast<std::byte>((static_cast<std::uint64_t>(place) * 0x9e3779b97f4a7c15U >> 32U) +
                                tensor * 31);
}
FillTensor marked(const std::vector<NewTensor>& tensors) {
  return [&tensors](std::size_t tensor, Index element, std::span<std::byte> out) {
    const Index begin = element * bytes_of(tensors[tensor].dtype);
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = byte_at(tensor, begin + static_cast<Index>(i));
  };
}
std::string marked_bytes(const std::vector<NewTensor>& tensors, std::size_t tensor) {
  std::string out;
  for (Index i = 0; i < tensors[tensor].bytes(); ++i) out += static_cast<char>(byte_at(tensor, i));
  return out;
}

// Of several pieces, of an odd number of bytes, empty, in all dtypes.
const std::vector<NewTensor> sample{{"a.weight", Shape(700, 1024), DType::f32},
                                    {"a.bias", Shape(3), DType::bf16},
                                    {"empty", Shape(0, 5), DType::f16},
                                    {"b.weight", Shape(1, 1'200'001), DType::f16},
                                    {"c", Shape(7), DType::f64}};

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("safetensors writer: a file keeps the rules of the format", "[synth]") {
  const TempDir folder;
  write_checkpoint(folder.path(), "{}", sample, marked(sample));
  const std::string file = read_file(folder.path() / "model.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  CHECK(length % 8 == 0);  // then the data begin at a multiple of 8
  const std::string text = file.substr(8, length);
  CHECK(text.front() == '{');
  CHECK(text.find_last_not_of(' ') == text.rfind('}'));

  const Json header = Json::parse(text);
  CHECK(header["__metadata__"] == Json{{"format", "pt"}});
  CHECK(header.size() == sample.size() + 1);
  Index at = 0;
  std::size_t i = 0;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    CAPTURE(name);
    const NewTensor& t = sample[i];
    CHECK(name == t.name);  // ordered as the data are
    CHECK(entry["data_offsets"] == Json{at, at + t.bytes()});
    const Json dims =
        t.shape.rank() == 1 ? Json{t.shape.rows()} : Json{t.shape.rows(), t.shape.cols()};
    CHECK(entry["shape"] == dims);
    const char* dtypes[] = {"F32", "BF16", "F16", "F16", "F64"};
    CHECK(entry["dtype"] == dtypes[i]);
    CHECK((file.substr(8 + length + static_cast<std::size_t>(at),
                       static_cast<std::size_t>(t.bytes())) == marked_bytes(sample, i)));
    at += t.bytes();
    ++i;
  }
  CHECK(file.size() == 8 + length + static_cast<std::size_t>(at));
}

TEST_CASE("safetensors writer: the data begin at a multiple of 8, however long the header",
          "[synth]") {
  std::set<std::size_t> blanks;
  for (std::size_t n = 1; n <= 8; ++n) {
    const std::string header =
        safetensors_header(std::vector<NewTensor>{{std::string(n, 'w'), Shape(2, 3), DType::bf16}});
    std::uint64_t length = 0;
    std::memcpy(&length, header.data(), 8);
    CHECK(header.size() == 8 + length);
    CHECK(header.size() % 8 == 0);
    blanks.insert(header.size() - header.rfind('}') - 1);
  }
  CHECK(blanks == std::set<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("safetensors writer: the reader finds the same tensors, whatever the files", "[synth]") {
  for (const Index most : {Index{1}, Index{10}, Index{3'000'000}, Index{6'000'000}})
    for (const int threads : {1, 3, 0}) {
      CAPTURE(most, threads);
      const TempDir folder;
      const auto written =
          write_checkpoint(folder.path(), "{}", sample, marked(sample), {most, false, threads});
      const CheckpointFiles files(folder.path());
      CHECK(files.entries().size() == sample.size());
      std::map<std::string, Index> bytes_of_file;
      for (const WrittenFile& f : written) {
        CHECK(static_cast<Index>(fs::file_size(folder.path() / f.name)) == f.bytes);
        if (f.tensors == 0) continue;
        const SafetensorsFile one(folder.path() / f.name);
        CHECK(static_cast<Index>(one.header().entries.size()) == f.tensors);
        CHECK((one.header().data_bytes <= most || f.tensors == 1));
        for (std::size_t i = 0; i < sample.size(); ++i) {
          if (one.header().find(sample[i].name) == nullptr) continue;
          const auto raw = one.raw(sample[i].name);
          CHECK((std::string(reinterpret_cast<const char*>(raw.data()), raw.size()) ==
                 marked_bytes(sample, i)));
        }
      }
      CHECK(files.opened() == static_cast<std::size_t>(std::count_if(
                                  written.begin(), written.end(),
                                  [](const WrittenFile& f) { return f.tensors > 0; })));
    }
}

TEST_CASE("safetensors writer: the index names the file of every tensor", "[synth]") {
  const TempDir folder;
  write_checkpoint(folder.path(), "{}", sample, marked(sample), {2'900'000, false, 0});
  const Json index = Json::parse(read_file(folder.path() / "model.safetensors.index.json"));
  CHECK(index == Json::parse(R"({"metadata": {"total_size": 5267264}, "weight_map": {
      "a.bias": "model-00001-of-00002.safetensors", "a.weight": "model-00001-of-00002.safetensors",
      "b.weight": "model-00002-of-00002.safetensors", "c": "model-00002-of-00002.safetensors",
      "empty": "model-00001-of-00002.safetensors"}})"));
  // One file needs none.
  const TempDir other;
  write_checkpoint(other.path(), "{}", sample, marked(sample));
  CHECK(tree(other.path()).size() == 2);
}

TEST_CASE("safetensors writer: files are filled up to the limit", "[synth]") {
  std::vector<NewTensor> tensors;
  for (const Index n : {10, 20, 30, 100, 5, 5, 50, 40})
    tensors.push_back({std::to_string(tensors.size()), Shape(n), DType::f32});
  const auto files = shard_files(tensors, 240);
  std::vector<std::size_t> first;
  std::vector<Index> bytes;
  for (const ShardFile& f : files) first.push_back(f.first), bytes.push_back(f.bytes);
  CHECK(first == std::vector<std::size_t>{0, 3, 4, 7});
  CHECK(bytes == std::vector<Index>{240, 400, 240, 160});  // the second is one large tensor
  CHECK(files.front().name == "model-00001-of-00004.safetensors");
  CHECK(shard_files(tensors, 1 << 20).front().name == "model.safetensors");
}

TEST_CASE("safetensors writer: bad tensors are refused, all rules at once", "[synth]") {
  const std::vector<NewTensor> bad{{"x", Shape(1), DType::f32},
                                   {"x", Shape(1), DType::field},
                                   {"__metadata__", Shape(1), DType::f32},
                                   {"\xff", Shape(1), DType::f32}};
  CHECK(missing([&] { (void)safetensors_header(bad); },
                {"'x' appears twice", "'x' is field", "__metadata__", "UTF-8"}) == "");
}

TEST_CASE("safetensors writer: after an error nothing is left", "[synth]") {
  const TempDir folder;
  folder.write("notes.txt", "mine");
  const auto before = tree(folder.path());
  for (const std::size_t fails : {0, 1, 3, 4})
    for (const char* below : {".", "new/one/two"}) {
      CAPTURE(fails, below);
      const FillTensor fill = [&](std::size_t tensor, Index element, std::span<std::byte> out) {
        if (tensor == fails) throw std::runtime_error("interrupted");
        marked(sample)(tensor, element, out);
      };
      CHECK_THROWS_WITH(
          write_checkpoint(folder.path() / below, "{}", sample, fill, {100, false, 0}),
          "interrupted");
      CHECK(tree(folder.path()) == before);
    }
}

TEST_CASE("safetensors writer: a checkpoint is overwritten only when that is allowed", "[synth]") {
  const TempDir folder;
  folder.write("notes.txt", "mine");
  folder.write("other.safetensors", "mine");
  write_checkpoint(folder.path(), "{}", sample, marked(sample), {100, false, 0});
  const auto before = tree(folder.path());
  REQUIRE(before.count("model-00004-of-00004.safetensors") == 1);
  CHECK(missing([&] { write_checkpoint(folder.path(), "{\"a\": 1}", sample, marked(sample)); },
                {"a checkpoint is in", "'config.json' and 5 more of its files would be overwritten",
                 "--force"}) == "");
  CHECK(tree(folder.path()) == before);

  // What stops half way leaves the old one as it was, byte for byte.
  const WriteOptions over{3'000'000, true, 0};
  const FillTensor breaks = [&](std::size_t tensor, Index element, std::span<std::byte> out) {
    if (tensor == 3) throw std::runtime_error("interrupted");
    marked(sample)(tensor, element, out);
  };
  CHECK_THROWS_WITH(write_checkpoint(folder.path(), "{}", sample, breaks, over), "interrupted");
  CHECK(tree(folder.path()) == before);

  write_checkpoint(folder.path(), "{\"a\": 1}", sample, marked(sample), {1 << 30, true, 0});
  std::set<std::string> names;
  for (const auto& [name, content] : tree(folder.path())) names.insert(name);
  CHECK(names == std::set<std::string>{"config.json", "model.safetensors", "notes.txt",
                                       "other.safetensors"});
  CHECK(read_file(folder.path() / "config.json") == "{\"a\": 1}");
}

TEST_CASE("safetensors writer: files that cannot be put in place are taken back", "[synth]") {
  const TempDir folder;
  const std::vector<NewTensor> one{{"w", Shape(4), DType::f32}};
  write_checkpoint(folder.path(), "{}", one, marked(one));
  std::map<std::string, std::string> before;
  // A folder where the last file goes, made after all was looked at.
  const FillTensor fill = [&](std::size_t, Index, std::span<std::byte> out) {
    std::fill(out.begin(), out.end(), std::byte{7});
    fs::create_directories(folder.path() / "config.json.replaced" / "full");
    before = tree(folder.path());
    before.erase("model.safetensors.partial");
  };
  CHECK(missing(
            [&] {
              write_checkpoint(folder.path(), "{}", one, fill, {100, true, 1});
            },
            {"cannot write", "config.json.replaced"}) == "");
  CHECK(tree(folder.path()) == before);

  const TempDir other;
  const FillTensor blocks = [&](std::size_t, Index, std::span<std::byte>) {
    fs::create_directory(other.path() / "config.json");
  };
  CHECK(missing(
            [&] {
              write_checkpoint(other.path(), "{}", one, blocks, {100, true, 1});
            },
            {"cannot write", "config.json"}) == "");
  CHECK(tree(other.path()) == std::map<std::string, std::string>{{"config.json/", ""}});
}

TEST_CASE("safetensors writer: what another program is writing is left alone", "[synth]") {
  const TempDir folder;
  folder.write("model.safetensors.partial", "theirs");
  const auto before = tree(folder.path());
  for (const bool overwrite : {false, true})
    CHECK(missing(
              [&] {
                write_checkpoint(folder.path(), "{}", sample, marked(sample),
                                 {1 << 30, overwrite, 0});
              },
              {"model.safetensors.partial' is there already", "another program"}) == "");
  CHECK(tree(folder.path()) == before);
}

TEST_CASE("safetensors writer: a place that is no folder is refused", "[synth]") {
  const TempDir folder;
  const fs::path file = folder.write("file", "x");
  for (const fs::path& place : {file, file / "below", fs::path("/proc/nowhere/below")})
    CHECK(missing([&] { write_checkpoint(place, "{}", sample, marked(sample)); },
                  {"cannot write", place.filename().string()}) == "");
  fs::create_directory(folder.path() / "config.json");
  CHECK(missing(
            [&] {
              write_checkpoint(folder.path(), "{}", sample, marked(sample), {1, true, 0});
            },
            {"config.json", "it is a folder"}) == "");
  CHECK(tree(folder.path()).size() == 2);
  // More than any disk has: told before anything is written.
  const std::vector<NewTensor> huge(1 << 14, {"w", Shape(Index{1} << 24, 1 << 20), DType::f32});
  std::vector<NewTensor> names = huge;
  for (std::size_t i = 0; i < names.size(); ++i) names[i].name += std::to_string(i);
  CHECK(missing([&] { write_checkpoint(folder.path() / "new", "{}", names, marked(names)); },
                {"the checkpoint needs", "GB left"}) == "");
  CHECK(tree(folder.path()).size() == 2);
}

}  // namespace tpsim::test::synth_writer_tests
