// SPDX-License-Identifier: MIT
// Every law on every layer of the library, and on a layer that the library does not know.
#include <tests/support/catch.hpp>

#include <properties/catch.hpp>
#include <sim/subjects.hpp>

#include <tpsim/comm/fixed_rank.hpp>

namespace laws_tests {

using namespace tpsim;
namespace laws = tpsim::properties;

namespace {

/// The law on all layers; `silent` are those that it has nothing to say about.
void on_every_layer(const std::string& id, const std::vector<std::string>& silent = {}) {
  for (const std::string& layer : layer_names()) {
    CAPTURE(id, layer);
    const std::optional<Index> compared = laws::property(laws::law(id), {.layer = layer});
    const bool expected = std::find(silent.begin(), silent.end(), layer) == silent.end();
    if (compared) CHECK((*compared > 0) == expected);
  }
}

}  // namespace

// One test a law, so that ctest -R finds it by its sentence.
TEST_CASE("laws: params partition the full tensor") { on_every_layer("cover"); }
TEST_CASE("laws: every value is in the state that its reader needs") { on_every_layer("state"); }
TEST_CASE("laws: the layer equals full() in the field") { on_every_layer("exact"); }
TEST_CASE("laws: the layer equals full() bit for bit on integers") { on_every_layer("integer"); }
TEST_CASE("laws: the layer equals full() within the bound on floats") {
  on_every_layer("rounding");
}
TEST_CASE("laws: merging the shards gives the tensor") { on_every_layer("merge"); }
TEST_CASE("laws: load order does not matter") { on_every_layer("load-order"); }
TEST_CASE("laws: fused loads equal part-wise loads for every disk order") {
  on_every_layer("disk-order", {"column", "row", "replicated"});
}
TEST_CASE("laws: every q head has its kv head") {
  on_every_layer("heads", {"column", "row", "merged", "replicated", "mlp"});
}
TEST_CASE("laws: results do not depend on schedule or thread count") { on_every_layer("schedule"); }
TEST_CASE("laws: every illegal shape is refused with all reasons") { on_every_layer("refusal"); }

TEST_CASE("laws: every law has its test here") {
  // The sentences above are literals; this keeps them the laws' own.
  std::vector<std::string> ids;
  for (const laws::Law& law : laws::all_laws()) ids.push_back(law.id);
  CHECK(ids == std::vector<std::string>{"cover", "state", "exact", "integer", "rounding", "merge",
                                        "load-order", "disk-order", "heads", "schedule",
                                        "refusal"});
}

TEST_CASE("laws: a layer's own constructor refuses with all reasons too") {
  for (const std::string layer : {"column", "row", "merged", "qkv", "replicated"}) {
    laws::Candidate candidate{.layer = layer};
    candidate.make = [](const LayerSpec& s) -> std::unique_ptr<Subject> {
      FixedRank comm(0, s.tp);
      SymbolicContext context;
      SymbolicBackend backend(context, 0);
      (void)detail::make_module<RealLayers>(backend, comm, s);
      return nullptr;
    };
    candidate.illegal = [layer] {  // no group has fewer than one rank, and a layer sees no tokens
      return rc::gen::suchThat(laws::illegal_cases(layer), [](laws::Case c) {
        c.spec.tokens = 1;
        return c.spec.tp > 0 && !laws::broken_rules(c.spec).empty();
      });
    };
    candidate.broken = [](LayerSpec s) {
      s.tokens = 1;
      return laws::broken_rules(s);
    };
    CHECK(laws::property(laws::law("refusal"), candidate) != Index{0});
  }
}

namespace {

/// A layer of a user: column parallel, with rank r holding the rows r, r + tp, r + 2 tp, ...
template <class B>
class StridedModule final : public ModuleOn<B> {
 public:
  StridedModule(B& b, Communicator& comm, const LayerSpec& s)
      : backend_(&b),
        rank_(comm.rank()),
        tp_(s.tp),
        weight_(b.empty("weight", {s.out / s.tp, s.in})) {}
  [[nodiscard]] std::vector<std::pair<std::string, typename B::Param*>> params() override {
    return {{"weight", &weight_}};
  }
  void load(const DiskTensor& t) override {
    const Index shard = backend_->shape(weight_).rows();
    Runs mine;
    mine.append({rank_, shard, tp_});
    backend_->copy(weight_, 0, 0, t.view().rows(mine), 0, shard);
  }
  [[nodiscard]] typename B::Tensor forward(const typename B::Tensor& x) override {
    return backend_->linear(x, weight_);
  }

