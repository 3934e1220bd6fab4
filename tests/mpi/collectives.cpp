// SPDX-License-Identifier: MIT
// MPI ranks: every collective gives what virtual ranks give, bit for bit, and in fast mode what the
// bound of its sum allows.
#include <cmath>
#include <tests/mpi/both_worlds.hpp>
#include <tests/support/drive_collectives.hpp>
#include <tpsim/backend/collectives.hpp>
#include <tpsim/backend/eigen/eigen_backend.hpp>
#include <tpsim/backend/field/field_backend.hpp>

using namespace tpsim;
using namespace tpsim::test;

namespace {

const PlainOps plain;

template <class B>
using MakeInput = std::function<typename B::Tensor(const B&, int rank, Index rows, Index cols)>;

/// Every collective of a group on tensors of a backend: the results, packed.
template <class B>
void drive(Communicator& comm, B& b, const MakeInput<B>& input, std::vector<Bytes>& out) {
  const BackendOps<B> ops(b);
  using Tensor = typename B::Tensor;
  const int n = comm.size(), me = comm.rank();
  const auto keep = [&](const Tensor& t) { out.push_back(b.pack(t)); };
  const Tensor untouched = input(b, 77, 1, 1);
  for (const Index cols : {Index{5}, Index{0}, Index{1}}) {
    Tensor x = input(b, me, 3, cols), y = untouched;
    for (const Reduction op : {Reduction::sum, Reduction::max}) {
      comm.all_reduce(ops.buffer(x), ops.buffer(y), op);
      keep(y);
    }
    for (const int root : {0, n - 1}) {
      y = untouched;
      comm.broadcast(ops.buffer(x), ops.buffer(y), root);
      keep(y);
    }
    Tensor odd = input(b, me, 3, cols + me % 3);  // some ranks give nothing
    y = untouched;
    comm.all_gather(ops.buffer(odd), ops.buffer(y), 1);
    keep(y);
    for (const int root : {0, n - 1}) {
      y = untouched;
      comm.gather(ops.buffer(odd), me == root ? ops.buffer(y) : ops.none(), root, 1);
      if (me == root) keep(y);
    }
    for (const int dim : {0, 1}) {
      Tensor whole = input(b, me, dim == 0 ? 2 * n : 3, dim == 1 ? 2 * n : cols);
      y = untouched;
      comm.reduce_scatter(ops.buffer(whole), ops.buffer(y), dim);
      keep(y);
      y = untouched;
      comm.all_to_all(ops.buffer(whole), ops.buffer(y), dim);
      keep(y);
    }
    comm.all_reduce(ops.buffer(x), ops.buffer(x));  // in place
    keep(x);
  }
}

/// In the world, in two halves whose order is reversed, and in what is left of a half.
template <class B>
void drive_groups(Communicator& comm, B& b, const MakeInput<B>& input, std::vector<Bytes>& out) {
  drive(comm, b, input, out);
  const auto half = comm.split(comm.rank() % 2, -comm.rank());
  drive(*half, b, input, out);
  if (const auto some = comm.split(comm.rank() == 0 ? -1 : 0, 0)) drive(*some, b, input, out);
}

template <class B>
void same_bits_in_both_worlds(const std::function<B(int)>& make, const MakeInput<B>& input,
                              MpiOptions options = {}) {
  MpiRanks processes(options);
  VirtualRanks ranks(processes.size());
  std::vector<std::vector<Bytes>> wanted(static_cast<std::size_t>(ranks.size()));
  ranks.run([&](Communicator& comm) {
    B b = make(comm.rank());
    drive_groups(comm, b, input, wanted[static_cast<std::size_t>(comm.rank())]);
  });
  std::vector<Bytes> have;
  processes.run([&](Communicator& comm) {
    B b = make(comm.rank());
    drive_groups(comm, b, input, have);
  });
  const std::vector<Bytes>& mine = wanted[static_cast<std::size_t>(processes.rank())];
  REQUIRE(have.size() == mine.size());
  int different = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) different += have[i] != mine[i] ? 1 : 0;
  CHECK(different == 0);
  if (options.debug) CHECK(text_of(processes.trace()) == text_of(ranks.trace()));
}

