// SPDX-License-Identifier: MIT
// Checkpoints that must be refused: one clear message, fast, without a large allocation.
#include <sys/resource.h>
#include <sys/stat.h>

#include <tpsim/checkpoint/module.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/test_files.hpp>

namespace tpsim::test::checkpoint_bad_input_tests {
namespace {

long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

#ifdef __SANITIZE_ADDRESS__
constexpr bool memory_is_told = false;  // AddressSanitizer holds freed memory back
#else
constexpr bool memory_is_told = true;
#endif

/// What `missing` says, plus a complaint when the refusal took 64 MiB.
template <typename Action>
std::string refusal(const Action& action, const std::vector<std::string>& phrases) {
  const long before = peak_kib();
  std::string wrong = missing(action, phrases);
  if (memory_is_told && peak_kib() - before > 64 * 1024) wrong += " too much memory";
  return wrong;
}

struct BadFile {
  const char* what;
  std::string content;
  std::vector<std::string> phrases;
};

std::vector<BadFile> bad_files() {
  const auto f32 = [](const std::string& name, const std::string& shape,
                      const std::string& offsets) { return entry(name, "F32", shape, offsets); };
  const auto file = [](const std::string& entries, std::size_t data) {
    return safetensors_bytes("{" + entries + "}", std::string(data, '\1'));
  };
  const std::string good = f32("a", "[2]", "[0,8]");
  const std::string deep(100'000, '[');
  std::string many_ones;
  for (int i = 0; i < 100'000; ++i) many_ones += ",1";
  return {
      {"empty", "", {"the file has 0 bytes"}},
      {"shorter than the length", "1234567", {"the file has 7 bytes"}},
      {"length past the end",
       safetensors_bytes("{}", "", 1000),
       {"header length 1000 points past the end: the file has 2 bytes after it", "cut short"}},
      {"enormous length",
       safetensors_bytes("{}", "", ~std::uint64_t{0}),
       {"header length 18446744073709551615 is over 100000000", "points past the end"}},
      {"empty header", safetensors_bytes(""), {"the header is empty"}},
      {"junk header", safetensors_bytes("\x1b[31mjunk"), {"begins with '\\x1b'", "begin with '{'"}},
      {"leading space", safetensors_bytes(" {}"), {"begins with ' '"}},
      {"broken JSON", safetensors_bytes("{\"a\" 1}"), {"byte 6 of the header is not JSON"}},
      {"trailing newline", safetensors_bytes("{}\n"), {"one JSON object, padded with spaces"}},
      {"hidden end", safetensors_bytes(std::string("{}\0}", 4)), {"one JSON object"}},
      {"second object", safetensors_bytes("{}{}"), {"is not JSON"}},
      {"bad UTF-8", safetensors_bytes("{\"\xff\":{}}"), {"is not JSON", "ill-formed UTF-8"}},
      {"deep nesting in a value", safetensors_bytes("{\"a\":" + deep + "}"), {"deeper than 8"}},
      {"deep nesting in a shape",
       safetensors_bytes("{\"a\":{\"shape\":" + deep + "}"),
       {"tensor 'a': 'shape' holds a list; only integers are legal", "deeper than 8"}},
      {"number for an entry", file("\"a\":1", 0), {"tensor 'a' is a number; it must be an object"}},
      {"overlap",
       file(good + "," + f32("b", "[2]", "[4,12]"), 12),
       {"tensors 'a' and 'b' overlap: 'b' begins at byte 4, before 'a' ends at 8"}},
      {"same bytes twice", file(good + "," + f32("b", "[2]", "[0,8]"), 8), {"'a' and 'b' overlap"}},
      {"reversed",
       file(f32("a", "[2]", "[8,0]"), 8),
       {"tensor 'a': data_offsets [8, 0] are reversed"}},
      {"hole",
       file(good + "," + f32("b", "[1]", "[12,16]"), 16),
       {"hole: bytes 8 to 12 of the data belong to no tensor; tensor 'b' must begin at 8"}},
      {"hole at the start", file(f32("a", "[1]", "[4,8]"), 8), {"hole: bytes 0 to 4"}},
      {"data missing",
       file(f32("a", "[1000]", "[0,4000]"), 100),
       {"tensor 'a' ends at byte 4000, but the file holds 100 bytes of data"}},
      {"data left over", file(good, 9), {"holds 9 bytes of data, but the tensors end at byte 8"}},
      {"offset beyond 63 bits",
       file(f32("a", "[2]", "[0,9223372036854775808]"), 8),
       {"offset '9223372036854775808' is no integer in range"}},
      {"three offsets", file(f32("a", "[2]", "[0,8,8]"), 8), {"has more than 2 numbers"}},
      {"one offset", file(f32("a", "[2]", "[8]"), 8), {"data_offsets [8] must be two numbers"}},
      {"duplicate name", file(good + "," + good, 8), {"tensor 'a' appears twice"}},
      {"duplicate key",
       file(R"("a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})", 8),
       {"tensor 'a': 'dtype' appears twice"}},
      {"missing keys",
       file("\"a\":{}", 0),
       {"tensor 'a' has no 'dtype'", "has no 'shape'", "has no 'data_offsets'"}},
      {"unknown key",
       file(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":0})", 8),
       {"'x' is no key of an entry; legal: dtype, shape, data_offsets"}},
      {"size mismatch",
       file(f32("a", "[2,3]", "[0,8]"), 8),
       {"tensor 'a': shape [2, 3] of F32 needs 24 bytes, but data_offsets [0, 8] hold 8"}},
      {"size overflow",
       file(f32("a", "[4294967296,4294967296,16]", "[0,0]"), 0),
       {"shape [4294967296, 4294967296, 16] of F32 overflows 63 bits"}},
      {"overflow hidden by a zero",
       file(f32("a", "[4611686018427387904,4,0]", "[0,0]"), 0),
       {"overflows 63 bits"}},
      {"unknown dtype",
       file(entry("a", "Q4_K", "[2]", "[0,8]"), 8),
       {"tensor 'a': dtype 'Q4_K' is unknown; known: BOOL"}},
      {"half a byte", file(entry("a", "F4", "[3]", "[0,2]"), 2), {"does not fill whole bytes"}},
      {"negative dimension", file(f32("a", "[-2]", "[0,8]"), 8), {"dimension '-2' is negative"}},
      {"fractional dimension",
       file(f32("a", "[2.0]", "[0,8]"), 8),
       {"dimension '2.0' is no integer in range"}},
      {"too many dimensions",
       file(f32("a", "[1" + many_ones + "]", "[0,4]"), 4),
       {"'shape' has more than 64 numbers"}},
      {"metadata no string",
       file(R"("__metadata__":{"n":1,"o":{}})", 0),
       {"__metadata__ 'n' is a number; only strings are legal", "__metadata__ 'o' is an object"}},
      {"metadata no object",
       file(R"("__metadata__":"x")", 0),
       {"is a string; it must be an object"}},
      {"several faults at once",
       file(f32("a", "[-1]", "[0,4]") + "," + entry("b", "X", "[1]", "[4,8]"), 8),
       {"tensor 'a': dimension '-1'", "tensor 'b': dtype 'X'"}},
  };
}

TEST_CASE("safetensors: a malformed file is refused with its fault") {
  const TempDir dir;
  for (const BadFile& bad : bad_files()) {
    INFO(bad.what);
    const auto path = dir.write("model.safetensors", bad.content);
    std::vector<std::string> phrases = bad.phrases;
    phrases.push_back("cannot read '" + path.string() + "'");
    CHECK(refusal([&] { SafetensorsFile{path}; }, phrases) == "");
    // From memory the answer is the same.
    CHECK(refusal([&] { SafetensorsFile(as_bytes(bad.content), path.string()); }, phrases) == "");
  }
}

TEST_CASE("safetensors: every truncation of a good file is refused") {
  const std::string good = safetensors_bytes("{" + entry("a", "F32", "[2,2]", "[0,16]") + "," +
                                                 entry("b", "BF16", "[3]", "[16,22]") + "} ",
                                             std::string(22, '\1'));
  CHECK_NOTHROW(SafetensorsFile(as_bytes(good), "good"));
  for (std::size_t length = 0; length < good.size(); ++length)
    CHECK_THROWS_AS(SafetensorsFile(as_bytes(good.substr(0, length)), "cut"), LayoutError);
}

TEST_CASE("safetensors: millions of faults give a short message") {
  std::string entries = "\"a\":0";
  for (int i = 0; i < 200'000; ++i) entries += ",\"a\":0";
  CHECK(refusal([&] { SafetensorsFile(as_bytes(safetensors_bytes("{" + entries + "}")), "many"); },
                {"'a' appears twice", "and 399985 more broken rules"}) == "");
}

TEST_CASE("files: only a regular file or a link to one is read") {
  const TempDir dir;
  const auto open = [&](const char* name) { SafetensorsFile{dir.path() / name}; };
  CHECK(refusal([&] { open("missing"); }, {"missing'", "No such file"}) == "");
  std::filesystem::create_directory(dir.path() / "directory");
  CHECK(refusal([&] { open("directory"); }, {"it is a directory, not a regular file"}) == "");
  REQUIRE(mkfifo((dir.path() / "pipe").c_str(), 0600) == 0);
  CHECK(refusal([&] { open("pipe"); }, {"it is a pipe, not a regular file"}) == "");
  CHECK(refusal([] { SafetensorsFile{"/dev/zero"}; }, {"it is a device"}) == "");
  std::filesystem::create_symlink("pipe", dir.path() / "to_pipe");
  CHECK(refusal([&] { open("to_pipe"); }, {"it is a pipe"}) == "");
  std::filesystem::create_symlink("loop", dir.path() / "loop");
  CHECK(refusal([&] { open("loop"); }, {"symbolic link"}) == "");
  // Download caches keep the files elsewhere and link to them.
  dir.write("blob", safetensors_bytes("{}"));
  std::filesystem::create_symlink("blob", dir.path() / "to_file");
  CHECK_NOTHROW(open("to_file"));
}

TEST_CASE("checkpoint: a directory that cannot be a checkpoint is refused") {
  const TempDir dir;
  const auto open = [&] { Checkpoint{dir.path()}; };
  const std::string a = entry("a", "F32", "[1]", "[0,4]"), index = "model.safetensors.index.json";
  const auto write_index = [&](const std::string& map) {
    dir.write(index, R"({"weight_map": )" + map + "}");
  };
  CHECK(refusal([&] { Checkpoint{dir.path() / "x"}; }, {"there is no such directory"}) == "");
  CHECK(refusal(open, {"the directory has no config.json"}) == "");
  dir.write("config.json", small_config);
  CHECK(refusal([&] { Checkpoint{dir.path() / "config.json"}; }, {"not a directory"}) == "");
  CHECK(refusal(open, {"the directory has no *.safetensors file"}) == "");

  dir.write("1.safetensors", safetensors_bytes("{" + a + "}", "data"));
  dir.write("2.safetensors", safetensors_bytes("{" + a + "}", "data"));
  CHECK(refusal(open, {"tensor 'a' is in both '1.safetensors' and '2.safetensors'"}) == "");

  write_index(R"({"a": "1.safetensors", "b": "3.safetensors"})");
  CHECK(refusal(open, {index, "tensor 'b' is in file '3.safetensors', which does not exist"}) ==
        "");
  for (const char* path : {"../x.safetensors", "/etc/passwd", "..", "", "sub/1.safetensors"}) {
    write_index(R"({"a": ")" + std::string(path) + "\"}");
    CHECK(refusal(open, {"tensor 'a' is in file '" + std::string(path) + "'; only names of"}) ==
          "");
  }
  write_index(R"({"a": 1})");
  CHECK(refusal(open, {"the file of tensor 'a' must be a string"}) == "");
  write_index("[]");
  CHECK(refusal(open, {"weight_map is missing or no object"}) == "");
  write_index(R"({"a": "1.safetensors", "a": "2.safetensors"})");
  CHECK(refusal(open, {"'a' appears twice"}) == "");

  write_index(R"({"a": "1.safetensors", "b": "1.safetensors"})");
  const Checkpoint indexed(dir.path());  // 2.safetensors does not count now
  CHECK(indexed.tensor("a").shape == Shape(1));
  CHECK(refusal([&] { (void)indexed.tensor("b"); },
                {index, "tensor 'b' should be in file '1.safetensors', which has no such"}) == "");
}

}  // namespace
}  // namespace tpsim::test::checkpoint_bad_input_tests