 private:
  B* backend_;
  Index rank_, tp_;
  typename B::Param weight_;
};

class StridedSubject final : public SubjectOf<StridedSubject> {
 public:
  explicit StridedSubject(const LayerSpec& s) : spec_(s) {
    require_legal(s);
    layer = "strided";
    tp = s.tp;
    tokens = s.tokens;
    LayerSpec plain = s;
    plain.bias = plain.gather_output = false;
    detail::declare(*this, plain);
    for (int r = 0; r < tp; ++r) {
      Runs rows;
      rows.append({r, s.out / tp, tp});
      params[0].parts[0].rows[static_cast<std::size_t>(r)] = rows;
      outputs[0].columns[static_cast<std::size_t>(r)] = rows;
    }
  }
  template <class B>
  [[nodiscard]] std::unique_ptr<ModuleOn<B>> module(B& b, Communicator& comm) const {
    return std::make_unique<StridedModule<B>>(b, comm, spec_);
  }
  template <class B>
  [[nodiscard]] std::vector<typename B::Tensor> meaning(B& b, const typename B::Tensor& x,
                                                        const FullParams<B>& t) const {
    std::vector<typename B::Tensor> y;
    y.push_back(full_linear(b, x, t, ""));
    return y;
  }

 private:
  LayerSpec spec_;
};

}  // namespace

TEST_CASE("laws: a new layer gets all laws in one line") {
  const laws::Candidate strided{.layer = "column", .make = [](const LayerSpec& s) {
                                  return std::make_unique<StridedSubject>(s);
                                }};
  // One tensor has no other order, and there are no parts and no heads.
  CHECK(laws::run_all_laws(strided) ==
        std::vector<std::string>{"load-order", "disk-order", "heads"});
}

// Generators ------------------------------------------------------------------------------------

namespace {

std::vector<laws::Case> sample(const rc::Gen<laws::Case>& gen, int count) {
  std::vector<laws::Case> out;
  rc::Random random(1);
  for (int i = 0; i < count; ++i) out.push_back(gen(random.split(), i % 100).value());
  return out;
}
template <class Is>
int share(const std::vector<laws::Case>& cases, Is is) {  // in percent
  int n = 0;
  for (const laws::Case& c : cases) n += is(c.spec) ? 1 : 0;
  return 100 * n / static_cast<int>(cases.size());
}
bool odd_tp(const LayerSpec& s) { return s.tp == 3 || s.tp == 5 || s.tp == 6 || s.tp == 7; }
bool shares_kv(const LayerSpec& s) { return s.layer == "qkv" && s.tp > s.qkv.kv_heads; }
bool unequal(const LayerSpec& s) {
  for (const MergedPart& part : s.parts)
    if (part.rows != s.parts[0].rows) return true;
  return false;
}

}  // namespace

TEST_CASE("generators: legal layers are legal and spread over the hard shapes") {
  const std::vector<laws::Case> any = sample(laws::legal_cases(), 2000);
  for (const laws::Case& c : any) {
    CAPTURE(laws::command_line(c));
    CHECK(violations(c.spec).empty());
    CHECK(laws::broken_rules(c.spec).empty());
  }
  CHECK(share(any, odd_tp) >= 10);
  CHECK(share(any, shares_kv) >= 10);
  CHECK(share(any, unequal) >= 10);
  for (const std::string& layer : layer_names()) {
    CAPTURE(layer);
    const std::vector<laws::Case> one = sample(laws::legal_cases(layer), 1000);
    CHECK(share(one, odd_tp) >= 10);
    CHECK(share(one, [](const LayerSpec& s) { return s.tp == 1; }) >= 5);
    CHECK(share(one, [](const LayerSpec& s) { return s.bias; }) >= 10);
    if (layer == "qkv") CHECK(share(one, shares_kv) >= 10);
    if (layer == "merged") CHECK(share(one, unequal) >= 10);
    // Every order on disk turns up, and every option that the layer has.
    std::set<std::string> disks;
    for (const laws::Case& c : one)
      disks.insert(c.spec.disk.empty() ? "" : c.spec.disk.substr(0, 3));
    const bool fused = layer == "qkv" || layer == "merged" || layer == "mlp";
    CHECK(disks.size() >= (fused ? 4U : 1U));
    const int skip = share(one, [](const LayerSpec& s) { return s.skip_bias_add; });
    const int gather = share(one, [](const LayerSpec& s) { return s.gather_output; });
    const int whole = share(one, [](const LayerSpec& s) { return !s.input_is_parallel; });
    const int partial = share(one, [](const LayerSpec& s) { return !s.reduce_results; });
    CHECK((skip >= 10) == (layer != "mlp"));
    CHECK((gather >= 10) == (layer == "column" || layer == "merged"));
    CHECK((whole >= 10) == (layer == "row"));
    CHECK((partial >= 10) == (layer == "row"));
  }
}

TEST_CASE("generators: illegal layers break one rule or several") {
  for (const std::string& layer : layer_names()) {
    CAPTURE(layer);
    const std::vector<laws::Case> all = sample(laws::illegal_cases(layer), 1000);
    const int several =
        share(all, [](const LayerSpec& s) { return laws::broken_rules(s).size() > 1; });
    CHECK(several >= 10);
    CHECK(several <= 90);
  }
}

}  // namespace laws_tests