template <class Real>
MakeInput<EigenBackend<Real>> eigen_input(bool wide) {
  return [wide](const EigenBackend<Real>& b, int rank, Index rows, Index cols) {
    eigen::Matrix<double> x(rows, cols);
    for (Index i = 0; i < x.size(); ++i)
      x.data()[i] = input_value(rank, static_cast<std::size_t>(i)) * 1.37;
    eigen::Tensor<Real> t = b.input(x);
    if (wide) t.value = x.template cast<Real>(), t.wide = true;
    if (b.options().track_bounds) t.bound = (x.array().abs() * 0.01).matrix();
    return t;
  };
}
template <class Real>
std::function<EigenBackend<Real>(int)> eigen_maker(DType rule, bool bounds,
                                                   ReduceOrder order = ReduceOrder::rank) {
  return [=](int rank) {
    EigenOptions o;
    o.track_bounds = bounds, o.order = order;
    return EigenBackend<Real>(rank, rule, o);
  };
}

FieldBackend field(int rank) {
  return {std::make_shared<FieldContext>(FieldContext{7, Weakening::none}), rank};
}
FieldTensor field_input(const FieldBackend& b, int rank, Index rows, Index cols) {
  return b.input("x" + std::to_string(rank), rows, cols);
}

}  // namespace

TEST_CASE("mpi ranks: every collective gives its definition, in the world and in its parts") {
  const int n = job_size();
  std::vector<Expected> want;
  for (int m = 0; m <= n; ++m) want.emplace_back(std::max(m, 1));
  for (const bool fast : {false, true})
    for (const bool debug : {true, false}) {
      MpiRanks world({debug, fast});
      std::string bad;
      int ran = 0;
      world.run([&](Communicator& comm) {
        REQUIRE(comm.size() == n);
        REQUIRE(comm.rank() == world.rank());
        for (const bool in_place : {false, true})
          bad += wrong(comm, want[static_cast<std::size_t>(n)], in_place);
        const auto half = comm.split(comm.rank() % 2, -comm.rank());
        REQUIRE(half->group() == (comm.rank() % 2 == 0 ? "world/0" : "world/1"));
        bad += wrong(*half, want[static_cast<std::size_t>(half->size())], true);
        const auto again = half->split(0, 0);
        REQUIRE(again->group() == std::string(half->group()) + "/0");
        bad += wrong(*again, want[static_cast<std::size_t>(again->size())], false);
        const auto others = comm.split(comm.rank() == 0 ? -1 : 0, 0);
        REQUIRE((others == nullptr) == (comm.rank() == 0));
        if (others) {
          REQUIRE(others->group() == "world#2/0");
          bad += wrong(*others, want[static_cast<std::size_t>(others->size())], true);
        }
        ++ran;
      });
      CAPTURE(fast, debug);
      CHECK(bad == "");
      CHECK(ran == 1);
      CHECK(world.trace().empty() != debug);
    }
}

TEST_CASE("mpi ranks: float, double and finite field results are the virtual ranks' bits") {
  for (const bool bounds : {false, true}) {
    same_bits_in_both_worlds<EigenBackend<float>>(eigen_maker<float>(DType::f32, bounds),
                                                  eigen_input<float>(false));
    same_bits_in_both_worlds<EigenBackend<double>>(eigen_maker<double>(DType::f64, bounds),
                                                   eigen_input<double>(false));
    for (const bool wide : {false, true})
      same_bits_in_both_worlds<EigenBackend<float>>(eigen_maker<float>(DType::bf16, bounds),
                                                    eigen_input<float>(wide));
  }
  for (const ReduceOrder order : {ReduceOrder::ring, ReduceOrder::f32})
    same_bits_in_both_worlds<EigenBackend<float>>(eigen_maker<float>(DType::f16, true, order),
                                                  eigen_input<float>(false));
  same_bits_in_both_worlds<FieldBackend>(field, field_input);
}

