// SPDX-License-Identifier: MIT
// Calls every collective of a group and compares each with its definition.
#pragma once

#include <algorithm>
#include <string>

#include <tests/support/plain_ops.hpp>

namespace tpsim::test {

/// Element i of what rank r of a group puts in; tenths, so that another order of the sum has other
/// bits.
inline double input_value(int r, std::size_t i) {
  return 0.1 * (r + 1) + 7.3 * static_cast<double>(i * i % 11) * ((r * 5) % 7 - 3);
}
inline Plain input(int r, Index rows, Index cols) {
  Plain x(rows, cols);
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = input_value(r, i);
  return x;
}
inline Plain reduced(int n, Index rows, Index cols, Reduction op) {
  Plain all = input(0, rows, cols);
  for (int r = 1; r < n; ++r)
    for (std::size_t i = 0; i < all.values.size(); ++i) {
      const double x = input_value(r, i);
      all.values[i] = op == Reduction::sum ? all.values[i] + x : std::max(all.values[i], x);
    }
  return all;
}

/// Results that every rank of a group of n shares, computed once.
struct Expected {
  explicit Expected(int n) {
    for (const Reduction op : {Reduction::sum, Reduction::max})
      for (const int dim : {0, 1})
        whole[static_cast<int>(op)][dim] = reduced(n, dim == 0 ? n : 1, dim == 1 ? n : 1, op);
    for (const int dim : {0, 1})
      for (int r = 0; r < n; ++r) {
        const Index extent = r % 3;  // some ranks give nothing
        const Plain x = input(r, dim == 0 ? extent : 2, dim == 1 ? extent : 2);
        joined[dim] = r == 0 ? x : PlainOps::join(joined[dim], x, dim);
      }
  }
  Plain whole[2][2], joined[2];
};

/// Runs every collective of `comm` and returns the names of those whose result is not its
/// definition. With `in_place`, input and output are one tensor.
inline std::string wrong(Communicator& comm, const Expected& want, bool in_place) {
  const PlainOps ops;
  std::string bad;
  const int n = comm.size(), me = comm.rank();
  const auto check = [&](const char* what, Plain x, const Plain& right, const auto& collective) {
    const Plain before = x;
    Plain other(3, 3, -1);
    collective(x, in_place ? x : other);
    if ((in_place ? x : other) != right) bad += std::string(what) + " ";
    if (!in_place && x != before) bad += std::string(what) + " changed its input ";
  };
  for (const int dim : {0, 1}) {
    const Plain mine = input(me, dim == 0 ? n : 1, dim == 1 ? n : 1);
    for (const Reduction op : {Reduction::sum, Reduction::max}) {
      const Plain& sum = want.whole[static_cast<int>(op)][dim];
      check("all_reduce", mine, sum,
            [&](Plain& in, Plain& out) { comm.all_reduce(ops(in), ops(out), op); });
      check("reduce_scatter", mine, PlainOps::cut(sum, dim, me, 1),
            [&](Plain& in, Plain& out) { comm.reduce_scatter(ops(in), ops(out), dim, op); });
    }
    const Plain part = input(me, dim == 0 ? me % 3 : 2, dim == 1 ? me % 3 : 2);
    check("all_gather", part, want.joined[dim],
          [&](Plain& in, Plain& out) { comm.all_gather(ops(in), ops(out), dim); });
    Plain parts = mine;
    for (int r = 0; r < n; ++r)
      parts.values[static_cast<std::size_t>(r)] = input_value(r, static_cast<std::size_t>(me));
    check("all_to_all", mine, parts,
          [&](Plain& in, Plain& out) { comm.all_to_all(ops(in), ops(out), dim); });
    for (const int root : {0, n / 2, n - 1}) {
      Plain given = part, got;
      comm.gather(ops(given), me == root ? ops(got) : Buffer{}, root, dim);
      if (me == root && got != want.joined[dim]) bad += "gather ";
    }
  }
  for (const int root : {0, n / 2, n - 1})
    check("broadcast", input(me, 2, 3), input(root, 2, 3),
          [&](Plain& in, Plain& out) { comm.broadcast(ops(in), ops(out), root); });
  comm.barrier();
  return bad;
}

}  // namespace tpsim::test