TEST_CASE("mpi ranks: fast mode keeps the bits of sums whose order counts, and of moved data") {
  for (const bool bounds : {false, true})
    same_bits_in_both_worlds<EigenBackend<float>>(eigen_maker<float>(DType::bf16, bounds),
                                                  eigen_input<float>(false), {true, true});
  same_bits_in_both_worlds<FieldBackend>(field, field_input, {false, true});
}

namespace {

/// Largest of |fast - rank order| over the sum of both bounds, in sums of n ranks.
template <class Real>
double fast_ratio(DType rule, bool wide) {
  const auto make = eigen_maker<Real>(rule, true);
  const auto run = [&](auto& world, std::vector<std::vector<eigen::Tensor<Real>>>& out) {
    out.resize(static_cast<std::size_t>(world.size()));
    world.run([&](Communicator& comm) {
      EigenBackend<Real> b = make(comm.rank());
      const BackendOps<EigenBackend<Real>> ops(b);
      for (const int dim : {0, 1}) {
        const Index whole = comm.size() * Index{24};
        auto x =
            eigen_input<Real>(wide)(b, comm.rank(), dim == 0 ? whole : 7, dim == 0 ? 7 : whole);
        auto y = x;
        comm.all_reduce(ops.buffer(x), ops.buffer(y));
        comm.reduce_scatter(ops.buffer(x), ops.buffer(x), dim);
        auto& mine = out[static_cast<std::size_t>(comm.rank())];
        mine.push_back(std::move(x));
        mine.push_back(std::move(y));
      }
    });
  };
  MpiRanks processes({true, true});
  VirtualRanks ranks(processes.size());
  std::vector<std::vector<eigen::Tensor<Real>>> have, wanted;
  run(ranks, wanted);
  run(processes, have);
  double largest = 0;
  const auto me = static_cast<std::size_t>(processes.rank());
  REQUIRE(have[me].size() == wanted[me].size());
  for (std::size_t i = 0; i < have[me].size(); ++i) {
    const auto &a = have[me][i], &b = wanted[me][i];
    REQUIRE(a.value.rows() == b.value.rows());
    REQUIRE(a.value.cols() == b.value.cols());
    REQUIRE(a.bound.size() == a.value.size());
    CHECK(a.wide == b.wide);
    for (Index k = 0; k < a.value.size(); ++k) {
      // The inputs' own bounds are equal in both: only the sums' errors may differ.
      const double inputs = std::min(a.bound.data()[k], b.bound.data()[k]);
      CHECK(std::abs(a.bound.data()[k] - b.bound.data()[k]) <= 1e-4 * inputs);
      const double difference =
          std::abs(static_cast<double>(a.value.data()[k]) - static_cast<double>(b.value.data()[k]));
      largest = std::max(largest, difference / (a.bound.data()[k] + b.bound.data()[k]));
    }
  }
  return largest;
}

}  // namespace

TEST_CASE("mpi ranks: sums of fast mode differ from rank order by no more than their bounds") {
  CHECK(fast_ratio<float>(DType::f32, false) <= 1);
  CHECK(fast_ratio<double>(DType::f64, false) <= 1);
  CHECK(fast_ratio<float>(DType::bf16, true) <= 1);  // wide: f32 whatever the rule
}

TEST_CASE("mpi ranks: fast mode sums integers to the same bits") {
  MpiRanks world({true, true});
  eigen::Matrix<float> sum(3, 5);
  world.run([&](Communicator& comm) {
    EigenBackend<float> b(comm.rank());
    const eigen::Matrix<float> x =
        eigen::Matrix<float>::Constant(3, 5, static_cast<float>(comm.rank() + 1));
    sum = all_reduce(b, comm, b.input(x)).value;
  });
  const int n = world.size();
  CHECK((sum.array() == static_cast<float>(n * (n + 1) / 2)).all());
}
